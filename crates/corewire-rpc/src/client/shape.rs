//! What tells the modes of calls apart.

use std::sync::Arc;
use std::task::{Context, Poll};

use corewire_runtime::WorkerId;

use super::attempt::Attempt;
use crate::feed::Fed;
use crate::replay::Replay;
use crate::status::Status;

/// The mode of a call, and the types of its messages: [`Unary`](super::Unary),
/// [`ClientStreaming`](super::ClientStreaming), [`ServerStreaming`](super::ServerStreaming),
/// [`BidiStreaming`](super::BidiStreaming).
pub trait Shape: Sized + 'static {
    /// What the call's future gives.
    type Output;

    /// What a task of the channel's worker sends to a future that is polled elsewhere.
    #[doc(hidden)]
    type Sent: Send + 'static;

    /// Handles on the call that its caller gets.
    #[doc(hidden)]
    const HOLDERS: u8;

    #[doc(hidden)]
    fn poll_local(attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Self::Sent, Status>>;

    /// What says that the server has begun to answer: waits for it, and takes nothing away.
    ///
    /// # Errors
    /// The call failed before.
    #[doc(hidden)]
    fn poll_response(sent: &mut Self::Sent, context: &mut Context<'_>) -> Poll<Result<(), Status>>;

    /// The ends of a call that may be made again although its requests come one by one; `None`: they never do.
    #[doc(hidden)]
    fn replayed(home: WorkerId, replay: &Arc<Replay>) -> Option<Self::Sent> {
        let _ = (home, replay);
        None
    }

    /// Sends requests that were kept. Ready when there is nothing more to send now.
    #[doc(hidden)]
    fn poll_feed(
        sent: &mut Self::Sent,
        replay: &Replay,
        fed: &mut Fed,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let _ = (sent, replay, fed, context);
        Poll::Ready(())
    }

    #[doc(hidden)]
    fn finish(sent: Self::Sent) -> Result<Self::Output, Status>;
}
