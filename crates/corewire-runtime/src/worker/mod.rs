//! One worker: a thread, its loop, its driver and its connections.

mod accepting;
mod connections;
mod lingering;
mod memory;
mod quota;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;
mod tick;

pub(crate) use self::quota::Meter;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use async_task::Runnable;
use corewire_driver::{Driver, DriverConfig, DriverError, Socket, Token};
use slab::Slab;

use self::quota::Quota;
use crate::blocking::BlockingPool;
use crate::conn::{BufferPool, Conn, ConnId, ConnTable};
use crate::error::SpawnError;
use crate::mailbox::Mailbox;
use crate::memory::{Account, Budget, SharedBudget};
use crate::stats::{Counters, PublishedCounters};
use crate::task::{TaskEntry, TaskKey};
use crate::timer_wheel::{TimerKey, TimerWheel};
use crate::udp::UdpPart;

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

/// Has `call` run once at the end of the current worker's turn, after its tasks and timers and before what its
/// connections have queued is sent. For protocols that gather what they write, so that they hand it over once a turn.
///
/// False outside of a worker, where nothing is ever flushed.
pub fn before_flush(call: fn()) -> bool {
    Core::with_current(|core| core.map(|core| core.before_flush.borrow_mut().push(call))).is_some()
}

/// What reaches a worker from outside.
pub(crate) enum Command {
    /// A task of this worker that was woken elsewhere.
    Run(Runnable<TaskKey>),
    /// Anything else.
    Job(Box<dyn FnOnce() + Send>),
    /// Stop the loop.
    Stop,
}

/// The side of a worker that other threads see.
pub(crate) struct WorkerShared {
    pub(crate) id: WorkerId,
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) counters: PublishedCounters,
}

/// What a timer does when its time has come.
pub(crate) enum TimerAction {
    Wake(Waker),
    /// Look whether the peer has had its time.
    Deadlines(ConnId),
    /// The peer does not take the last bytes of a closing connection.
    CloseTimeout(ConnId),
    /// [`Protocol::on_timer`](crate::Protocol::on_timer).
    Protocol(ConnId),
    /// The peer of a closed connection has had its time to finish.
    Linger(Token),
    /// Memory is short: look again whether it is.
    WatchMemory,
    /// A listener that failed to accept tries again.
    ResumeAccept(Token),
    /// [`UdpProtocol::on_timer`](crate::udp::UdpProtocol::on_timer).
    Udp(Token),
}

/// A worker's state. Everything is behind a cell of its own, and no cell is held while user code runs.
pub(crate) struct Core {
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) blocking: Arc<BlockingPool>,
    pub(crate) driver: RefCell<Driver>,
    pub(crate) conns: RefCell<ConnTable>,
    pub(crate) pool: RefCell<BufferPool>,
    /// What is held for peers.
    pub(crate) memory: Rc<Budget>,
    pub(crate) memory_watch: memory::MemoryWatch,
    listeners: accepting::Listeners,
    pub(crate) dirty: RefCell<Vec<ConnId>>,
    /// What wants to be called before the next flush.
    before_flush: RefCell<Vec<fn()>>,
    /// Of the connection that is being called.
    pub(crate) quota: Quota,
    /// Connections that wait for their turn.
    pub(crate) turns: RefCell<VecDeque<ConnId>>,
    /// Connections whose input began to wait in this tick.
    unsettled: RefCell<Vec<ConnId>>,
    /// The connection that is being called has handed back what it did not decode.
    has_deferred: Cell<bool>,
    /// What it is called with lies in no receive buffer.
    serves_owned: Cell<bool>,
    /// Connections that are over and were not told yet.
    pub(crate) closed: RefCell<Vec<ConnId>>,
    /// The connection whose end is told now, and the bytes that it did not send.
    ending: Cell<Option<(ConnId, usize)>>,
    /// Wakers of those who have waited, to be woken when nothing is borrowed.
    pub(crate) woken: RefCell<Vec<Waker>>,
    /// Connections whose queue has fallen to its low-water mark.
    pub(crate) drained: RefCell<Vec<ConnId>>,
    pub(crate) lingering: RefCell<HashMap<Token, TimerKey>>,
    pub(crate) timers: RefCell<TimerWheel<TimerAction>>,
    pub(crate) ready: RefCell<VecDeque<Runnable<TaskKey>>>,
    /// The tasks that live, so that shutdown can drop them here, where they belong.
    pub(crate) tasks: RefCell<Slab<TaskEntry>>,
    /// Tasks that were aborted and whose futures may not be dropped yet.
    pub(crate) aborted: Cell<usize>,
    pub(crate) udp: UdpPart,
    pub(crate) counters: Counters,
    /// See [`Connection::task_round`](crate::Connection::task_round).
    pub(crate) task_round: Cell<u64>,
    pub(crate) stop: Cell<bool>,
    now_ms: Cell<u64>,
    epoch: Instant,
}

