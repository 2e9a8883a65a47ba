//! Signals of the process, for tasks.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use signal_hook::SigId;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use crate::stream::UnixStream;

/// A signal that a task can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// `SIGINT`: Ctrl-C.
    Interrupt,
    /// `SIGTERM`: the polite request to end.
    Terminate,
    /// `SIGHUP`: the terminal is gone; for a service, often a request to read its settings again.
    Hangup,
    /// `SIGQUIT`: Ctrl-\.
    Quit,
    /// `SIGUSR1`.
    User1,
    /// `SIGUSR2`.
    User2,
    /// `SIGCHLD`: a child process has changed its state.
    Child,
    /// `SIGWINCH`: the terminal has another size.
    WindowChange,
}

impl Signal {
    const fn number(self) -> i32 {
        match self {
            Self::Interrupt => SIGINT,
            Self::Terminate => SIGTERM,
            Self::Hangup => SIGHUP,
            Self::Quit => SIGQUIT,
            Self::User1 => SIGUSR1,
            Self::User2 => SIGUSR2,
            Self::Child => SIGCHLD,
            Self::WindowChange => SIGWINCH,
        }
    }
}

/// Receives some of the process's signals on the current worker.
///
/// From when it is made the system's own action (for most of them, to end the process) is not taken any more, and not
/// after it was dropped either: then the signal does nothing, unless somebody else receives it. Several receivers of one
/// signal each get it. Signals that come faster than they are taken count as one, as everywhere.
///
/// ```no_run
/// use corewire_runtime::{Signal, Signals};
///
/// corewire_runtime::run(async {
///     let mut signals = Signals::new([Signal::Interrupt, Signal::Terminate, Signal::Hangup])?;
///     loop {
///         match signals.recv().await? {
///             Signal::Hangup => println!("reading the settings again"),
///             signal => break println!("{signal:?}: shutting down"),
///         }
///     }
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Signals {
    /// A byte comes for each signal, behind its flag.
    pipe: UnixStream,
    flags: Vec<(Signal, Arc<AtomicBool>)>,
    registered: Registered,
}

impl Signals {
    /// Receives these signals from now on. It takes two descriptors, and one for each signal.
    ///
    /// # Errors
    /// The process has no descriptors left.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn new(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let (read, write) = StdStream::pair()?;
        write.set_nonblocking(true)?;
        let pipe = UnixStream::from_std(read)?;
        let mut this = Self { pipe, flags: Vec::new(), registered: Registered(Vec::new()) };
        for signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            // In this order: who finds the byte finds the flag.
            this.registered.0.push(signal_hook::flag::register(signal.number(), flag.clone())?);
            this.registered
                .0
                .push(signal_hook::low_level::pipe::register(signal.number(), write.try_clone()?)?);
            this.flags.push((signal, flag));
        }
        Ok(this)
    }

    /// Waits for the next signal. Dropping the future loses none.
    ///
    /// # Errors
    /// The worker is shutting down.
    pub async fn recv(&mut self) -> io::Result<Signal> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// [`recv`](Self::recv) for those who poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Signal>> {
        loop {
            let came = self.flags.iter().find(|(_, flag)| flag.swap(false, Ordering::AcqRel));
            if let Some((signal, _)) = came {
                return Poll::Ready(Ok(*signal));
            }
            if ready!(self.pipe.poll_read_slice(context, &mut [0; 64]))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.flags.iter().map(|(signal, _)| signal)).finish()
    }
}

/// What the process does when a signal comes, until this is dropped.
struct Registered(Vec<SigId>);

impl Drop for Registered {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
