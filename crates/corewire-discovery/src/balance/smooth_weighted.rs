use super::Balancer;
use super::slots::Slots;
use crate::Snapshot;

/// Endpoints in proportion to their weight, those of great weight spread among the others instead of in a row.
///
/// Every endpoint gains its weight in credit at each pick, the one with most credit is picked and pays the sum of
/// all weights. A pick looks at every endpoint; for thousands of them [`WeightedRandom`](super::WeightedRandom)
/// costs less.
#[derive(Debug)]
pub struct SmoothWeighted {
    credits: Slots<i64>,
}

impl SmoothWeighted {
    /// With no credit for any endpoint.
    pub fn new() -> Self {
        Self { credits: Slots::new() }
    }
}

impl Default for SmoothWeighted {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for SmoothWeighted {
    fn pick(&mut self, endpoints: &Snapshot, _key: Option<u64>) -> Option<usize> {
        self.credits.sync(endpoints, |_| 0);
        let mut total = 0;
        let mut best: Option<(usize, &mut i64)> = None;
        for (position, credit) in self.credits.iter_mut().enumerate() {
            // A weight has 16 bits: no sum of them overflows.
            let weight = endpoints.effective_weight(position) as i64;
            if weight == 0 {
                *credit = 0;
                continue;
            }
            total += weight;
            *credit += weight;
            if best.as_ref().is_none_or(|(_, most)| *credit > **most) {
                best = Some((position, credit));
            }
        }
        let (position, credit) = best?;
        *credit -= total;
        Some(position)
    }
}
