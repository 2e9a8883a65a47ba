//! Descriptors of the user's own, for tasks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use corewire_driver::{Interest, Token};

use crate::conn::{WaiterKey, Waiters};
use crate::task_quota::poll_with_quota;
use crate::worker::Core;

/// Tells tasks of the current worker when a descriptor of their own can be read or written: a pipe, a terminal, an eventfd,
/// a device, the socket of a C library.
///
/// It watches a duplicate of the descriptor, which it closes when it is dropped; reading and writing are the user's own
/// calls, on the original, which should be non-blocking. Regular files are refused: they are always ready, and block all the
/// same; read those by [`spawn_blocking`](crate::spawn_blocking).
///
/// ```
/// use std::io::{Read, Write};
/// use corewire_runtime::FdWatch;
///
/// corewire_runtime::run(async {
///     let (mut reader, mut writer) = std::io::pipe()?;
///     let watch = FdWatch::new(&reader)?;
///     writer.write_all(b"hello")?;
///     watch.readable().await?;
///     let mut buffer = [0; 16];
///     assert_eq!(reader.read(&mut buffer)?, 5);
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FdWatch {
    core: Rc<Core>,
    token: Token,
    waiting: Rc<RefCell<Waiting>>,
}

/// Who waits for a descriptor.
#[derive(Default)]
struct Waiting {
    readers: Waiters,
    writers: Waiters,
}

/// The descriptors that a worker watches, by the numbers of their tokens.
#[derive(Default)]
pub(crate) struct Watches(RefCell<HashMap<usize, Rc<RefCell<Waiting>>>>);

impl FdWatch {
    /// Watches a descriptor, which stays the caller's.
    ///
    /// # Errors
    /// It is a regular file or a directory (`InvalidInput`), the process has no descriptor left, or the kernel will not
    /// watch it.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn new(descriptor: impl AsFd) -> io::Result<Self> {
        let core = Core::current_or_panic("FdWatch");
        let token = core.driver.borrow_mut().add_watched(descriptor.as_fd().try_clone_to_owned()?)?;
        let waiting = Rc::<RefCell<Waiting>>::default();
        core.watches.0.borrow_mut().insert(token.index(), waiting.clone());
        Ok(Self { core, token, waiting })
    }

    /// Waits until reading would not block: there is something, an end or an error. Several tasks may wait. Dropping the
    /// future is safe at any point.
    ///
    /// That it was so does not mean that it still is: another task may have read meanwhile.
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::Readable).await
    }

    /// Waits until writing would not block; otherwise as [`readable`](Self::readable).
    ///
    /// # Errors
    /// The kernel will not watch it.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::Writable).await
    }

    /// Makes a non-blocking call that reads, again whenever it says `WouldBlock` and the descriptor has become readable.
    /// Dropped, it has made no call that succeeded.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn read_with<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        self.call_when(Interest::Readable, call).await
    }

    /// The same for a call that writes.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn write_with<R>(&self, call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        self.call_when(Interest::Writable, call).await
    }

    async fn call_when<R>(
        &self,
        interest: Interest,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            // One that is ready without end lets others have their turn.
            let made = poll_fn(|context| poll_with_quota(context, |_| Poll::Ready(call()))).await;
            match made {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready(interest).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                made => return made,
            }
        }
    }

    async fn ready(&self, interest: Interest) -> io::Result<()> {
        let mut waits = Waits { watch: self, interest, key: None };
        poll_fn(|context| waits.poll(context)).await
    }
}

impl Drop for FdWatch {
    fn drop(&mut self) {
        self.core.watches.0.borrow_mut().remove(&self.token.index());
        let closed = self.core.driver.borrow_mut().close(self.token);
        drop(closed);
    }
}

impl fmt::Debug for FdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FdWatch").field("token", &self.token).finish_non_exhaustive()
    }
}

/// One wait; takes its waker back when it is dropped.
struct Waits<'a> {
    watch: &'a FdWatch,
    interest: Interest,
    key: Option<WaiterKey>,
}

impl Waits<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let told = match self.key {
            None => {
                self.watch.core.driver.borrow_mut().watch(self.watch.token, self.interest)?;
                false
            }
            Some(key) => self.with_waiters(|waiters| waiters.was_woken(key)),
        };
        if told {
            ready!(poll_with_quota(context, |_| Poll::Ready(())));
            self.key = None;
            return Poll::Ready(Ok(()));
        }
        let key = self.key;
        self.key = Some(self.with_waiters(|waiters| waiters.add(key, context.waker())));
        Poll::Pending
    }

    fn with_waiters<R>(&self, call: impl FnOnce(&mut Waiters) -> R) -> R {
        let mut waiting = self.watch.waiting.borrow_mut();
        match self.interest {
            Interest::Readable => call(&mut waiting.readers),
            Interest::Writable => call(&mut waiting.writers),
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.with_waiters(|waiters| waiters.remove(key));
            drop(waker);
        }
    }
}

impl Core {
    /// A watched descriptor is ready: those who wait are woken at the end of this step.
    pub(crate) fn watched_ready(&self, token: Token, readable: bool, writable: bool) {
        let waiting = self.watches.0.borrow().get(&token.index()).cloned();
        let Some(waiting) = waiting else { return };
        let (mut waiting, mut woken) = (waiting.borrow_mut(), self.senders.woken.borrow_mut());
        if readable {
            waiting.readers.take_into(&mut woken);
        }
        if writable {
            waiting.writers.take_into(&mut woken);
        }
    }
}
