use super::super::{DecodeError, Prefix, varint};

/// The order of the bytes of a number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Most significant byte first, "network order".
    Big,
    /// Least significant byte first.
    Little,
}

/// The length field itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// `width` is 1, 2, 3, 4 or 8.
    Fixed {
        width: u8,
        order: ByteOrder,
    },
    Varint,
}

impl Field {
    /// The least bytes it takes.
    pub(super) const fn min_width(self) -> usize {
        match self {
            Self::Fixed { width, .. } => width as usize,
            Self::Varint => 1,
        }
    }

    /// The most bytes it takes.
    pub(super) const fn max_width(self) -> usize {
        match self {
            Self::Fixed { width, .. } => width as usize,
            Self::Varint => varint::MAX_WIDTH,
        }
    }

    /// The largest value it can say; an 8-byte field is signed.
    pub(super) const fn max_value(self) -> u64 {
        match self {
            Self::Fixed { width: 8, .. } => i64::MAX as u64,
            Self::Fixed { width, .. } => (1 << (width as u32 * 8)) - 1,
            Self::Varint => u32::MAX as u64,
        }
    }

    /// The value (at most `max_value`) and the bytes it took, or else how many bytes it takes to know more.
    #[inline]
    pub(super) fn read(self, input: &[u8]) -> Result<Result<(u64, usize), usize>, DecodeError> {
        let Self::Fixed { width, order } = self else {
            return Ok(match varint::read(input)? {
                Some((value, width)) => Ok((u64::from(value), width)),
                None => Err(input.len() + 1),
            });
        };
        let width = usize::from(width);
        let little = match (width, input) {
            (1, [a, ..]) => u64::from(*a),
            (2, [a, b, ..]) => u64::from(u16::from_le_bytes([*a, *b])),
            (3, [a, b, c, ..]) => u64::from(u32::from_le_bytes([*a, *b, *c, 0])),
            (4, [a, b, c, d, ..]) => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            (8, [a, b, c, d, e, f, g, h, ..]) => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            _ => return Ok(Err(width)),
        };
        let value = match order {
            ByteOrder::Little => little,
            ByteOrder::Big => little.swap_bytes() >> (64 - 8 * width),
        };
        if value > i64::MAX as u64 {
            return Err(DecodeError::Malformed {
                what: "a negative length",
                value: i128::from(value as i64),
            });
        }
        Ok(Ok((value, width)))
    }

    /// Appends the field; `value` is at most `max_value`.
    #[inline]
    pub(super) fn write(self, value: u64, prefix: &mut Prefix) {
        let Self::Fixed { width, order } = self else {
            varint::write(value as u32, prefix);
            return;
        };
        let width = usize::from(width);
        match order {
            ByteOrder::Little => push(&value.to_le_bytes(), 0, width, prefix),
            ByteOrder::Big => push(&value.to_be_bytes(), 8 - width, width, prefix),
        }
    }
}

/// Spelled out per width, so that each becomes one store and not a call to copy memory.
#[inline]
fn push(bytes: &[u8; 8], from: usize, width: usize, prefix: &mut Prefix) {
    let field = &bytes[from..];
    match width {
        1 => prefix.push(&field[..1]),
        2 => prefix.push(&field[..2]),
        3 => prefix.push(&field[..3]),
        4 => prefix.push(&field[..4]),
        _ => prefix.push(&field[..8]),
    }
}
