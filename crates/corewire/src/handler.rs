//! The push interface for frames.

use corewire_proto::codec::DecodeError;
use corewire_runtime::CloseReason;

use crate::frame::Frame;
use crate::session::Session;

/// What is done with one session. Made for it by the factory that was given to
/// [`NetServer::handler`](crate::NetServer::handler) or [`ClientBuilder::handler`](crate::ClientBuilder::handler),
/// owned by it, called on its worker only; so its fields need no lock.
///
/// `on_open` comes first, `on_close` last, each once. A panic closes this session and no other. Do not block: start a
/// task ([`spawn_local`](crate::spawn_local)) for what takes long.
///
/// A closure `FnMut(&Session, Frame<'_>)` is a handler.
pub trait Handler: 'static {
    /// The connection is established.
    fn on_open(&mut self, session: &Session) {
        let _ = session;
    }

    /// A whole frame arrived. On a client: one that is no reply to a call.
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>);

    /// The peer's bytes break the codec's format or limit. If the stream is still in step
    /// ([`DecodeError::is_recoverable`]) the session goes on, else it is closed after this.
    fn on_error(&mut self, session: &Session, error: &DecodeError) {
        let _ = (session, error);
    }

    /// The send queue, having been over its high-water mark, has fallen to its low-water mark.
    fn on_drained(&mut self, session: &Session) {
        let _ = session;
    }

    /// The time set by [`Session::set_timer`] has come.
    fn on_timer(&mut self, session: &Session) {
        let _ = session;
    }

    /// The peer will send nothing more. By default the session is closed, once what is queued has been sent.
    fn on_read_closed(&mut self, session: &Session) {
        session.close_with(CloseReason::PeerClosed);
    }

    /// The server shuts down: finish what is under way and close the session. By default it is closed once what is
    /// queued has been sent.
    fn on_shutdown(&mut self, session: &Session) {
        session.close_with(CloseReason::Shutdown);
    }

    /// Client only: the connection could not be made; there is no session, and nothing else is called.
    fn on_connect_failed(&mut self, reason: &CloseReason) {
        let _ = reason;
    }

    /// The session is over.
    fn on_close(&mut self, session: &Session, reason: &CloseReason) {
        let _ = (session, reason);
    }
}

impl<F: FnMut(&Session, Frame<'_>) + 'static> Handler for F {
    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        self(session, frame);
    }
}

/// Ignores everything: the handler of a client that only sends and calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ignore;

impl Handler for Ignore {
    fn on_frame(&mut self, _: &Session, _: Frame<'_>) {}
}
