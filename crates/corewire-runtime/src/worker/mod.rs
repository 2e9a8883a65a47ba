//! One worker: a thread, its loop, its driver and its connections.

mod accepting;
mod datagrams;
mod deadlines;
mod directory;
mod finishing;
mod lifecycle;
mod lingering;
mod memory;
mod quota;
mod receiving;
mod senders;
mod sending;
mod tasks;
#[cfg(test)]
mod tests;
mod tick;
mod timers;
mod tls;
mod turns;

use self::finishing::Life;
pub(crate) use self::quota::Meter;
pub(crate) use self::timers::TimerAction;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_task::Runnable;
use corewire_driver::{Driver, DriverConfig, DriverError, Socket, Token};

use self::accepting::Listeners;
use self::lingering::Lingering;
use self::memory::Memory;
use self::senders::Senders;
use self::tasks::Tasks;
use self::timers::Timers;
use self::tls::Handshakes;
use self::turns::Turns;
use crate::blocking::Pools;
use crate::conn::{ConnId, Connections};
use crate::error::SpawnError;
use crate::mailbox::Mailbox;
use crate::memory::{Account, SharedBudget};
use crate::stats::{Counters, PublishedCounters};
use crate::task::TaskKey;
use crate::transport::tls::Scratch;
use crate::udp::UdpSockets;
use crate::watch::Watches;

/// Names a worker of this process, whichever runtime it belongs to; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkerId(u64);

impl WorkerId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

thread_local! {
    /// 0: this thread is no worker. Apart from `CURRENT` because it is asked on the path of each message.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// The worker that the calling code runs on, if it is one.
#[inline]
pub fn current_worker() -> Option<WorkerId> {
    let id = CURRENT_ID.get();
    (id != 0).then_some(WorkerId(id))
}

/// Has `call` run at the end of the current worker's turn, after its tasks and timers and before what its connections
/// have queued is sent. For protocols that gather what they write, so that they hand it over once a turn. It does a piece
/// of that, such as one connection's, and says whether there is more: it runs again then, in this turn as long as its
/// budget lasts, else in the next.
///
/// False outside of a worker, where nothing is ever flushed.
pub fn before_flush(call: fn() -> bool) -> bool {
    let add = |core: &Rc<Core>| core.senders.before_flush.borrow_mut().push_back(call);
    Core::with_current(|core| core.map(add)).is_some()
}

/// What reaches a worker from outside.
pub(crate) enum Command {
    /// A task of this worker that was woken elsewhere.
    Run(Runnable<TaskKey>),
    /// Anything else.
    Job(Box<dyn FnOnce() + Send>),
    /// Stop the loop, and be done with what is left by then.
    Stop(Option<Instant>),
}

/// The side of a worker that other threads see.
pub(crate) struct WorkerShared {
    pub(crate) id: WorkerId,
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) counters: PublishedCounters,
}

/// A worker's state: each part in a file of its own, behind cells of its own, none of which is held while user code runs.
pub(crate) struct Core {
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) driver: RefCell<Driver>,
    pub(crate) conns: Connections,
    pub(crate) senders: Senders,
    pub(crate) turns: Turns,
    pub(crate) tasks: Tasks,
    pub(crate) timers: Timers,
    pub(crate) udp: UdpSockets,
    pub(crate) memory: Memory,
    handshakes: Handshakes,
    /// What connections over TLS share.
    pub(crate) tls: Scratch,
    pub(crate) watches: Watches,
    listeners: Listeners,
    lingering: Lingering,
    pub(crate) counters: Counters,
    pub(crate) life: Cell<Life>,
}

