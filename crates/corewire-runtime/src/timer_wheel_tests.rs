use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn expire_all<T>(wheel: &mut TimerWheel<T>, now_ms: u64) -> Vec<T> {
    std::iter::from_fn(|| wheel.expire(now_ms)).collect()
}

#[test]
fn timer_fires_at_its_millisecond_and_not_before() {
    for delay_ms in [1, 2, 63, 64, 65, 4_095, 4_096, 4_097, 262_144, DAY_MS, 1 << 40] {
        for start_ms in [0, 1, 63, 64, 4_095, 1_700_000_000_000] {
            let mut wheel = TimerWheel::new(start_ms);
            wheel.insert(start_ms + delay_ms, ());
            assert_eq!(wheel.expire(start_ms + delay_ms - 1), None, "{delay_ms} after {start_ms}");
            assert_eq!(wheel.expire(start_ms + delay_ms), Some(()), "{delay_ms} after {start_ms}");
            assert!(wheel.is_empty());
        }
    }
}

#[test]
fn deadline_in_the_past_fires_at_the_next_expire() {
    let mut wheel = TimerWheel::new(1_000);
    wheel.insert(1_000, "now");
    wheel.insert(5, "long ago");
    assert_eq!(wheel.next_expiry(), Some(5));
    assert_eq!(expire_all(&mut wheel, 1_000), ["now", "long ago"]);
    assert_eq!(wheel.next_expiry(), None);
}

#[test]
fn one_jump_of_days_fires_everything_in_order() {
    let mut wheel = TimerWheel::new(7);
    let deadlines = [DAY_MS * 3, 8, 500, DAY_MS, 499, 70_000, 8];
    for (number, deadline_ms) in deadlines.into_iter().enumerate() {
        wheel.insert(deadline_ms, (deadline_ms, number));
    }
    let mut expected: Vec<_> = deadlines.into_iter().enumerate().map(|(n, d)| (d, n)).collect();
    expected.sort_unstable();
    assert_eq!(expire_all(&mut wheel, DAY_MS * 10), expected);
}

#[test]
fn the_last_millisecond_of_all_is_a_deadline_too() {
    let mut wheel = TimerWheel::new(0);
    wheel.insert(u64::MAX, "end");
    assert_eq!(wheel.next_expiry(), Some(u64::MAX));
    assert_eq!(wheel.expire(u64::MAX - 1), None);
    assert_eq!(wheel.expire(u64::MAX), Some("end"));
    wheel.insert(u64::MAX, "past the end");
    assert_eq!(wheel.expire(u64::MAX), Some("past the end"));
}

#[test]
fn time_does_not_turn_back() {
    let mut wheel = TimerWheel::new(1_000);
    wheel.insert(1_010, ());
    assert_eq!(wheel.expire(10), None);
    assert_eq!(wheel.expire(1_009), None);
    assert_eq!(wheel.expire(1_010), Some(()));
}

#[test]
fn old_key_does_not_reach_the_timer_that_took_its_place() {
    let mut wheel = TimerWheel::new(0);
    let fired = wheel.insert(1, "fired");
    assert_eq!(wheel.expire(1), Some("fired"));
    let cancelled = wheel.insert(5, "cancelled");
    assert_eq!(wheel.cancel(fired), None);
    assert_eq!(wheel.cancel(cancelled), Some("cancelled"));
    assert_eq!(wheel.cancel(cancelled), None);
    wheel.insert(5, "third");
    assert_eq!(wheel.cancel(fired), None);
    assert_eq!(wheel.cancel(cancelled), None);
    assert_eq!(wheel.timers.len(), 1, "all three had the same place");
    assert_eq!(wheel.expire(5), Some("third"));
}

#[test]
fn insert_and_cancel_of_far_timers_keeps_memory() {
    let mut wheel = TimerWheel::new(0);
    for now_ms in 0..100_000 {
        let key = wheel.insert(now_ms + DAY_MS, now_ms);
        assert_eq!(wheel.cancel(key), Some(now_ms));
    }
    assert_eq!(wheel.timers.len(), 1);
    assert_eq!(wheel.next_expiry(), None);
}

#[test]
fn due_timer_can_be_cancelled_between_two_expires() {
    let mut wheel = TimerWheel::new(0);
    wheel.insert(10, 1);
    let second = wheel.insert(10, 2);
    wheel.insert(10, 3);
    assert_eq!(wheel.expire(10), Some(1));
    assert_eq!(wheel.cancel(second), Some(2));
    assert_eq!(wheel.expire(10), Some(3));
    assert_eq!(wheel.expire(10), None);
}

#[test]
fn timer_inserted_during_expiry_fires_in_its_turn() {
    let mut wheel = TimerWheel::new(0);
    wheel.insert(10, 10);
    wheel.insert(30, 30);
    assert_eq!(wheel.expire(100), Some(10));
    wheel.insert(20, 20);
    wheel.insert(101, 101);
    assert_eq!(expire_all(&mut wheel, 100), [20, 30]);
    assert_eq!(wheel.next_expiry(), Some(101));
}

#[test]
fn few_timers_are_expected_to_the_millisecond() {
    let mut wheel = TimerWheel::new(0);
    for number in 0..PEEK_MAX as u64 {
        wheel.insert(1_200_009 - number, ());
    }
    assert_eq!(wheel.next_expiry(), Some(1_200_002));
}

