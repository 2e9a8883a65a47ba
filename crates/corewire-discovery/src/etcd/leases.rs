use hashbrown::HashMap;
use smallvec::SmallVec;
use std::time::Duration;

/// A lease of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LeaseId(pub(super) i64);

/// The lease for each time to live in seconds.
pub(super) type Leases = HashMap<i64, LeaseId>;

/// The leases under which an entry of ours may be in etcd: the one that it was put under, and those of puts that were not
/// answered. Without any it is not there.
pub(super) type PutUnder = SmallVec<[LeaseId; 1]>;

/// How often leases are renewed, and how long an answer to that may take. A lease is renewed when a third of its time
/// is over; by the end of the second third there is an answer or another member is asked, which has the last third.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) every: Duration,
    pub(super) answer_max: Duration,
}

/// Time to answer for the shortest leases, which a busy machine would miss otherwise.
const ANSWER_MIN: Duration = Duration::from_millis(500);
/// How often, when there are no leases.
const IDLE: Duration = Duration::from_secs(60);

impl Pace {
    pub(super) fn of(leases: &Leases, request_timeout: Duration) -> Self {
        let shortest = leases.keys().min().map(|ttl_s| Duration::from_secs(ttl_s.unsigned_abs()));
        let third = shortest.map_or(IDLE, |ttl| ttl / 3).min(IDLE);
        Self { every: third, answer_max: third.max(ANSWER_MIN).min(request_timeout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(ttls: &[i64], request_timeout: u64) -> (u64, u64) {
        let leases: Leases = ttls.iter().map(|ttl_s| (*ttl_s, LeaseId(*ttl_s))).collect();
        let pace = Pace::of(&leases, Duration::from_millis(request_timeout));
        (pace.every.as_millis() as u64, pace.answer_max.as_millis() as u64)
    }

    #[test]
    fn a_third_of_the_time_is_left_when_a_renewal_is_given_up() {
        assert_eq!(pace(&[9], 5_000), (3_000, 3_000));
        assert_eq!(pace(&[600, 9], 5_000), (3_000, 3_000), "the shortest counts");
        assert_eq!(pace(&[30], 5_000), (10_000, 5_000));
        assert_eq!(pace(&[1], 5_000), (333, 500), "but an answer gets half a second");
        assert_eq!(pace(&[1], 200), (333, 200));
        assert_eq!(pace(&[100_000], 5_000), (60_000, 5_000));
        assert_eq!(pace(&[], 5_000), (60_000, 5_000));
    }
}
