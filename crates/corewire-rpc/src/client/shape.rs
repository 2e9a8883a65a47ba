//! What tells the modes of calls apart.

use std::task::{Context, Poll};

use super::attempt::Attempt;
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

    #[doc(hidden)]
    fn finish(sent: Self::Sent) -> Result<Self::Output, Status>;
}