#[test]
fn idle_loop_over_many_far_timers_wakes_up_only_to_cascade() {
    let mut wheel = TimerWheel::new(0);
    for number in 0..1_000 {
        wheel.insert(20 * 60_000 + number, ());
    }
    let mut idle_wakes = 0;
    while let Some(next_ms) = wheel.next_expiry() {
        if expire_all(&mut wheel, next_ms).is_empty() {
            idle_wakes += 1;
        }
    }
    assert!(idle_wakes <= 20, "{idle_wakes} wakes without a timer");
}

#[derive(Clone, Debug)]
enum Step {
    Insert { delay_ms: i64 },
    Cancel { pick: prop::sample::Index },
    Advance { by_ms: u64, insert_after: usize, delay_ms: i64 },
    AdvanceToNextExpiry,
}

fn delay_ms() -> impl Strategy<Value = i64> {
    prop_oneof![-100..100i64, 0..5_000i64, 0..(1i64 << 45)]
}

fn step() -> impl Strategy<Value = Step> {
    let by_ms = prop_oneof![4 => 0..10u64, 3 => 0..5_000u64, 1 => 0..(1u64 << 40)];
    prop_oneof![
        4 => delay_ms().prop_map(|delay_ms| Step::Insert { delay_ms }),
        2 => any::<prop::sample::Index>().prop_map(|pick| Step::Cancel { pick }),
        3 => (by_ms, 0..4usize, delay_ms()).prop_map(|(by_ms, insert_after, delay_ms)| {
            Step::Advance { by_ms, insert_after, delay_ms }
        }),
        1 => Just(Step::AdvanceToNextExpiry),
    ]
}

/// The wheel beside an ordered map that says what it must do.
struct Pair {
    wheel: TimerWheel<usize>,
    /// The deadlines and numbers of the timers that are alive.
    model: BTreeSet<(u64, usize)>,
    /// By number: all timers there ever were.
    timers: Vec<Inserted>,
    now_ms: u64,
}

struct Inserted {
    deadline_ms: u64,
    key: TimerKey,
    /// Inserted when its deadline had passed: fires at the next chance, whatever the order.
    late: bool,
}

impl Pair {
    fn new(now_ms: u64) -> Self {
        Self { wheel: TimerWheel::new(now_ms), model: BTreeSet::new(), timers: Vec::new(), now_ms }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Insert { delay_ms } => self.insert(delay_ms),
            Step::Cancel { pick } => self.cancel(pick),
            Step::Advance { by_ms, insert_after, delay_ms } => {
                self.advance(self.now_ms + by_ms, Some((insert_after, delay_ms)));
            }
            Step::AdvanceToNextExpiry => {
                if let Some(next_ms) = self.wheel.next_expiry() {
                    self.advance(next_ms.max(self.now_ms), None);
                }
            }
        }
    }

    fn insert(&mut self, delay_ms: i64) {
        let deadline_ms = self.now_ms.saturating_add_signed(delay_ms);
        let number = self.timers.len();
        let key = self.wheel.insert(deadline_ms, number);
        self.model.insert((deadline_ms, number));
        self.timers.push(Inserted { deadline_ms, key, late: deadline_ms <= self.now_ms });
    }

    fn cancel(&mut self, pick: prop::sample::Index) {
        if self.timers.is_empty() {
            return;
        }
        let number = pick.index(self.timers.len());
        let timer = &self.timers[number];
        let alive = self.model.remove(&(timer.deadline_ms, number));
        assert_eq!(self.wheel.cancel(timer.key), alive.then_some(number));
    }

    /// `insert`: after how many fired timers to insert one, and its delay.
    fn advance(&mut self, now_ms: u64, mut insert: Option<(usize, i64)>) {
        self.now_ms = now_ms;
        let mut fired = 0;
        let mut last = None;
        while let Some(number) = self.wheel.expire(now_ms) {
            let Inserted { deadline_ms, late, .. } = self.timers[number];
            assert!(deadline_ms <= now_ms, "fired early");
            assert!(self.model.remove(&(deadline_ms, number)), "fired twice or after cancel");
            if !late {
                assert!(last < Some((deadline_ms, number)), "fired out of order");
                last = Some((deadline_ms, number));
            }
            fired += 1;
            if let Some((_, delay_ms)) = insert.take_if(|(after, _)| *after == fired) {
                self.insert(delay_ms);
            }
        }
        let earliest = self.model.first().map(|&(deadline_ms, _)| deadline_ms);
        assert!(earliest.is_none_or(|deadline_ms| deadline_ms > now_ms), "left a due timer");
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        assert_eq!(self.wheel.is_empty(), self.model.is_empty());
        let earliest = self.model.first().map(|&(deadline_ms, _)| deadline_ms);
        let next = self.wheel.next_expiry();
        assert_eq!(next.is_some(), earliest.is_some());
        assert!(next <= earliest, "{next:?} is after {earliest:?}");
    }
}

proptest! {
    #[test]
    fn wheel_does_what_an_ordered_map_does(
        start_ms in prop_oneof![Just(0u64), 0..(1u64 << 50)],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut pair = Pair::new(start_ms);
        for step in steps {
            pair.run(step);
            pair.check();
        }
        pair.advance(u64::MAX, None);
        prop_assert!(pair.wheel.is_empty());
    }
}
