//! Random numbers that a seed gives again.

/// The generator "splitmix64": one number of state, the same on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// Up to `most` bytes. Small values and 0xff come more often than others: lengths that fit, and extremes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        let byte = |rng: &mut Self| match rng.below(4) {
            0 => rng.below(8) as u8,
            1 => [0xff, 0x80, 0x7f, b'\n'][rng.below(4)],
            _ => rng.next_u64() as u8,
        };
        (0..len).map(|_| byte(self)).collect()
    }
}
