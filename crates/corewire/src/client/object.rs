//! Calls with values in place of bytes.

use corewire_proto::codec::{DecodeError, FrameHead, FrameKind, ObjectCodec};

use super::NetClient;
use super::error::{CallError, ClientSendError};

/// A call with objects brought no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectCallError {
    /// The call itself failed, or ([`CallError::Encode`]) the value could not be written.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The reply came, but it is not what was expected.
    #[error("the reply to a call is of another form: {0}")]
    Reply(#[source] DecodeError),
}

impl NetClient {
    /// Sends a value as a request and waits for the value of its reply: [`request`](Self::request) with an object
    /// codec behind the framing one. Its `Out` is what is sent, its `In` what comes back.
    ///
    /// ```
    /// # #[cfg(feature = "json")] {
    /// use corewire::proto::codec::JsonCodec;
    /// use corewire::{NetServer, NetUri, Session, StandardCodec, objects};
    ///
    /// let server = NetServer::bind("tcp://127.0.0.1:0")
    ///     .codec(StandardCodec::default)
    ///     .handler(|| {
    ///         objects(JsonCodec::<Vec<i64>, i64>::new(), |_: &Session, _, numbers| Some(numbers.iter().sum()))
    ///     })
    ///     .workers(1)
    ///     .start()?;
    /// let client = NetUri::parse(server.uri())?.client().codec(StandardCodec::default).connect_blocking()?;
    /// let sum = corewire::block_on(client.request_object(JsonCodec::<i64, Vec<i64>>::new(), &vec![40, 2]))?;
    /// assert_eq!(sum, 42);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The value cannot be written, the call fails (the server's error reply is [`CallError::Remote`]), or the reply
    /// is no such value.
    pub async fn request_object<O: ObjectCodec>(
        &self,
        mut codec: O,
        value: &O::Out,
    ) -> Result<O::In, ObjectCallError> {
        let mut payload = Vec::new();
        codec.encode(value, &mut payload).map_err(CallError::from)?;
        let reply = self.request(&payload).await?;
        let head = FrameHead { kind: FrameKind::Reply, ..FrameHead::default() };
        codec.decode(head, &reply).map_err(ObjectCallError::Reply)
    }

    /// Sends a value as a message that expects no reply; waits as [`send`](Self::send) does.
    ///
    /// # Errors
    /// The value cannot be written, or as [`send`](Self::send).
    pub async fn send_object<O: ObjectCodec>(
        &self,
        mut codec: O,
        value: &O::Out,
    ) -> Result<(), ClientSendError> {
        let mut payload = Vec::new();
        codec.encode(value, &mut payload)?;
        self.send(&payload).await
    }
}
