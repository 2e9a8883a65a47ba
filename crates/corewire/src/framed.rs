//! A connection that speaks frames: the protocol below every server session and every client.

use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use corewire_proto::codec::{Codec, DecodeError};
use corewire_runtime::{Charge, CloseReason, Connection, FrameProgress, MemoryKind, Protocol};

use crate::frame::Frame;
use crate::handler::Handler;
use crate::reader::{FrameReader, FrameSink, read_datagram};
use crate::session::{Session, SessionInner};

/// Decodes what arrives and calls the handler for each frame. There is one for each connection, and most are idle most of
/// the time: what is needed seldom lies in boxes.
pub(crate) struct Framed<C, H> {
    handler: H,
    session: State<C>,
    reader: FrameReader,
    /// What the connection was told of the frame that is arriving; nothing before the first bytes.
    told: Option<Option<NonZeroU32>>,
    /// For the memory of the reader; made when it is more than a little.
    charge: Option<Box<Charge>>,
}

enum State<C> {
    /// The connection is not established.
    Opening(Option<Box<Opening<C>>>),
    Open(Rc<SessionInner<C>>, Session),
}

/// What a session is made of.
struct Opening<C> {
    id: u64,
    codec: C,
    opened: Option<Opened<C>>,
}

/// Gets the session with its codec before the handler does.
type Opened<C> = Box<dyn FnOnce(Rc<SessionInner<C>>)>;

impl<C: Codec, H: Handler> Framed<C, H> {
    pub(crate) fn new(id: u64, codec: C, handler: H) -> Self {
        Self::opening(Opening { id, codec, opened: None }, handler)
    }

    pub(crate) fn with_opened(
        id: u64,
        codec: C,
        handler: H,
        opened: impl FnOnce(Rc<SessionInner<C>>) + 'static,
    ) -> Self {
        Self::opening(Opening { id, codec, opened: Some(Box::new(opened)) }, handler)
    }

    fn opening(opening: Opening<C>, handler: H) -> Self {
        Self {
            handler,
            session: State::Opening(Some(Box::new(opening))),
            reader: FrameReader::default(),
            told: None,
            charge: None,
        }
    }
}

impl<C, H> Framed<C, H> {
    /// Memory of the reader up to this size is not charged: most connections never need more.
    const UNCHARGED_MAX: usize = 4 * 1024;

    /// Tells the connection of the frame that is arriving, and what its beginning occupies.
    #[inline]
    fn note_reader(&mut self, connection: &Connection) {
        let in_frame = self.reader.in_frame();
        if self.told != Some(in_frame) {
            self.told = Some(in_frame);
            let progress = if in_frame.is_some() { FrameProgress::InFrame } else { FrameProgress::Between };
            connection.set_progress(progress);
        }
        let held = self.reader.held();
        if let Some(charge) = &mut self.charge {
            charge.set(held);
        } else if held > Self::UNCHARGED_MAX {
            self.charge = Some(Box::new(connection.charge(MemoryKind::Reassembly, held)));
        }
    }
}

/// Calls the handler for what the reader finds.
struct Calls<'a, C, H> {
    handler: &'a mut H,
    inner: &'a SessionInner<C>,
    session: &'a Session,
}

impl<C: Codec, H: Handler> FrameSink for Calls<'_, C, H> {
    #[inline]
    fn frame(&mut self, frame: Frame<'_>) -> bool {
        self.handler.on_frame(self.session, frame);
        self.inner.connection().frame_done(frame.payload().len()) && self.inner.is_open()
    }

    fn error(&mut self, error: DecodeError) -> bool {
        self.handler.on_error(self.session, &error);
        if self.inner.connection().is_datagram() {
            // The rest of the datagram is of no use; the next one stands for itself.
            return false;
        }
        if !error.is_recoverable() {
            self.session.close_with(CloseReason::Protocol(error.to_string()));
        }
        self.inner.is_open()
    }
}

impl<C: Codec, H: Handler> Protocol for Framed<C, H> {
    fn on_open(&mut self, connection: &Connection) {
        let State::Opening(opening) = &mut self.session else { return };
        let Some(Opening { id, codec, opened }) = opening.take().map(|opening| *opening) else { return };
        let inner = Rc::new(SessionInner::new(id, codec, connection.clone()));
        let session = Session::new(inner.clone());
        if let Some(opened) = opened {
            opened(inner.clone());
        }
        // Kept first: a handler that panics is told of the end too.
        self.session = State::Open(inner, session);
        connection.set_progress(FrameProgress::AwaitingFirst);
        if let State::Open(_, session) = &self.session {
            self.handler.on_open(session);
        }
    }

    #[inline]
    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        let State::Open(inner, session) = &self.session else { return };
        if inner.is_open() {
            let mut calls = Calls { handler: &mut self.handler, inner, session };
            let rest = self.reader.read(&inner.codec, data, &mut calls);
            if !rest.is_empty() && inner.is_open() {
                connection.defer(rest);
            }
            self.note_reader(connection);
        }
    }

    #[inline]
    fn on_datagrams(&mut self, _: &Connection, run: &Bytes, segment_size: usize) {
        let State::Open(inner, session) = &self.session else { return };
        for datagram in run.chunks(segment_size.max(1)) {
            if !inner.is_open() {
                return;
            }
            let mut calls = Calls { handler: &mut self.handler, inner, session };
            read_datagram(&inner.codec, datagram, run, &mut calls);
        }
    }

    fn on_read_closed(&mut self, connection: &Connection) {
        let State::Open(_, session) = &self.session else { return connection.close() };
        let cut = self.reader.pending();
        if cut > 0 {
            let reason = format!("the peer closed in the middle of a frame, of which {cut} bytes had come");
            return session.close_with(CloseReason::Protocol(reason));
        }
        self.handler.on_read_closed(session);
    }

    fn on_drained(&mut self, _: &Connection) {
        if let State::Open(_, session) = &self.session {
            self.handler.on_drained(session);
        }
    }

    fn on_timer(&mut self, _: &Connection) {
        if let State::Open(_, session) = &self.session {
            self.handler.on_timer(session);
        }
    }

    fn on_shutdown(&mut self, connection: &Connection) {
        match &self.session {
            State::Open(_, session) => self.handler.on_shutdown(session),
            State::Opening(_) => connection.close_with(CloseReason::Shutdown),
        }
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        if let State::Open(inner, session) = &self.session {
            inner.note_closed();
            self.handler.on_close(session, reason);
        } else {
            self.handler.on_connect_failed(reason);
        }
    }
}
