//! Arithmetic in GF(2⁸) with the polynomial 0x11d and the generator 2.

const POLYNOMIAL: u16 = 0x11d;

static MULTIPLES: [[u8; 256]; 256] = multiples();

const fn multiples() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        // a times each power of 2, and the others as sums of these.
        let mut power = 1;
        let mut multiple = a as u16;
        while power < 256 {
            let mut b = 0;
            while b < power {
                table[a][power + b] = table[a][b] ^ multiple as u8;
                b += 1;
            }
            multiple <<= 1;
            if multiple > 255 {
                multiple ^= POLYNOMIAL;
            }
            power *= 2;
        }
        a += 1;
    }
    table
}

pub(super) fn multiply(a: u8, b: u8) -> u8 {
    MULTIPLES[a as usize][b as usize]
}

/// `None` for 0.
pub(super) fn inverse(a: u8) -> Option<u8> {
    let inverse = MULTIPLES[a as usize].iter().position(|product| *product == 1)?;
    u8::try_from(inverse).ok()
}

pub(super) fn power(a: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |product, _| multiply(product, a))
}

/// Adds `factor` times `from` to `to`, as far as both go.
pub(super) fn add_multiple(to: &mut [u8], factor: u8, from: &[u8]) {
    let multiples = &MULTIPLES[factor as usize];
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= multiples[*from as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        assert_eq!((multiply(3, 4), multiply(7, 7), multiply(23, 45)), (12, 21, 41));
        assert_eq!((power(2, 2), power(5, 20), power(13, 7)), (4, 235, 43));
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(inverse(a).map(|inverse| multiply(a, inverse)), Some(1));
        }
    }
}
