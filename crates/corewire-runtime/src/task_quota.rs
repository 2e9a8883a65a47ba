//! What a task may take at one poll before others have their turn.

use std::cell::Cell;
use std::task::{Context, Poll};

/// Messages, reads, datagrams or accepted connections that a task is given in one poll.
const TASK_QUOTA: u32 = 128;

/// Outside of tasks.
const UNLIMITED: u32 = u32::MAX;

thread_local! {
    /// Of the task that is being polled.
    static LEFT: Cell<u32> = const { Cell::new(UNLIMITED) };
}

/// Polls a future as one with a quota of its own, as each task of a worker is polled. For code that polls futures of
/// others by itself, outside of a task: see [`poll_with_quota`].
#[inline]
pub fn with_task_quota<R>(poll: impl FnOnce() -> R) -> R {
    /// Puts back what was left, after a panic too.
    struct Restore(u32);

    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }

    let restore = Restore(LEFT.replace(TASK_QUOTA));
    let polled = poll();
    drop(restore);
    polled
}

/// Polls what may be ready without end, so that the task that takes from it lets others have their turn: once the task
/// has been given 128 things in one poll, it is woken again and gets `Poll::Pending` instead of the next one. `poll` is
/// not called then.
///
/// All that a task awaits of this crate (reads, datagrams, accepted connections, timers) is polled so. Futures of others
/// that take from a queue without waiting should be too. Outside of a task nothing is counted.
///
/// ```
/// use std::collections::VecDeque;
/// use std::future::poll_fn;
/// use std::task::Poll;
///
/// use corewire_runtime::poll_with_quota;
///
/// /// The next of many things that are all there.
/// async fn next(queue: &mut VecDeque<u32>) -> Option<u32> {
///     poll_fn(|context| poll_with_quota(context, |_| Poll::Ready(queue.pop_front()))).await
/// }
/// ```
#[inline]
pub fn poll_with_quota<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let left = LEFT.get();
    if left == 0 {
        return wait(context);
    }
    let polled = poll(context);
    if left != UNLIMITED && polled.is_ready() {
        LEFT.set(left - 1);
    }
    polled
}

#[cold]
fn wait<T>(context: &Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn given(context: &mut Context<'_>, most: usize) -> usize {
        (0..most).take_while(|_| poll_with_quota(context, |_| Poll::Ready(())).is_ready()).count()
    }

    #[test]
    fn a_task_is_given_its_quota_and_woken_for_more() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let context = &mut Context::from_waker(&waker);
        with_task_quota(|| {
            // What is not ready costs nothing.
            assert!((0..1000).all(|_| poll_with_quota(context, |_| Poll::<()>::Pending).is_pending()));
            assert_eq!(given(context, 1000), 128);
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
            // Another task that is polled from within has its own.
            assert_eq!(with_task_quota(|| given(context, 1000)), 128);
            assert_eq!(given(context, 1000), 0);
        });
        assert_eq!(with_task_quota(|| given(context, 1000)), 128, "each poll begins with a new quota");
    }

    #[test]
    fn outside_of_a_task_nothing_is_counted() {
        assert_eq!(given(&mut Context::from_waker(Waker::noop()), 1000), 1000);
    }
}