impl Core {
    /// Makes the calling thread a worker until the guard is dropped.
    pub(crate) fn install(
        config: &DriverConfig,
        blocking: Arc<BlockingPool>,
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
            blocking,
            driver: RefCell::new(driver),
            conns: RefCell::default(),
            pool: RefCell::new(BufferPool::new()),
            memory: Rc::new(Budget::new(memory)),
            memory_watch: memory::MemoryWatch::default(),
            listeners: accepting::Listeners::default(),
            dirty: RefCell::default(),
            before_flush: RefCell::default(),
            quota: Quota::new(),
            turns: RefCell::default(),
            unsettled: RefCell::default(),
            has_deferred: Cell::new(false),
            serves_owned: Cell::new(false),
            closed: RefCell::default(),
            ending: Cell::new(None),
            woken: RefCell::default(),
            drained: RefCell::default(),
            lingering: RefCell::default(),
            timers: RefCell::new(TimerWheel::new(0)),
            ready: RefCell::default(),
            tasks: RefCell::default(),
            aborted: Cell::new(0),
            udp: UdpPart::default(),
            counters: Counters::default(),
            task_round: Cell::new(0),
            stop: Cell::new(false),
            now_ms: Cell::new(0),
            epoch: corewire_driver::clock::now(),
        });
        CURRENT_ID.set(core.shared.id.0);
        CURRENT.set(Some(core.clone()));
        Ok(Installed { core })
    }

    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn current_or_panic(what: &str) -> Rc<Self> {
        Self::current().unwrap_or_else(|| {
            panic!("{what} needs a worker: call it inside corewire's block_on, a task or a handler")
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

    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    fn read_clock(&self) {
        self.now_ms.set(corewire_driver::clock::now().duration_since(self.epoch).as_millis() as u64);
    }

    pub(crate) fn instant_to_ms(&self, at: Instant) -> u64 {
        // Up, so that nothing fires before its time.
        let after = at.saturating_duration_since(self.epoch) + Duration::from_micros(999);
        u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.now_ms.get())
    }

    pub(crate) fn add_timer(&self, after: Duration, action: TimerAction) -> TimerKey {
        let deadline = self.instant_to_ms(crate::time::instant_after(after));
        self.timers.borrow_mut().insert(deadline, action)
    }

    pub(crate) fn cancel_timer(&self, key: TimerKey) -> Option<TimerAction> {
        self.timers.borrow_mut().cancel(key)
    }

    /// The account of a connection; one of its own for what is no longer, or not, in the table.
    pub(crate) fn account(&self, id: ConnId) -> Rc<Account> {
        let new = || Account::new(self.memory.clone());
        self.with_conn(id, |conn| conn.account.get_or_insert_with(new).clone()).unwrap_or_else(new)
    }

    pub(crate) fn with_conn<R>(&self, id: ConnId, look: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        self.conns.borrow_mut().get_mut(id).map(look)
    }

    /// As [`with_conn`](Self::with_conn), for the connection that has this socket for its own.
    pub(crate) fn with_conn_of<R>(&self, socket: Token, look: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        self.conns.borrow_mut().of_socket(socket).map(look)
    }

    /// The connection has neither ended nor been told to.
    #[inline]
    pub(crate) fn is_active(&self, id: ConnId) -> bool {
        self.with_conn(id, |conn| conn.state.is_active()).unwrap_or(false)
    }

    /// The socket that carries a connection.
    pub(crate) fn socket_of(&self, id: ConnId) -> Option<Token> {
        self.with_conn(id, |conn| conn.transport.socket())
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
