//! Listening from a task.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use corewire_driver::Socket;
use corewire_driver::net::{ListenOptions, StreamOptions, listen_tcp, listen_unix};

use super::{TcpStream, UnixStream};
use crate::listen::{AfterAccept, Listener};
use crate::task_quota::poll_with_quota;

/// Accepted connections that wait for their task at which the listener accepts no more.
const WAITING_MAX: usize = 1024;

/// Accepts TCP connections.
#[derive(Debug)]
pub struct TcpListener {
    queue: Queue,
    options: StreamOptions,
}

impl TcpListener {
    /// Listens with the default options; port 0 lets the system choose.
    ///
    /// # Errors
    /// What the kernel says: `AddrInUse`, `PermissionDenied`, …
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(address, &ListenOptions::default(), StreamOptions::default())
    }

    /// Listens with options, and with those that accepted connections get.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(
        address: SocketAddr,
        options: &ListenOptions,
        stream_options: StreamOptions,
    ) -> io::Result<Self> {
        Ok(Self { queue: Queue::start(listen_tcp(address, options)?)?, options: stream_options })
    }

    /// Accepts from a listening socket of the standard library, which becomes non-blocking.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        let queue = Queue::start(Socket::from_fd(listener.into())?)?;
        Ok(Self { queue, options: StreamOptions::default() })
    }

    /// The next connection and where it comes from. Dropping the future loses none.
    ///
    /// # Errors
    /// The connection was lost before it could be used; the listener goes on.
    pub async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let socket = poll_fn(|context| self.queue.poll(context)).await;
        self.options.apply(&socket)?;
        let peer = socket.peer_addr()?.as_socket().ok_or(io::ErrorKind::NotConnected)?;
        Ok((TcpStream::from_socket(socket)?, peer))
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address =
            self.queue.listener.with_socket(Socket::local_addr).ok_or(io::ErrorKind::NotConnected)??;
        address.as_socket().ok_or_else(|| io::Error::other("the socket has no internet address"))
    }
}

/// Accepts Unix-domain stream connections.
#[derive(Debug)]
pub struct UnixListener {
    queue: Queue,
}

impl UnixListener {
    /// Listens on a path, which must not exist; one that begins with `@` is abstract (Linux). The file stays when
    /// the listener is dropped.
    ///
    /// # Errors
    /// What the kernel says: `AddrInUse` when the path exists, …
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { queue: Queue::start(listen_unix(path.as_ref(), &ListenOptions::default())?)? })
    }

    /// Accepts from a listening socket of the standard library, which becomes non-blocking.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        Ok(Self { queue: Queue::start(Socket::from_fd(listener.into())?)? })
    }

    /// The next connection. Dropping the future loses none.
    ///
    /// # Errors
    /// The connection was lost before it could be used; the listener goes on.
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        let socket = poll_fn(|context| self.queue.poll(context)).await;
        UnixStream::from_socket(socket)
    }
}

#[derive(Debug)]
struct Queue {
    listener: Listener,
    waiting: Rc<RefCell<Waiting<Socket>>>,
}

#[derive(Debug)]
struct Waiting<T> {
    sockets: VecDeque<T>,
    acceptor: Option<Waker>,
    paused: bool,
}

impl Queue {
    fn start(socket: Socket) -> io::Result<Self> {
        let waiting = Rc::new(RefCell::new(Waiting::default()));
        let filled = waiting.clone();
        let listener = Listener::start(socket, move |socket| filled.borrow_mut().push(socket))?;
        Ok(Self { listener, waiting })
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Socket> {
        poll_with_quota(context, |context| {
            let mut waiting = self.waiting.borrow_mut();
            let Some((socket, resume)) = waiting.pop() else {
                waiting.acceptor = Some(context.waker().clone());
                return Poll::Pending;
            };
            if resume {
                self.listener.resume();
            }
            Poll::Ready(socket)
        })
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { sockets: VecDeque::new(), acceptor: None, paused: false }
    }
}

impl<T> Waiting<T> {
    fn push(&mut self, socket: T) -> AfterAccept {
        self.sockets.push_back(socket);
        if let Some(waker) = self.acceptor.take() {
            waker.wake();
        }
        // A few more may come after the pause; only `pop` ends it.
        self.paused |= self.sockets.len() >= WAITING_MAX;
        if self.paused { AfterAccept::Pause } else { AfterAccept::Continue }
    }

    /// The next one, and whether the listener is to go on now.
    fn pop(&mut self) -> Option<(T, bool)> {
        let socket = self.sockets.pop_front()?;
        let resume = self.sockets.len() <= WAITING_MAX / 2 && std::mem::take(&mut self.paused);
        Some((socket, resume))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_comes_after_the_pause_does_not_make_it_last_for_ever() {
        let mut waiting = Waiting::default();
        for count in 1..=WAITING_MAX {
            let expected = if count < WAITING_MAX { AfterAccept::Continue } else { AfterAccept::Pause };
            assert_eq!(waiting.push(()), expected);
        }
        assert!(matches!(waiting.pop(), Some((_, false))));
        assert!(matches!(waiting.pop(), Some((_, false))));
        assert_eq!(waiting.push(()), AfterAccept::Pause, "the kernel had accepted it already");
        let resumed = std::iter::from_fn(|| waiting.pop()).filter(|(_, resume)| *resume).count();
        assert_eq!(resumed, 1);
        assert_eq!(waiting.push(()), AfterAccept::Continue);
    }
}
