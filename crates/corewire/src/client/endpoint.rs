//! The handler of a client's connection: replies to their calls, all else to the user.

use std::io;
use std::rc::Rc;

use corewire_proto::codec::{Codec, DecodeError};
use corewire_runtime::CloseReason;
use futures_channel::oneshot;

use super::connect::reconnect;
use super::error::CallError;
use super::local::{Client, Link};
use crate::frame::Frame;
use crate::handler::Handler;
use crate::session::Session;

pub(super) struct Endpoint<C> {
    client: Rc<Client<C>>,
    handler: Box<dyn Handler>,
    /// Whoever waits for the connection.
    opened: Option<oneshot::Sender<Result<(), io::Error>>>,
    /// The connection stands and is the client's.
    current: bool,
}

impl<C: Codec> Endpoint<C> {
    pub(super) fn new(client: Rc<Client<C>>, opened: oneshot::Sender<Result<(), io::Error>>) -> Self {
        let handler = (client.handler)();
        Self { client, handler, opened: Some(opened), current: false }
    }
}

impl<C: Codec> Handler for Endpoint<C> {
    fn on_open(&mut self, session: &Session) {
        if self.client.is_closed() {
            return session.close();
        }
        self.current = true;
        if let Some(opened) = self.opened.take() {
            // Nobody waits for it any more: the attempt's guard ends the connection.
            let _ = opened.send(Ok(()));
        }
        if let Some(inbox) = &self.client.inbox {
            inbox.reopened(session);
        }
        self.handler.on_open(session);
    }

    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        let tick = session.connection().tick();
        let is_reply = self.client.calls.borrow_mut().complete(&frame.head(), tick, || frame.to_bytes());
        if is_reply {
            return;
        }
        match &self.client.inbox {
            Some(inbox) => inbox.push(frame.to_message(), session),
            None => self.handler.on_frame(session, frame),
        }
    }

    fn on_error(&mut self, session: &Session, error: &DecodeError) {
        self.handler.on_error(session, error);
    }

    fn on_drained(&mut self, session: &Session) {
        self.handler.on_drained(session);
    }

    fn on_read_closed(&mut self, session: &Session) {
        self.handler.on_read_closed(session);
    }

    fn on_timer(&mut self, session: &Session) {
        self.handler.on_timer(session);
    }

    fn on_close(&mut self, session: &Session, reason: &CloseReason) {
        if !std::mem::take(&mut self.current) {
            return;
        }
        let open = !self.client.is_closed();
        if open {
            self.client.set_link(Link::Down);
        }
        self.client.calls.borrow_mut().fail_all(&CallError::ConnectionLost(reason.to_string()));
        self.handler.on_close(session, reason);
        if open {
            reconnect(&self.client);
        }
    }

    fn on_connect_failed(&mut self, reason: &CloseReason) {
        let error = match reason {
            CloseReason::Io(error) => error
                .raw_os_error()
                .map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error),
            other => io::Error::other(other.to_string()),
        };
        if let Some(opened) = self.opened.take() {
            // Nobody waits for it any more.
            let _ = opened.send(Err(error));
        }
        self.handler.on_connect_failed(reason);
    }
}
