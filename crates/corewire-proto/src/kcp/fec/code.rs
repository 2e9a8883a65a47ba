//! The Reed-Solomon code of a group.

use super::Shards;
use super::field::add_multiple;
use super::matrix::{inverted, product, vandermonde};

/// Rows of the code's matrix: the identity for shards of data, then one row for each of parity.
#[derive(Debug, Clone)]
pub(super) struct Code {
    data: usize,
    rows: Vec<Vec<u8>>,
}

impl Code {
    pub(super) fn new(shards: Shards) -> Self {
        let data = usize::from(shards.data);
        let all = vandermonde(data + usize::from(shards.parity), data);
        // The rows of a Vandermonde matrix are independent, so the top has an inverse.
        let inverse = inverted(all[..data].to_vec()).unwrap_or_default();
        Self { data, rows: product(&all, &inverse) }
    }

    /// Adds the shard of data `index` to those of parity, which are as long as the longest of data, or longer.
    pub(super) fn add_to_parity(&self, index: usize, shard: &[u8], parity: &mut [Vec<u8>]) {
        for (row, parity) in self.rows[self.data..].iter().zip(parity) {
            add_multiple(parity, row[index], shard);
        }
    }

    /// Makes up the shards of data that are missing (`None`) from all that are here; none when these are too few.
    pub(super) fn missing(&self, shards: &[Option<Vec<u8>>]) -> Vec<Vec<u8>> {
        let here: Vec<(usize, &Vec<u8>)> = shards
            .iter()
            .enumerate()
            .filter_map(|(index, shard)| Some((index, shard.as_ref()?)))
            .take(self.data)
            .collect();
        let len = here.iter().map(|(_, shard)| shard.len()).max().unwrap_or(0);
        let rows = here.iter().filter_map(|(index, _)| self.rows.get(*index).cloned()).collect::<Vec<_>>();
        if rows.len() < self.data {
            return Vec::new();
        }
        let Some(inverse) = inverted(rows) else { return Vec::new() };
        let made_up = |index: usize| {
            let mut made_up = vec![0; len];
            let factors = inverse[index].iter().zip(&here);
            factors.for_each(|(factor, (_, shard))| add_multiple(&mut made_up, *factor, shard));
            made_up
        };
        (0..self.data).filter(|index| shards[*index].is_none()).map(made_up).collect()
    }
}
