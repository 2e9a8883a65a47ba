//! Values that may travel between threads and are touched on one.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// 0: this thread has bound nothing yet.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A value that belongs to the thread which made it, whatever that is: it may be carried to other threads, and is only to be
/// had on its own. Handles that are `Send` point so at what is local, and look nothing up where they are at home.
///
/// To be sent home before it is dropped: on another thread the value is leaked.
///
/// ```
/// use std::rc::Rc;
/// use corewire_driver::ThreadBound;
///
/// let bound = ThreadBound::new(Rc::new(7));
/// assert_eq!(bound.get().map(|value| **value), Some(7));
/// let bound = std::thread::spawn(move || {
///     assert!(bound.get().is_none());
///     bound
/// });
/// assert!(bound.join().unwrap().get().is_some());
/// ```
pub struct ThreadBound<T: 'static> {
    value: ManuallyDrop<T>,
    thread: NonZeroU64,
}

// SAFETY: the value is reached by `get` and dropped by `drop` only, and both compare the thread first. No two threads of a
// process ever have the same number.
unsafe impl<T> Send for ThreadBound<T> {}
// SAFETY: as above; a shared reference gives another thread nothing of the value.
unsafe impl<T> Sync for ThreadBound<T> {}

impl<T> ThreadBound<T> {
    /// Binds a value to the calling thread.
    #[inline]
    pub fn new(value: T) -> Self {
        let thread = NonZeroU64::new(THREAD.get()).unwrap_or_else(number);
        Self { value: ManuallyDrop::new(value), thread }
    }

    /// The value, on its thread; `None` on others.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.is_here().then_some(&self.value)
    }

    /// The calling thread is that of the value.
    #[inline]
    pub fn is_here(&self) -> bool {
        THREAD.get() == self.thread.get()
    }
}

/// Gives the calling thread its number.
#[cold]
fn number() -> NonZeroU64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    THREAD.set(number);
    NonZeroU64::new(number).unwrap_or_else(|| unreachable!("2^64 threads are not made"))
}

impl<T> Drop for ThreadBound<T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: this is its thread, and nothing uses the value after it.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

impl<T> fmt::Debug for ThreadBound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBound").field("is_here", &self.is_here()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_value_is_dropped_on_its_thread_and_leaked_on_others() {
        let value = Rc::new(());
        let [stays, goes, comes_back] = [(); 3].map(|()| ThreadBound::new(value.clone()));
        let comes_back = std::thread::spawn(move || {
            // That of another value with a number of its own.
            assert!(ThreadBound::new(1).is_here() && goes.get().is_none());
            drop(goes);
            comes_back
        });
        drop((stays, comes_back.join()));
        assert_eq!(Rc::strong_count(&value), 2, "the one that was dropped elsewhere");
    }
}
