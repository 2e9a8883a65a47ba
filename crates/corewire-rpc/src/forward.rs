//! Streams as responses, for the macro.

use std::future::poll_fn;
use std::pin::pin;

use futures_core::Stream;

use crate::message::Message;
use crate::sink::Sink;
use crate::status::Status;
use crate::stream::Streaming;

/// A stream of messages by any name.
pub trait Messages {
    /// What it is made of.
    type Message;
}

impl<T> Messages for Streaming<T> {
    type Message = T;
}

/// Sends all items.
///
/// # Errors
/// The call is over, or an item cannot be sent.
pub async fn forward<T: Message>(stream: impl Stream<Item = T>, mut sink: Sink<T>) -> Result<(), Status> {
    let mut stream = pin!(stream);
    while let Some(item) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        sink.send(item).await?;
    }
    Ok(())
}

/// Sends all items, up to the first error, which fails the call.
///
/// # Errors
/// An item is an error; or as [`forward`].
pub async fn forward_results<T: Message>(
    stream: impl Stream<Item = Result<T, Status>>,
    mut sink: Sink<T>,
) -> Result<(), Status> {
    let mut stream = pin!(stream);
    while let Some(item) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        sink.send(item?).await?;
    }
    Ok(())
}
