use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn pace(initial: u64, max: u64, attempts_max: Option<u32>) -> Pace {
    let mut reconnect = Reconnect::between(initial as u32 * MS, max as u32 * MS);
    reconnect.attempts_max = attempts_max;
    Pace::new(&reconnect, 7)
}

/// The longest wait that a server costs which is lost at once, this many times in a row.
fn longest_wait(pace: &mut Pace, times: usize, now: Instant, has_received: bool) -> Duration {
    let lose = |_| {
        pace.established(now);
        pace.lost(now, has_received);
        assert!(pace.failed(now, false));
        pace.left(now).unwrap_or_default()
    };
    (0..times).map(lose).max().unwrap()
}

#[test]
fn waits_grow_while_connections_are_lost_before_they_have_proven_themselves() {
    let now = Instant::now();
    let mut pace = pace(10, 5_000, None);
    assert!(longest_wait(&mut pace, 40, now, false) > 2_000 * MS);
    // One that has received something was of use.
    assert!(longest_wait(&mut pace, 40, now, true) <= 10 * MS);
}

#[test]
fn a_connection_that_has_lasted_is_proven_although_nothing_came() {
    let now = Instant::now();
    let mut pace = pace(10, 5_000, None);
    longest_wait(&mut pace, 20, now, false);
    pace.established(now);
    assert!(!pace.lost(now + Pace::PROVEN_AFTER - MS, false));
    pace.established(now);
    assert!(pace.lost(now + Pace::PROVEN_AFTER, false));
    assert!(pace.failed(now, false) && pace.left(now).unwrap_or_default() <= 10 * MS);
}

#[test]
fn connections_that_are_lost_at_once_count_as_failed_attempts() {
    let now = Instant::now();
    let mut pace = pace(1, 1, Some(3));
    let lose = |pace: &mut Pace, has_received| {
        pace.established(now);
        pace.lost(now, has_received);
        pace.failed(now, false)
    };
    assert_eq!([0; 4].map(|_| lose(&mut pace, false)), [true, true, true, false]);
    assert!(lose(&mut pace, true), "proven: the count begins anew");
}

#[test]
fn whoever_wants_the_connection_waits_for_a_short_time_only() {
    let now = Instant::now();
    let mut pace = pace(50, 60_000, None);
    let mut waits = Vec::new();
    for _ in 0..40 {
        assert!(pace.failed(now, true));
        waits.push(pace.left(now).unwrap_or_default());
    }
    assert!(waits.into_iter().all(|wait| wait <= Pace::WANTED_WAIT_MAX));
    // Wanted when the wait has begun.
    while pace.failed(now, false) && pace.left(now).unwrap_or_default() < 10_000 * MS {}
    pace.hurry();
    assert_eq!(pace.left(now), Some(Pace::WANTED_WAIT_MAX));
    // The last attempt is long ago.
    assert_eq!(pace.left(now + Pace::WANTED_WAIT_MAX), None);
    // A longer first wait is the user's wish.
    let mut patient = self::pace(1_000, 60_000, None);
    while patient.failed(now, false) && patient.left(now).unwrap_or_default() < 10_000 * MS {}
    patient.hurry();
    assert_eq!(patient.left(now), Some(1_000 * MS));
}

#[test]
fn no_bound_is_too_long() {
    let now = Instant::now();
    let mut pace = Pace::new(&Reconnect::between(Duration::MAX, Duration::MAX), 7);
    assert!(pace.failed(now, true));
    assert!(pace.left(now).is_some());
    pace.hurry();
    assert!(pace.left(now).is_some());
}

/// A client whose attempts end as they are told, without a network.
struct Fake {
    connection: ClientConnection<u32>,
    /// What comes of the next attempts; then none ends.
    outcomes: RefCell<VecDeque<Outcome>>,
    attempts: Cell<u32>,
    keep: Keep,
    wanted: Cell<bool>,
}

enum Outcome {
    Succeeds,
    Fails,
    Panics,
}

#[derive(Clone)]
struct WeakFake(Weak<Fake>);

impl ConnectionOwner for WeakFake {
    type Established = u32;

    fn with<R>(&self, look: impl FnOnce(&ClientConnection<u32>) -> R) -> Option<R> {
        self.0.upgrade().map(|fake| look(&fake.connection))
    }

    async fn attempt(&self) -> Result<(), ConnectError> {
        let fake = self.0.upgrade().unwrap();
        fake.attempts.set(fake.attempts.get() + 1);
        let outcome = fake.outcomes.borrow_mut().pop_front();
        match outcome {
            Some(Outcome::Succeeds) => {
                fake.connection.established(fake.attempts.get());
                Ok(())
            }
            Some(Outcome::Fails) => Err(ConnectError::Stopped),
            Some(Outcome::Panics) => panic!("on purpose"),
            None => std::future::pending().await,
        }
    }