impl Core {
    /// Makes the calling thread a worker until the guard is dropped.
    pub(crate) fn install(
        config: &DriverConfig,
        pools: Arc<Pools>,
        memory: Arc<SharedBudget>,
    ) -> Result<Installed, DriverError> {
        let driver = Driver::new(config)?;
        let waker = driver.waker();
        let wake = move || {
            if let Err(error) = waker.wake() {
                tracing::error!(%error, "a worker cannot be woken");
            }
        };
        let shared = Arc::new(WorkerShared {
            id: WorkerId::next(),
            mailbox: Mailbox::new(wake),
            counters: PublishedCounters::default(),
        });
        let core = Rc::new(Self {
            shared,
            pools,
            driver: RefCell::new(driver),
            conns: Connections::default(),
            senders: Senders::new(),
            turns: Turns::new(),
            tasks: Tasks::default(),
            timers: Timers::new(),
            udp: UdpSockets::default(),
            memory: Memory::new(memory),
            handshakes: Handshakes::default(),
            tls: Scratch::new(),
            watches: Watches::default(),
            listeners: Listeners::default(),
            lingering: Lingering::default(),
            counters: Counters::default(),
            life: Cell::new(Life::Running),
        });
        CURRENT_ID.set(core.shared.id.0);
        CURRENT.set(Some(core.clone()));
        directory::add(&core.shared);
        Ok(Installed { core })
    }

    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn current_or_panic(what: &str) -> Rc<Self> {
        Self::current().unwrap_or_else(|| {
            panic!("{what} needs a worker: call it inside corewire's run, a task or a handler")
        })
    }

    /// Calls with the current worker without counting a reference.
    #[inline]
    pub(crate) fn with_current<R>(call: impl FnOnce(Option<&Rc<Self>>) -> R) -> R {
        CURRENT.with_borrow(|current| call(current.as_ref()))
    }

    #[inline]
    pub(crate) fn id(&self) -> WorkerId {
        self.shared.id
    }

    /// The account of a connection; one of its own for what is no longer, or not, in the table.
    pub(crate) fn account(&self, id: ConnId) -> Rc<Account> {
        let account = self.conns.with(id, |conn| self.memory.account(conn).clone());
        account.unwrap_or_else(|| Account::gone(id, self.memory.of_worker.budget.clone()))
    }

    /// For code of this crate, which leaves the driver alone meanwhile.
    #[inline]
    pub(crate) fn with_socket<R>(&self, token: Token, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.driver.borrow().socket(token).map(look)
    }

    /// For code of others, which may use what the driver is needed for: they get a second handle on the socket.
    pub(crate) fn lend_socket<R>(&self, token: Token, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        let socket = self.with_socket(token, Socket::try_clone)?;
        match socket {
            Ok(socket) => Some(look(&socket)),
            Err(error) => {
                tracing::warn!(%error, "a socket cannot be looked at: descriptors are short");
                None
            }
        }
    }
}

/// Keeps the calling thread a worker; on drop, ends its tasks and connections.
pub(crate) struct Installed {
    pub(crate) core: Rc<Core>,
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.core.shutdown();
        directory::remove(self.core.id());
        CURRENT_ID.set(0);
        CURRENT.set(None);
    }
}

/// Reaches one worker from anywhere.
#[derive(Clone)]
pub struct WorkerHandle {
    pub(crate) shared: Arc<WorkerShared>,
}

impl WorkerHandle {
    /// The worker that the calling code runs on, if it is one.
    pub fn current() -> Option<Self> {
        Core::with_current(|core| core.map(|core| Self { shared: core.shared.clone() }))
    }

    /// The worker of this name, from any thread; `None` once it has stopped. For what keeps a name, which costs nothing to
    /// copy, where a handle is seldom needed: it is looked up under a lock.
    pub fn of(worker: WorkerId) -> Option<Self> {
        directory::find(worker).map(|shared| Self { shared })
    }

    /// Names the worker.
    pub fn id(&self) -> WorkerId {
        self.shared.id
    }

    /// Runs a closure on the worker, between its tasks. Closures of one sender run in the order in which they came.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn run(&self, call: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
        self.shared.mailbox.push(Command::Job(Box::new(call))).map_err(|_| SpawnError::Stopped)
    }
}

impl std::fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkerHandle").field(&self.shared.id).finish()
    }
}
