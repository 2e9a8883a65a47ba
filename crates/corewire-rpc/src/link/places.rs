//! Calls that wait for a place among those that the server takes at once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::task::{Context, Waker};

use super::{Link, State, with_link};

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Those that wait; first come, first woken. Each has a number, which no other of its worker ever has.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<(u64, Waker)>,
}

impl Queue {
    /// Waits, at the place that it has if there is one.
    fn wait(&mut self, number: Option<u64>, waker: &Waker) -> u64 {
        if let Some(index) = number.and_then(|number| self.find(number)) {
            self.waiting[index].1.clone_from(waker);
            return self.waiting[index].0;
        }
        let number = NEXT.replace(NEXT.get() + 1);
        self.waiting.push_back((number, waker.clone()));
        number
    }

    fn leave(&mut self, number: u64) {
        if let Some(index) = self.find(number) {
            self.waiting.remove(index);
        }
    }

    fn find(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    fn wake(&mut self, most: usize) {
        let count = most.min(self.waiting.len());
        self.waiting.drain(..count).for_each(|(_, waker)| waker.wake());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// A call's place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) link: usize,
    is_stream: bool,
    number: u64,
}

impl Place {
    /// The call waits no more. If it was woken to begin, another can.
    pub(crate) fn leave(self) {
        with_link(self.link, |link: &std::rc::Rc<Link>| {
            link.with(|state| state.queue(self.is_stream).leave(self.number));
        });
    }
}

impl State {
    /// Whether the server would refuse a call that is begun now: then the task is woken when it may be begun. `place` is
    /// where it waited until now.
    #[inline]
    pub(crate) fn wait_for_place(
        &mut self,
        is_stream: bool,
        place: Option<Place>,
        context: &Context<'_>,
    ) -> Option<Place> {
        let left = if is_stream { self.machine.streams_left() } else { self.machine.calls_left() };
        if left == 0 {
            let number = self.queue(is_stream).wait(place.map(|place| place.number), context.waker());
            return Some(Place { link: self.id, is_stream, number });
        }
        if let Some(place) = place {
            self.queue(is_stream).leave(place.number);
        }
        None
    }

    /// Wakes as many of the calls that wait as may be begun.
    #[cold]
    pub(super) fn wake_waiting_calls(&mut self) {
        let (calls, streams) = (self.machine.calls_left(), self.machine.streams_left());
        self.waiting_calls.wake(calls);
        self.waiting_streams.wake(streams);
    }

    /// Wakes all: there will be no more places.
    pub(super) fn give_up_places(&mut self) {
        self.waiting_calls.wake(usize::MAX);
        self.waiting_streams.wake(usize::MAX);
    }

    fn queue(&mut self, is_stream: bool) -> &mut Queue {
        if is_stream { &mut self.waiting_streams } else { &mut self.waiting_calls }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn those_that_have_waited_longest_are_woken_first() {
        let tasks = [(); 4].map(|()| Arc::new(Woken::default()));
        let wakers = tasks.each_ref().map(|task| Waker::from(task.clone()));
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        let mut queue = Queue::default();
        let numbers = wakers.each_ref().map(|waker| queue.wait(None, waker));
        assert_eq!(queue.wait(Some(numbers[0]), &wakers[0]), numbers[0], "it keeps its place");
        queue.leave(numbers[1]);
        queue.wake(2);
        assert_eq!(woken(), [true, false, true, false]);
        assert!(queue.wait(Some(numbers[0]), &wakers[0]) > numbers[3], "who was woken waits anew");
        queue.leave(numbers[2]);
        queue.wake(usize::MAX);
        assert_eq!(woken(), [true, false, true, true]);
        assert!(queue.is_empty());
    }
}
