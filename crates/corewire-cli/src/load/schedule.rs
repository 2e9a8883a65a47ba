//! When the calls of an open load are due, and which of them have been taken.

/// A call that is sent so long after it was due is late.
const LATE_NS: u64 = 1_000_000;

/// Calls at equal distances: the times are arithmetic, so that calls that wait take no memory however many they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    begun_ns: u64,
    /// A call each `distance.0 / distance.1` ns.
    distance: (u128, u128),
}

impl Schedule {
    /// The share of a worker that has `mine` of `all` connections, of so many calls a second over all of them.
    pub(crate) fn new(begun_ns: u64, rate: u64, mine: u64, all: u64) -> Self {
        let distance = (1_000_000_000 * u128::from(all.max(1)), u128::from((rate * mine).max(1)));
        Self { begun_ns, distance }
    }

    /// When a call is due; the first, 0, at once.
    pub(crate) fn at(&self, call: u64) -> u64 {
        let after = u128::from(call) * self.distance.0 / self.distance.1;
        self.begun_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// How many calls are due by then.
    pub(crate) fn due(&self, now_ns: u64) -> u64 {
        let Some(passed) = now_ns.checked_sub(self.begun_ns) else { return 0 };
        let calls = ((u128::from(passed) + 1) * self.distance.1).div_ceil(self.distance.0);
        u64::try_from(calls).unwrap_or(u64::MAX)
    }
}

/// The calls of one of several connections that take turns.
#[derive(Debug)]
pub(crate) struct Calls {
    schedule: Schedule,
    connection: u64,
    connections: u64,
    taken: u64,
    budget: u64,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The call that was due then.
    Due {
        /// Its place among those of the connection.
        number: u64,
        /// Whether it comes late.
        is_late: bool,
    },
    /// None yet.
    NotYet,
    /// None any more.
    Over,
}

impl Calls {
    /// The calls of connection `connection` of `connections`, at most `budget`.
    pub(crate) fn new(schedule: Schedule, connection: u64, connections: u64, budget: u64) -> Self {
        Self { schedule, connection, connections, taken: 0, budget }
    }

    /// Takes the oldest call that is due.
    pub(crate) fn take(&mut self, now_ns: u64) -> Next {
        if self.taken == self.budget {
            return Next::Over;
        }
        let due = self.intended(self.taken);
        if due > now_ns {
            return Next::NotYet;
        }
        self.taken += 1;
        Next::Due { number: self.taken - 1, is_late: now_ns - due > LATE_NS }
    }

    /// The latency of a call whose reply is here now: from when it was due, whenever it was sent.
    pub(crate) fn latency(&self, number: u64, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.intended(number))
    }

    /// The calls that are due and have not been taken, by their numbers.
    pub(crate) fn waiting(&self, now_ns: u64) -> std::ops::Range<u64> {
        let before_mine = self.schedule.due(now_ns).saturating_sub(self.connection);
        let due = before_mine.div_ceil(self.connections).min(self.budget);
        self.taken..due.max(self.taken)
    }

    fn intended(&self, number: u64) -> u64 {
        self.schedule.at(number * self.connections + self.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn calls_are_due_at_equal_distances_without_drift() {
        let schedule = Schedule::new(7, 3, 1, 1);
        assert_eq!([0, 1, 2, 3].map(|call| schedule.at(call)), [7, 333_333_340, 666_666_673, 1_000_000_007]);
        assert_eq!(schedule.at(3_000_000), 1_000_000 * 1_000_000_000 + 7);
    }

    #[test]
    fn a_worker_has_the_share_of_its_connections() {
        // 1,000 a second over 10 connections, 3 of them here.
        let schedule = Schedule::new(0, 1_000, 3, 10);
        assert_eq!(schedule.at(300), 1_000 * MS);
    }

    #[test]
    fn what_is_due_agrees_with_when_it_is_due() {
        for rate in [1, 3, 7, 1_000, 999_999_937] {
            let schedule = Schedule::new(5, rate, 1, 1);
            assert_eq!((schedule.due(4), schedule.due(5)), (0, 1));
            for call in [1, 2, 3, 10, 12_345] {
                let at = schedule.at(call);
                let first = (0..=call).find(|earlier| schedule.at(*earlier) == at).unwrap();
                assert_eq!(schedule.due(at - 1), first, "rate {rate}, call {call}");
                assert!(schedule.due(at) > call, "rate {rate}, call {call}");
            }
        }
    }

    #[test]
    fn connections_take_turns_and_have_all_calls_among_them() {
        let schedule = Schedule::new(0, 1_000, 1, 1);
        let mut connections: Vec<_> =
            (0..3).map(|connection| Calls::new(schedule, connection, 3, u64::MAX)).collect();
        let waiting: u64 =
            connections.iter().map(|connection| connection.waiting(9 * MS)).map(|r| r.end - r.start).sum();
        assert_eq!(waiting, 10);
        assert_eq!(connections[1].take(MS - 1), Next::NotYet);
        assert_eq!(connections[1].take(MS), Next::Due { number: 0, is_late: false });
        assert_eq!(connections[1].take(3 * MS), Next::NotYet);
        assert_eq!(connections[1].take(6 * MS), Next::Due { number: 1, is_late: true });
        assert_eq!(connections[1].waiting(7 * MS), 2..3);
    }

    #[test]
    fn a_call_of_a_millisecond_after_its_time_is_not_late() {
        let mut calls = Calls::new(Schedule::new(0, 1, 1, 1), 0, 1, u64::MAX);
        assert_eq!(calls.take(LATE_NS), Next::Due { number: 0, is_late: false });
    }

    #[test]
    fn the_budget_ends_the_calls_and_bounds_those_that_wait() {
        let mut calls = Calls::new(Schedule::new(0, 1_000, 1, 1), 0, 1, 2);
        assert_eq!(calls.waiting(100 * MS), 0..2);
        assert!(matches!(calls.take(0), Next::Due { number: 0, .. }));
        assert!(matches!(calls.take(MS), Next::Due { number: 1, .. }));
        assert_eq!((calls.take(2 * MS), calls.waiting(100 * MS)), (Next::Over, 2..2));
    }

    /// One call a millisecond to a server that takes 100 µs, one call at a time, and stops for 50 ms. A closed load
    /// sees one slow call; here each call that was due meanwhile has waited, and tells how long.
    #[test]
    fn a_stall_is_in_the_latency_of_every_call_that_was_due_meanwhile() {
        let (service, stall) = (MS / 10, 10 * MS..60 * MS);
        let mut calls = Calls::new(Schedule::new(0, 1_000, 1, 1), 0, 1, 200);
        let (mut now, mut latencies, mut late) = (0, vec![], 0);
        loop {
            match calls.take(now) {
                Next::Due { number, is_late } => {
                    late += u64::from(is_late);
                    now += service;
                    if stall.contains(&now) {
                        now = stall.end;
                    }
                    latencies.push(calls.latency(number, now));
                }
                // The clock goes to the next call.
                Next::NotYet => now = calls.intended(calls.taken),
                Next::Over => break,
            }
        }
        assert_eq!(latencies.len(), 200);
        assert_eq!(latencies[..10], [service; 10]);
        // The call due at 10 ms is back at 60; those after it go one after the other, and catch up 0.9 ms with each.
        for behind in 0..55 {
            assert_eq!(latencies[10 + behind as usize], 50 * MS - behind * (MS - service), "{behind}");
        }
        assert_eq!(*latencies.last().unwrap(), service);
        assert_eq!(late, 54, "all that were sent over 1 ms after they were due");
    }
}