    fn is_wanted(&self) -> bool {
        self.0.upgrade().is_some_and(|fake| fake.wanted.get())
    }

    fn keep(&self) -> Keep {
        self.0.upgrade().map_or(Keep::WhileWanted, |fake| fake.keep)
    }

    fn changed(&self) {}
}

/// Runs the test on a worker, with a client that waits between these bounds.
fn with_fake<Fut: Future<Output = ()> + 'static>(
    keep: Keep,
    reconnect: Reconnect,
    outcomes: impl IntoIterator<Item = Outcome>,
    test: impl FnOnce(Rc<Fake>, WeakFake) -> Fut,
) {
    let fake = Rc::new(Fake {
        connection: ClientConnection::new(&reconnect, 7),
        outcomes: RefCell::new(outcomes.into_iter().collect()),
        attempts: Cell::new(0),
        keep,
        wanted: Cell::new(false),
    });
    let owner = WeakFake(Rc::downgrade(&fake));
    corewire_runtime::run(test(fake, owner)).unwrap();
}

fn quick() -> Reconnect {
    Reconnect::between(MS, 2 * MS)
}

/// Waits for a state; one that never comes hangs the test.
async fn until(fake: &Fake, is_there: impl Fn(&State<u32>) -> bool) {
    while !is_there(&fake.connection.state()) {
        corewire_runtime::yield_now().await;
    }
}

#[test]
fn a_connection_is_made_when_it_is_wanted_and_attempts_go_on_until_one_succeeds() {
    let outcomes = [Outcome::Fails, Outcome::Panics, Outcome::Fails, Outcome::Succeeds];
    with_fake(Keep::OnceWanted, quick(), outcomes, |fake, owner| async move {
        assert!(matches!(*fake.connection.state(), State::Idle));
        fake.connection.want(&owner);
        until(&fake, |state| matches!(state, State::Established(4))).await;
    });
}

#[test]
fn a_proven_connection_that_is_lost_is_made_again_if_it_is_kept_always() {
    for keep in [Keep::Always, Keep::OnceWanted] {
        with_fake(keep, quick(), [Outcome::Succeeds, Outcome::Succeeds], move |fake, owner| async move {
            fake.connection.want(&owner);
            until(&fake, |state| matches!(state, State::Established(1))).await;
            fake.connection.lost(&owner, "cut".to_owned(), true);
            match keep {
                Keep::Always => until(&fake, |state| matches!(state, State::Established(2))).await,
                _ => assert!(matches!(*fake.connection.state(), State::Idle)),
            }
        });
    }
}

#[test]
fn what_nobody_wants_any_more_is_not_tried_again() {
    with_fake(Keep::WhileWanted, quick(), [Outcome::Fails], |fake, owner| async move {
        fake.connection.want(&owner);
        until(&fake, |state| matches!(state, State::Backoff(_))).await;
        until(&fake, |state| matches!(state, State::Idle)).await;
        assert_eq!(fake.attempts.get(), 1);
    });
}

#[test]
fn a_back_off_says_why_and_ends_early_for_whoever_wants_the_connection() {
    let slow = Reconnect::between(MS, Duration::from_secs(3_600));
    let outcomes = (0..40).map(|_| Outcome::Fails);
    with_fake(Keep::WhileWanted, slow, outcomes, |fake, owner| async move {
        fake.wanted.set(true);
        fake.connection.want(&owner);
        // Each wait is short although the bound grows to hours.
        until(&fake, |_| fake.attempts.get() >= 8).await;
        fake.wanted.set(false);
        until(
            &fake,
            |state| matches!(state, State::Backoff(why) if *why == ConnectError::Stopped.to_string()),
        )
        .await;
    });
}

#[test]
fn a_closed_connection_stays_closed() {
    with_fake(Keep::Always, quick(), [Outcome::Succeeds, Outcome::Succeeds], |fake, owner| async move {
        fake.connection.want(&owner);
        until(&fake, |state| matches!(state, State::Established(_))).await;
        assert_eq!(fake.connection.close(), Some(1));
        assert!(!fake.connection.established(9) && !fake.connection.begin());
        fake.connection.lost(&owner, "late".to_owned(), true);
        fake.connection.want(&owner);
        assert!(fake.connection.is_closed());
    });
}

#[test]
fn after_the_last_attempt_it_is_closed() {
    let mut few = quick();
    few.attempts_max = Some(2);
    let outcomes = [Outcome::Fails, Outcome::Fails, Outcome::Fails];
    with_fake(Keep::Always, few, outcomes, |fake, owner| async move {
        fake.connection.want(&owner);
        until(&fake, |state| matches!(state, State::Closed)).await;
        assert_eq!(fake.attempts.get(), 3);
    });
}
