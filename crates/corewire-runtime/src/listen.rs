//! Listening in push style.

use std::io;
use std::rc::Rc;

use corewire_driver::{Socket, Token};

use crate::worker::Core;

/// A listener of the current worker that calls a closure for each connection. Dropping it closes it.
///
/// When descriptors or memory run out it waits for 100 ms and tries again; connections wait in the backlog
/// meanwhile. When descriptors are short for more than 1 s, those that wait are closed and counted
/// ([`WorkerStats::refused`](crate::WorkerStats)), so that they need not wait for an answer. The sockets come non-blocking; give them to [`Connection::open`](crate::Connection::open), here or on
/// another worker.
pub struct Listener {
    core: Rc<Core>,
    token: Token,
}

/// What a listener does after a connection was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterAccept {
    /// Accept the next one.
    Continue,
    /// Accept nothing until [`Listener::resume`]. A few more may come that were accepted already.
    Pause,
}

impl Listener {
    /// Accepts from a listening, non-blocking socket.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn start(socket: Socket, accept: impl FnMut(Socket) -> AfterAccept + 'static) -> io::Result<Self> {
        let core = Core::current_or_panic("Listener::start");
        let token = core.listen(socket, accept)?;
        Ok(Self { core, token })
    }

    /// Accepts nothing until [`resume`](Self::resume); connections wait in the backlog.
    pub fn pause(&self) {
        self.core.pause_listener(self.token);
    }

    /// Accepts again.
    pub fn resume(&self) {
        self.core.resume_listener(self.token);
    }

    /// Looks at the socket, for its address.
    pub fn with_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.core.lend_socket(self.token, look)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.core.close_listener(self.token);
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("token", &self.token).finish_non_exhaustive()
    }
}
