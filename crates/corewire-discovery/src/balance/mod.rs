mod consistent_hash;
mod flight;
mod least_in_flight;
mod random;
mod round_robin;
mod slots;
mod smooth_weighted;
mod subset;
mod two_choices;
mod weighted_random;
mod zone;

pub use consistent_hash::ConsistentHash;
pub use flight::Flight;
pub use least_in_flight::LeastInFlight;
pub use random::Random;
pub use round_robin::RoundRobin;
pub use smooth_weighted::SmoothWeighted;
pub use subset::Subset;
pub use two_choices::TwoChoices;
pub use weighted_random::WeightedRandom;
pub use zone::ZoneAware;

use crate::Snapshot;
use std::fmt::Debug;

/// Chooses an endpoint for each call.
///
/// One balancer serves one service on one thread and is given the service's snapshot of the moment. When the
/// endpoints change it keeps what it knows of those that stay; only then does it allocate.
///
/// For every balancer: no endpoints, no pick; an endpoint of weight 0 is picked only when all have weight 0, and
/// then all count as equal.
///
/// ```
/// use corewire_discovery::{Balancer, Endpoint, Snapshot, TwoChoices};
/// use std::{sync::Arc, time::Duration};
///
/// let endpoint = |n: u16| Endpoint::new("Echo", format!("echo-{n}"), format!("10.0.0.{n}:7000")).map(Arc::new);
/// let endpoints = Snapshot::new("Echo", [endpoint(1)?, endpoint(2)?]);
/// let mut balancer = TwoChoices::new();
/// if let Some(position) = balancer.pick(&endpoints, None) {
///     let flight = balancer.begin(&endpoints, position);
///     // … call endpoints.get(position) …
///     flight.succeeded(Duration::from_micros(120));
/// }
/// # Ok::<(), corewire_discovery::EndpointError>(())
/// ```
pub trait Balancer: Send + Debug {
    /// Position of the endpoint to use. Calls with the same `key` go to the same endpoint where the balancer
    /// goes by keys; the others pay no heed to it.
    fn pick(&mut self, endpoints: &Snapshot, key: Option<u64>) -> Option<usize>;

    /// As [`Balancer::pick`], but none of the positions in `avoid`: for a retry elsewhere.
    fn pick_avoiding(&mut self, endpoints: &Snapshot, key: Option<u64>, avoid: &[usize]) -> Option<usize> {
        let mut picked = 0;
        for _ in 0..PICKS_BEFORE_SEARCH {
            picked = self.pick(endpoints, key)?;
            if !avoid.contains(&picked) {
                return Some(picked);
            }
        }
        after(endpoints, picked).find(|position| !avoid.contains(position))
    }

    /// Says that a call to the endpoint begins. The guard counts it as in flight, and takes in how it ended.
    fn begin(&mut self, endpoints: &Snapshot, position: usize) -> Flight {
        let _ = (endpoints, position);
        Flight::untracked()
    }
}

impl<B: Balancer + ?Sized> Balancer for Box<B> {
    fn pick(&mut self, endpoints: &Snapshot, key: Option<u64>) -> Option<usize> {
        (**self).pick(endpoints, key)
    }

    fn pick_avoiding(&mut self, endpoints: &Snapshot, key: Option<u64>, avoid: &[usize]) -> Option<usize> {
        (**self).pick_avoiding(endpoints, key, avoid)
    }

    fn begin(&mut self, endpoints: &Snapshot, position: usize) -> Flight {
        (**self).begin(endpoints, position)
    }
}

/// How often a balancer may hit on what is to be avoided before its neighbour is taken.
const PICKS_BEFORE_SEARCH: usize = 4;

/// Whether balancers may pick the endpoint at all.
fn is_eligible(endpoints: &Snapshot, position: usize) -> bool {
    endpoints.effective_weight(position) > 0
}

/// The eligible positions after `position`, once around, itself last.
fn after(endpoints: &Snapshot, position: usize) -> impl Iterator<Item = usize> {
    let length = endpoints.len();
    (1..=length).map(move |step| (position % length + step) % length).filter(|at| is_eligible(endpoints, *at))
}

/// Any eligible position, each as likely as the others.
fn any(endpoints: &Snapshot, random: &mut fastrand::Rng) -> Option<usize> {
    let length = endpoints.len();
    if length == 0 {
        return None;
    }
    for _ in 0..DRAWS_BEFORE_COUNT {
        let position = random.usize(..length);
        if is_eligible(endpoints, position) {
            return Some(position);
        }
    }
    // Nearly all have weight 0: draw among those that do not.
    let eligible = length - endpoints.weightless();
    (0..length).filter(|position| is_eligible(endpoints, *position)).nth(random.usize(..eligible))
}

/// Draws that may hit weight 0 before the eligible endpoints are counted out.
const DRAWS_BEFORE_COUNT: usize = 8;

#[cfg(test)]
mod tests;
