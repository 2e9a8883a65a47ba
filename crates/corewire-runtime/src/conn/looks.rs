//! When connections are to be looked at for their deadlines.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use slab::Slab;

use super::table::ConnId;
use crate::timer_wheel::TimerKey;

/// Connections by the time of their next look. Those that are due at about the same time share a timer: an idle
/// connection costs a number in a list.
#[derive(Default)]
pub(crate) struct Looks {
    rounds: Slab<Round>,
    by_time: BTreeMap<u64, u32>,
}

/// Those that are looked at together.
struct Round {
    due_ms: u64,
    timer: TimerKey,
    ids: Vec<ConnId>,
}

/// Where a connection stands in [`Looks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookPlace {
    /// One more than the index of the round, so that no place takes no memory.
    round: NonZeroU32,
    at: u32,
}

/// What is left to do when a connection was taken out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// It has the place now.
    pub(crate) moved: Option<ConnId>,
    /// Nobody needs it any more.
    pub(crate) timer: Option<TimerKey>,
}

impl Looks {
    /// The longest that a look may come later than asked for.
    const STEP_MAX_MS: u64 = 1024;

    /// When a look that is due in `delay_ms` is made: up to a sixteenth of that later, with others.
    pub(crate) fn due_ms(now_ms: u64, delay_ms: u64) -> u64 {
        let step = 1 << (delay_ms / 16).clamp(1, Self::STEP_MAX_MS).ilog2();
        now_ms.saturating_add(delay_ms).checked_next_multiple_of(step).unwrap_or(u64::MAX)
    }

    /// Adds a connection that is in no round; `start` starts the timer of a new one, by its index.
    pub(crate) fn add(&mut self, id: ConnId, due_ms: u64, start: impl FnOnce(u32) -> TimerKey) -> LookPlace {
        let Self { rounds, by_time } = self;
        let round = *by_time.entry(due_ms).or_insert_with(|| {
            let entry = rounds.vacant_entry();
            // There are fewer rounds than connections.
            let index = entry.key() as u32;
            entry.insert(Round { due_ms, timer: start(index), ids: Vec::new() });
            index
        });
        let ids = &mut rounds[round as usize].ids;
        ids.push(id);
        LookPlace { round: NonZeroU32::MIN.saturating_add(round), at: ids.len() as u32 - 1 }
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, place: LookPlace) -> Removed {
        let index = place.round.get() - 1;
        let round = &mut self.rounds[index as usize];
        round.ids.swap_remove(place.at as usize);
        let moved = round.ids.get(place.at as usize).copied();
        Removed { moved, timer: self.end_if_empty(index) }
    }

    /// Takes one out whose time has come, and says whether it was the last: then the round is over, and its index may
    /// be that of another soon.
    pub(crate) fn pop(&mut self, round: u32) -> Option<(ConnId, bool)> {
        let id = self.rounds.get_mut(round as usize)?.ids.pop()?;
        Some((id, self.end_if_empty(round).is_some()))
    }

    /// The timer of a round has fired and its time was not enough for all: another.
    pub(crate) fn restart(&mut self, round: u32, start: impl FnOnce(u64) -> TimerKey) {
        if let Some(round) = self.rounds.get_mut(round as usize) {
            round.timer = start(round.due_ms);
        }
    }

    fn end_if_empty(&mut self, round: u32) -> Option<TimerKey> {
        if !self.rounds.get(round as usize)?.ids.is_empty() {
            return None;
        }
        let Round { due_ms, timer, .. } = self.rounds.remove(round as usize);
        self.by_time.remove(&due_ms);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer_wheel::TimerWheel;

    #[test]
    fn a_look_is_never_early_and_at_most_a_sixteenth_or_about_a_second_late() {
        for delay in [0, 1, 15, 16, 20, 100, 1000, 60_000, 1_200_000] {
            for now in [0, 1, 77, 123_456_789] {
                let late = Looks::due_ms(now, delay) - (now + delay);
                assert!(late <= delay / 16 && late < Looks::STEP_MAX_MS, "{late} ms after {delay} ms");
            }
        }
        assert_eq!(Looks::due_ms(u64::MAX - 1, 60_000), u64::MAX);
    }

    #[test]
    fn connections_of_one_time_share_a_timer_and_leave_nothing() {
        let (mut wheel, mut looks) = (TimerWheel::new(0), Looks::default());
        let ids: Vec<_> = (0..100).map(ConnId::of_test).collect();
        let mut places: Vec<_> =
            ids.iter().map(|id| looks.add(*id, 1000, |round| wheel.insert(1000, round))).collect();
        assert_eq!(wheel.len(), 1);
        // The one that takes the place of another learns it.
        for gone in (0..99).step_by(2) {
            let removed = looks.remove(places[gone]);
            if let Some(moved) = removed.moved {
                let moved = ids.iter().position(|id| *id == moved).expect("one of them");
                places[moved] = places[gone];
            }
            assert_eq!(removed.timer, None);
        }
        let round = wheel.expire(1000).expect("their time has come");
        let popped: Vec<_> = std::iter::from_fn(|| looks.pop(round)).collect();
        assert!(popped[..49].iter().all(|(_, is_last)| !is_last) && popped[49].1);
        let mut left: Vec<_> = popped.into_iter().map(|(id, _)| id).collect();
        left.sort_unstable_by_key(|id| ids.iter().position(|other| other == id));
        assert_eq!(left, (1..100).step_by(2).map(ConnId::of_test).collect::<Vec<_>>());
        assert!(looks.rounds.is_empty() && looks.by_time.is_empty());
        // The last one that leaves takes the timer with it.
        let place = looks.add(ids[0], 5, |round| wheel.insert(5, round));
        let timer = looks.remove(place).timer.expect("nobody else is due then");
        assert!(wheel.cancel(timer).is_some() && wheel.is_empty());
    }
}
