//! Object codecs behind framing: handlers of values instead of bytes.

use corewire_proto::codec::{DecodeError, FrameHead, FrameKind, ObjectCodec};

use crate::frame::Frame;
use crate::handler::Handler;
use crate::session::{FrameSendError, Session};

/// A handler whose closure gets values: the second stage of a pipeline whose first is the framing codec.
///
/// What the closure returns is sent as the reply (to a frame that expects none, as a message); `None` sends nothing.
/// A payload that is no such value is answered with an error reply that says why (a message that expects no reply is
/// not answered), and the session goes on.
#[derive(Debug)]
pub struct Objects<O, F> {
    codec: O,
    call: F,
    scratch: Vec<u8>,
}

/// Makes a handler of an object codec and a closure from value to reply.
///
/// ```
/// # #[cfg(feature = "json")] {
/// use corewire::proto::codec::JsonCodec;
/// use corewire::{LineCodec, NetServer, Session, objects};
///
/// // One JSON text per line; answers the sum of the numbers.
/// let server = NetServer::bind("tcp://127.0.0.1:0")
///     .codec(LineCodec::new)
///     .handler(|| {
///         objects(JsonCodec::<Vec<i64>, i64>::new(), |_: &Session, _, numbers| Some(numbers.iter().sum()))
///     })
///     .workers(1)
///     .start()?;
/// # drop(server);
/// # }
/// # Ok::<(), corewire::ServerError>(())
/// ```
pub fn objects<O, F>(codec: O, call: F) -> Objects<O, F>
where
    O: ObjectCodec,
    F: FnMut(&Session, FrameHead, O::In) -> Option<O::Out> + 'static,
{
    Objects { codec, call, scratch: Vec::new() }
}

impl<O, F> Handler for Objects<O, F>
where
    O: ObjectCodec,
    F: FnMut(&Session, FrameHead, O::In) -> Option<O::Out> + 'static,
{
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        let reply = match self.codec.decode(frame.head(), frame.payload()) {
            Ok(value) => (self.call)(session, frame.head(), value),
            Err(error) => return refuse(session, &frame, &error),
        };
        let Some(value) = reply else { return };
        self.scratch.clear();
        let sent = match self.codec.encode(&value, &mut self.scratch) {
            // A reply under the number of a message could be taken for that of a call.
            Ok(()) if frame.kind() == FrameKind::OneWay => session.send(&self.scratch),
            Ok(()) => session.reply(&frame, &self.scratch),
            Err(error) => Err(FrameSendError::Encode(error)),
        };
        if let Err(error) = sent {
            tracing::warn!(session = session.id(), %error, "a reply was not sent");
        }
    }
}

fn refuse(session: &Session, frame: &Frame<'_>, error: &DecodeError) {
    tracing::debug!(session = session.id(), %error, "a payload is not what was expected");
    if frame.kind() == FrameKind::OneWay {
        return;
    }
    // A session that is over, or a codec that cannot carry the text, leaves nobody to tell.
    let _ = session.reply_error(frame, error.to_string().as_bytes());
}
