//! Sessions served by tasks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use corewire_proto::codec::FrameHead;
use corewire_runtime::{Charge, CloseReason, MemoryKind, poll_with_quota, spawn_local};

use crate::frame::{Frame, Message};
use crate::handler::Handler;
use crate::session::{FrameSendError, Session, error_reply_head, reply_head};

/// Messages and bytes that wait for the task at which the peer is held back.
const MESSAGES_MAX: usize = 1024;
const BYTES_MAX: usize = 256 * 1024;

/// A session as its task sees it. Dropping it closes the session once what was sent has left.
#[derive(Debug)]
pub struct SessionStream {
    session: Session,
    inbox: Rc<RefCell<Inbox>>,
}

impl SessionStream {
    /// The next message; `None` when the peer has finished, the session is over or the server shuts down. Dropping
    /// the future loses none.
    pub async fn next(&mut self) -> Option<Message> {
        let poll = |context: &mut Context<'_>| self.inbox.borrow_mut().poll(&self.session, context);
        poll_fn(|context| poll_with_quota(context, poll)).await
    }

    /// Sends a message that expects no reply, waiting while the peer does not keep up.
    ///
    /// # Errors
    /// The session is over, or the codec cannot carry the payload.
    pub async fn send(&self, payload: &[u8]) -> Result<(), FrameSendError> {
        self.session.ready().await?;
        self.session.send(payload)
    }

    /// Sends the reply to a request, waiting while the peer does not keep up.
    ///
    /// # Errors
    /// As [`send`](Self::send); and [`FrameSendError::NoReplyExpected`] to a message that expects none, or to a reply.
    pub async fn reply(&self, request: &Message, payload: &[u8]) -> Result<(), FrameSendError> {
        self.send_frame(reply_head(request.head)?, payload).await
    }

    /// Tells the peer that its request failed.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub async fn reply_error(&self, request: &Message, payload: &[u8]) -> Result<(), FrameSendError> {
        self.send_frame(error_reply_head(request.head)?, payload).await
    }

    /// Sends a frame with this head, waiting while the peer does not keep up.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_frame(&self, head: FrameHead, payload: &[u8]) -> Result<(), FrameSendError> {
        self.session.ready().await?;
        self.session.send_frame(head, payload)
    }

    /// The session.
    pub const fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.session.close();
    }
}

#[derive(Debug, Default)]
struct Inbox {
    /// With what each holds.
    messages: VecDeque<(Message, usize)>,
    /// What the messages hold.
    bytes: usize,
    /// For these bytes; made when they are more than a little.
    charge: Option<Charge>,
    flow: Flow,
    reader: Option<Waker>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Flow {
    #[default]
    Receiving,
    /// The inbox is full: the peer is held back until the task has taken half of it.
    HeldBack,
    /// Nothing more comes, also from a peer that goes on sending: what is left can be taken.
    Ended,
}

impl Inbox {
    const UNCHARGED_MAX: usize = 4 * 1024;

    fn push(&mut self, frame: &Frame<'_>, session: &Session) {
        let held = frame.kept_len() + size_of::<Message>();
        self.bytes += held;
        self.messages.push_back((frame.to_message(), held));
        if let Some(charge) = &mut self.charge {
            charge.set(self.bytes);
        } else if self.bytes > Self::UNCHARGED_MAX {
            self.charge = Some(session.connection().charge(MemoryKind::Inbox, self.bytes));
        }
        if self.is_full() && self.flow == Flow::Receiving {
            self.flow = Flow::HeldBack;
            session.pause_receive();
        }
        self.wake();
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES_MAX || self.bytes >= BYTES_MAX
    }

    fn poll(&mut self, session: &Session, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let Some((message, held)) = self.messages.pop_front() else {
            if self.flow == Flow::Ended {
                return Poll::Ready(None);
            }
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        self.bytes -= held;
        if let Some(charge) = &mut self.charge {
            charge.set(self.bytes);
        }
        if self.flow == Flow::HeldBack
            && self.messages.len() <= MESSAGES_MAX / 2
            && self.bytes <= BYTES_MAX / 2
        {
            self.flow = Flow::Receiving;
            session.resume_receive();
        }
        Poll::Ready(Some(message))
    }

    fn end(&mut self) {
        self.flow = Flow::Ended;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

/// Feeds the task of one session.
#[derive(Debug)]
pub struct TaskHandler<F> {
    serve: F,
    inbox: Rc<RefCell<Inbox>>,
}

impl<F> TaskHandler<F> {
    pub(super) fn new(serve: F) -> Self {
        Self { serve, inbox: Rc::default() }
    }
}

impl<F, Fut> Handler for TaskHandler<F>
where
    F: Fn(SessionStream) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    fn on_open(&mut self, session: &Session) {
        let stream = SessionStream { session: session.clone(), inbox: self.inbox.clone() };
        drop(spawn_local((self.serve)(stream)));
    }

    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        self.inbox.borrow_mut().push(&frame, session);
    }

    fn on_read_closed(&mut self, _: &Session) {
        self.inbox.borrow_mut().end();
    }

    fn on_shutdown(&mut self, session: &Session) {
        session.pause_receive();
        self.inbox.borrow_mut().end();
    }

    fn on_close(&mut self, _: &Session, _: &CloseReason) {
        self.inbox.borrow_mut().end();
    }
}
