//! Asking again, where requests and replies may be lost.

use std::time::Duration;

use bytes::Bytes;

use super::NetClient;
use super::error::CallError;

impl NetClient {
    /// Sends a request up to `times` times, waiting `each` for a reply every time: for UDP, which loses datagrams. The
    /// server may carry the request out more than once.
    ///
    /// # Errors
    /// As [`request`](Self::request); [`CallError::TimedOut`] with `each` when no attempt was answered.
    pub async fn request_with_retries(
        &self,
        payload: &[u8],
        each: Duration,
        times: u32,
    ) -> Result<Bytes, CallError> {
        for _ in 1..times {
            match self.request(payload).timeout(each).await {
                Err(CallError::TimedOut(_)) => {}
                ended => return ended,
            }
        }
        self.request(payload).timeout(each).await
    }
}
