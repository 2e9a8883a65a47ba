//! The handler of a client's connection: replies to their calls, all else to the user.

use std::rc::Rc;

use corewire_proto::codec::{Codec, DecodeError};
use corewire_runtime::CloseReason;

use super::connector::Attempt;
use super::worker_client::Client;
use crate::frame::Frame;
use crate::handler::Handler;
use crate::session::Session;

pub(super) struct Endpoint<C> {
    client: Rc<Client<C>>,
    handler: Box<dyn Handler>,
    state: Progress,
}

enum Progress {
    Connecting(Attempt),
    /// The connection is the client's.
    Established {
        has_received: bool,
    },
    /// The client was closed before.
    Refused,
}

impl<C: Codec> Endpoint<C> {
    pub(super) fn new(client: Rc<Client<C>>, attempt: Attempt) -> Self {
        let handler = (client.handler)();
        Self { client, handler, state: Progress::Connecting(attempt) }
    }
}

impl<C: Codec> Handler for Endpoint<C> {
    fn on_open(&mut self, session: &Session) {
        let state = std::mem::replace(&mut self.state, Progress::Refused);
        let Progress::Connecting(attempt) = state else { return };
        if self.client.is_closed() {
            return session.close();
        }
        self.state = Progress::Established { has_received: false };
        attempt.succeed();
        if let Some(inbox) = &self.client.inbox {
            inbox.reopened(session, &mut self.client.inbox_charge.borrow_mut());
        }
        self.handler.on_open(session);
    }

    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        if let Progress::Established { has_received } = &mut self.state {
            *has_received = true;
        }
        let round = session.connection().task_round();
        let is_reply =
            self.client.lane.calls.borrow_mut().complete(&frame.head(), round, || frame.to_bytes());
        if is_reply {
            return;
        }
        match &self.client.inbox {
            Some(inbox) => inbox.push(&frame, session, &mut self.client.inbox_charge.borrow_mut()),
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
        if let Progress::Established { has_received } = self.state {
            // Before the user is told, whose handler may panic.
            self.client.lost(reason, has_received, session.queued());
            self.handler.on_close(session, reason);
        }
    }

    fn on_connect_failed(&mut self, reason: &CloseReason) {
        if let Progress::Connecting(attempt) = std::mem::replace(&mut self.state, Progress::Refused) {
            attempt.fail(reason);
        }
        self.handler.on_connect_failed(reason);
    }
}
