//! Randomness, for this crate and all above it: nothing else of them asks the system for it.

use std::io;

/// A number that is not to be guessed right twice, but is no secret: for jitter, seeds and identifiers. A few
/// nanoseconds.
#[expect(clippy::disallowed_methods, reason = "this is what everybody else calls")]
pub fn u64() -> u64 {
    fastrand::u64(..)
}

/// A number from 0 up to, but not including, 1; see [`u64()`].
pub fn f64() -> f64 {
    // As many bits as a fraction holds.
    (u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Fills `bytes` from the system's source of secrets: for keys and nonces. A system call.
///
/// # Errors
/// The system has no randomness to give (early in its start), or refuses it.
#[expect(clippy::disallowed_methods, reason = "this is what everybody else calls")]
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_differ_and_fractions_stay_below_one() {
        assert_ne!(super::u64(), super::u64());
        assert!((0..1000).map(|_| super::f64()).all(|fraction| (0.0..1.0).contains(&fraction)));
        let mut bytes = [[0; 32]; 2];
        bytes.iter_mut().for_each(|bytes| super::fill(bytes).unwrap());
        assert_ne!(bytes[0], bytes[1]);
    }
}
