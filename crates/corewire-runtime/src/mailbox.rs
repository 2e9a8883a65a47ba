//! The way into a worker from other threads.

use std::fmt;
use std::sync::PoisonError;

// The primitives come by way of the parent module, so that the loom test can include this file with its own.
use super::mailbox_sync::{AtomicBool, AtomicU8, Mutex, MutexGuard, Ordering};

/// The owner runs, and looks into the mailbox before it parks.
const AWAKE: u8 = 0;
/// The owner blocks, or is about to: the next push has to wake it.
const PARKED: u8 = 1;
/// The owner blocks, and a push has taken it on itself to wake it.
const NOTIFIED: u8 = 2;

/// A queue from any thread to one owner, with a wake that is paid for only while the owner sleeps.
///
/// Any thread may [`push`](Self::push). The other methods belong to the owner, in this order:
///
/// 1. [`drain_into`](Self::drain_into) once per tick;
/// 2. [`prepare_park`](Self::prepare_park) just before it blocks, and block only if that says `true`; until then it
///    may look for mail ([`has_mail`](Self::has_mail)) as often as it likes;
/// 3. [`unpark`](Self::unpark) after it woke, whatever woke it;
/// 4. [`close`](Self::close) when it ends.
///
/// Mail of one sender comes out in the order in which it was pushed. `wake` is called by the pushing thread,
/// without a lock held, at most once per park; it must make the owner's blocking call return even if it runs
/// just before that call begins (an eventfd does). A wake may reach an owner that is awake again: it is spurious
/// then, and the owner must bear it.
///
/// The mailbox sets no limit to its length, since a wake-up that is refused would be a task that hangs: what is
/// sent through it has to be bounded where it starts.
///
/// ```
/// use corewire_runtime::mailbox::Mailbox;
/// use std::sync::Arc;
///
/// let owner = std::thread::current();
/// let mailbox = Arc::new(Mailbox::new(move || owner.unpark()));
///
/// let sender = Arc::clone(&mailbox);
/// let thread = std::thread::spawn(move || sender.push("hello"));
///
/// let mut mails = Vec::new();
/// while mails.is_empty() {
///     if mailbox.prepare_park() {
///         std::thread::park();
///     }
///     mailbox.unpark();
///     mailbox.drain_into(&mut mails);
/// }
/// assert_eq!(mails, ["hello"]);
/// # thread.join().unwrap().unwrap();
/// ```
pub struct Mailbox<T> {
    state: AtomicU8,
    /// Whether `queue` holds mail. Written under the lock; read without it, to skip the lock.
    has_mail: AtomicBool,
    queue: Mutex<Queue<T>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

struct Queue<T> {
    mails: Vec<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    /// An empty mailbox whose owner is awake. `wake` ends the owner's blocking call.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            state: AtomicU8::new(AWAKE),
            has_mail: AtomicBool::new(false),
            queue: Mutex::new(Queue { mails: Vec::new(), closed: false }),
            wake: Box::new(wake),
        }
    }

    /// Adds `mail`, and wakes the owner if it is parked and nobody has woken it yet.
    ///
    /// # Errors
    ///
    /// Hands `mail` back when the mailbox is closed.
    pub fn push(&self, mail: T) -> Result<(), T> {
        {
            let mut queue = self.lock();
            if queue.closed {
                return Err(mail);
            }
            queue.mails.push(mail);
            self.has_mail.store(true, Ordering::Release);
        }
        // The owner parks under the lock. If it did so before the push above, its PARKED is seen here; if it does
        // so after, it finds the mail. So there is no order in which the mail is missed by both.
        if self.state.load(Ordering::Acquire) == PARKED
            && self.state.compare_exchange(PARKED, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            (self.wake)();
        }
        Ok(())
    }

    /// Owner: moves all mail to the end of `out`, the oldest first.
    ///
    /// When `out` is empty the two buffers are swapped, so that an owner that always passes the same one
    /// allocates nothing once both have grown. An empty mailbox costs one load.
    pub fn drain_into(&self, out: &mut Vec<T>) {
        // A push that is not seen yet is seen by prepare_park, which looks under the lock.
        if self.has_mail() {
            self.take(&mut self.lock(), out);
        }
    }

    /// Owner: mail is there. One load: it may overlook what is just being pushed.
    pub fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Owner: announces that it is about to block. `true`: it may block. `false`: mail is there, it must not.
    pub fn prepare_park(&self) -> bool {
        let queue = self.lock();
        if !queue.mails.is_empty() {
            return false;
        }
        self.state.store(PARKED, Ordering::Release);
        true
    }

    /// Owner: announces that it is awake, so that pushes no longer call `wake`.
    pub fn unpark(&self) {
        self.state.store(AWAKE, Ordering::Release);
    }

    /// Its owner has ended: nothing is taken any more.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Owner: fails all later pushes, and moves what is queued to the end of `out`.
    pub fn close(&self, out: &mut Vec<T>) {
        let mut queue = self.lock();
        queue.closed = true;
        self.take(&mut queue, out);
    }

    fn take(&self, queue: &mut Queue<T>, out: &mut Vec<T>) {
        self.has_mail.store(false, Ordering::Release);
        if out.is_empty() {
            std::mem::swap(&mut queue.mails, out);
        } else {
            out.append(&mut queue.mails);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // No code of a user runs under the lock, so a poisoned queue is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state.load(Ordering::Relaxed) {
            AWAKE => "awake",
            PARKED => "parked",
            _ => "notified",
        };
        f.debug_struct("Mailbox")
            .field("state", &state)
            .field("has_mail", &self.has_mail.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::{Duration, Instant};

    fn counting() -> (Arc<AtomicUsize>, Mailbox<u32>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let mailbox = Mailbox::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        (wakes, mailbox)
    }

    #[test]
    fn push_to_an_awake_owner_does_not_wake() {
        let (wakes, mailbox) = counting();
        mailbox.push(1).unwrap();
        mailbox.push(2).unwrap();
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        let mut out = Vec::new();
        mailbox.drain_into(&mut out);
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn many_pushes_to_a_parked_owner_wake_once_per_park() {
        let (wakes, mailbox) = counting();
        let mut out = Vec::new();
        for round in 1..=3 {
            assert!(mailbox.prepare_park());
            mailbox.push(1).unwrap();
            mailbox.push(2).unwrap();
            assert_eq!(wakes.load(Ordering::Relaxed), round);
            mailbox.unpark();
            mailbox.push(3).unwrap();
            assert_eq!(wakes.load(Ordering::Relaxed), round);
            out.clear();
            mailbox.drain_into(&mut out);
            assert_eq!(out, [1, 2, 3]);
        }
    }

    #[test]
    fn owner_does_not_park_on_mail() {
        let (wakes, mailbox) = counting();
        mailbox.push(1).unwrap();
        assert!(!mailbox.prepare_park());
        mailbox.push(2).unwrap();
        assert_eq!(wakes.load(Ordering::Relaxed), 0, "a refused park leaves the owner awake");
    }

    #[test]
    fn drain_appends_to_what_is_there() {
        let (_, mailbox) = counting();
        mailbox.push(2).unwrap();
        let mut out = vec![1];
        mailbox.drain_into(&mut out);
        mailbox.drain_into(&mut out);
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn drain_reuses_the_two_buffers() {
        let (_, mailbox) = counting();
        let mut out = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..10 {
            for mail in 0..100 {
                mailbox.push(mail).unwrap();
            }
            out.clear();
            mailbox.drain_into(&mut out);
            assert_eq!(out.len(), 100);
            if round >= 2 {
                seen.insert((out.as_ptr() as usize, out.capacity()));
            }
        }
        assert_eq!(seen.len(), 2, "only the same two buffers are seen: {seen:?}");
    }

    #[test]
    fn close_hands_out_the_queue_and_fails_later_pushes() {
        let (wakes, mailbox) = counting();
        mailbox.push(1).unwrap();
        let mut out = Vec::new();
        mailbox.close(&mut out);
        assert_eq!(out, [1]);
        assert_eq!(mailbox.push(2), Err(2));
        assert!(mailbox.prepare_park());
        assert_eq!(mailbox.push(3), Err(3));
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_mail_is_lost_and_no_owner_sleeps_through_it() {
        const SENDERS: u32 = 4;
        const MAILS_PER_SENDER: u32 = 20_000;
        const LOST: Duration = Duration::from_secs(30);
        let owner = thread::current();
        let mailbox = Arc::new(Mailbox::new(move || owner.unpark()));
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || {
                    for number in 0..MAILS_PER_SENDER {
                        mailbox.push((sender, number)).unwrap();
                        // Lets the owner run dry and park again and again, instead of once.
                        if number % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();

        let mut next = [0; SENDERS as usize];
        let mut out = Vec::new();
        while next.iter().sum::<u32>() < SENDERS * MAILS_PER_SENDER {
            if mailbox.prepare_park() {
                let parked_at = Instant::now();
                thread::park_timeout(LOST);
                assert!(parked_at.elapsed() < LOST, "slept through a push");
            }
            mailbox.unpark();
            mailbox.drain_into(&mut out);
            for (sender, number) in out.drain(..) {
                assert_eq!(number, next[sender as usize], "mail of one sender keeps its order");
                next[sender as usize] += 1;
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    }
}
