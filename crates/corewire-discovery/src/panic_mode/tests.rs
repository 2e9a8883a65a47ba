use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The endpoints of these numbers.
fn listed(numbers: impl IntoIterator<Item = usize>) -> Arc<Snapshot> {
    let endpoint = |n: usize| Arc::new(Endpoint::new("s", n.to_string(), format!("h:{}", n + 1)).unwrap());
    Arc::new(Snapshot::new("s", numbers.into_iter().map(endpoint)))
}

fn in_use(panic: &mut PanicMode, listed: &Arc<Snapshot>, now: Duration) -> Vec<usize> {
    let mut all: Vec<usize> =
        panic.in_use(listed, now).iter().map(|endpoint| endpoint.instance().parse().unwrap()).collect();
    all.sort_unstable();
    all
}

fn mode() -> PanicMode {
    PanicMode::new(PanicConfig { hold: at(100), ..Default::default() })
}

#[test]
fn hundreds_that_leave_at_once_are_used_on_until_enough_are_back() {
    let mut panic = mode();
    assert_eq!(in_use(&mut panic, &listed(0..300), at(0)).len(), 300);
    let none = listed([]);
    assert_eq!(in_use(&mut panic, &none, at(1)).len(), 300);
    assert_eq!((panic.held(), panic.next_change()), (300, Some(at(101))));
    let id = panic.in_use(&none, at(2)).id();
    assert_eq!(panic.in_use(&none, at(3)).id(), id, "the same snapshot until something changes");
    // They come back one after the other, and new ones among them.
    assert_eq!(in_use(&mut panic, &listed(200..349), at(4)).len(), 349);
    assert_eq!(panic.held(), 200);
    let enough = listed(200..350);
    assert_eq!(in_use(&mut panic, &enough, at(5)).len(), 150);
    assert_eq!(panic.in_use(&enough, at(5)).id(), enough.id());
    assert!(panic.held() == 0 && panic.panicking().is_none());
}

#[test]
fn it_is_the_same_whether_they_leave_one_by_one() {
    let mut panic = mode();
    for left in (0..=10).rev() {
        let expected = if left >= 5 { left } else { 10 };
        assert_eq!(in_use(&mut panic, &listed(0..left), at(20 - left as u64)).len(), expected, "{left}");
    }
}

#[test]
fn those_that_leave_little_by_little_are_gone() {
    let mut panic = mode();
    for (step, left) in (2..=100).rev().enumerate() {
        assert_eq!(in_use(&mut panic, &listed(0..left), at(60 * step as u64)).len(), left);
    }
    // Three were there within the time: the last two are small enough to be believed.
    assert_eq!(panic.held(), 0);
}

#[test]
fn endpoints_that_are_replaced_are_gone() {
    let mut panic = mode();
    // Each round a third is new; after three rounds none of the first are left.
    for round in 0..9 {
        let (from, now) = (round * 10, at(round as u64));
        assert_eq!(in_use(&mut panic, &listed(from..from + 30), now).len(), 30);
        assert_eq!(in_use(&mut panic, &listed(from + 10..from + 30), now).len(), 20);
    }
    assert_eq!(panic.held(), 0);
}

#[test]
fn services_with_few_endpoints_follow_the_registry_at_once() {
    let mut panic = mode();
    in_use(&mut panic, &listed(0..2), at(0));
    assert!(in_use(&mut panic, &listed([]), at(1)).is_empty());
    let mut never = PanicMode::new(PanicConfig { threshold_percent: 0, ..Default::default() });
    in_use(&mut never, &listed(0..100), at(0));
    assert!(in_use(&mut never, &listed([]), at(1)).is_empty());
}

#[test]
fn what_went_away_is_forgotten_when_nothing_good_is_heard_of_it() {
    let mut panic = mode();
    in_use(&mut panic, &listed(0..10), at(0));
    let few = listed(0..2);
    assert_eq!(in_use(&mut panic, &few, at(10)).len(), 10);
    panic.succeeded("7", at(90));
    panic.succeeded("1", at(90));
    panic.succeeded("unknown", at(90));
    assert_eq!(in_use(&mut panic, &few, at(109)).len(), 10);
    assert_eq!(in_use(&mut panic, &few, at(110)), [0, 1, 7], "it was called with success");
    panic.succeeded("7", at(180));
    assert_eq!(in_use(&mut panic, &few, at(190)), [0, 1, 7]);
    assert_eq!(in_use(&mut panic, &few, at(280)), [0, 1]);
    assert_eq!((panic.held(), panic.next_change()), (0, None));
    // That is how many there are from now on.
    assert_eq!(in_use(&mut panic, &listed(0..1), at(281)), [0]);
}

#[test]
fn one_that_has_moved_is_where_it_is_listed() {
    let mut panic = mode();
    in_use(&mut panic, &listed(0..4), at(0));
    let moved = Arc::new(Endpoint::new("s", "3", "elsewhere:1").unwrap());
    let only_moved = Arc::new(Snapshot::new("s", [moved]));
    assert_eq!(in_use(&mut panic, &only_moved, at(1)), [0, 1, 2, 3]);
    let mut addresses =
        panic.in_use(&only_moved, at(1)).iter().map(|endpoint| endpoint.address().to_string());
    assert!(addresses.any(|address| address == "elsewhere:1"));
}
