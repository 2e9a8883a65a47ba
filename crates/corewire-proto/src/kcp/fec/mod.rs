//! Forward error correction as kcp-go's: after every so many datagrams some of parity, from which as many lost ones are
//! made up without a round trip.
//!
//! A datagram is `sequence (4) | 0xf1 (2) | length (2) | KCP`, where the length counts itself; one of parity is
//! `sequence (4) | 0xf2 (2) | parity`, over everything after the first six bytes of the datagrams of its group, the shorter
//! ones filled up with zeros. All numbers are little-endian. A group of `data` + `parity` datagrams begins at each multiple of
//! that sum. The code is Reed-Solomon over GF(2⁸) with the polynomial 0x11d, by a Vandermonde matrix made systematic.

mod code;
mod decoder;
mod encoder;
mod field;
mod matrix;

pub(super) use self::decoder::Decoder;
pub(super) use self::encoder::Encoder;

/// Bytes that forward error correction adds to a datagram.
pub(super) const FEC_OVERHEAD: usize = HEAD_LEN + SIZE_LEN;
const HEAD_LEN: usize = 6;
const SIZE_LEN: usize = 2;
const DATA: u16 = 0xf1;
const PARITY: u16 = 0xf2;

/// How many datagrams make a group: those with data, and those of parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shards {
    pub(super) data: u8,
    pub(super) parity: u8,
}

impl Shards {
    const fn all(self) -> u32 {
        self.data as u32 + self.parity as u32
    }

    /// Sequence numbers are below this, so that groups stay whole where they wrap around.
    const fn sequence_end(self) -> u32 {
        u32::MAX / self.all() * self.all()
    }
}

/// A datagram with forward error correction, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shard<'a> {
    Data { sequence: u32, bytes: &'a [u8] },
    Parity { sequence: u32, bytes: &'a [u8] },
}

impl<'a> Shard<'a> {
    /// `None`: the datagram has no forward error correction. No command of KCP is like the kinds of shards.
    pub(super) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (head, bytes) = datagram.split_first_chunk::<HEAD_LEN>()?;
        let sequence = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        match u16::from_le_bytes([head[4], head[5]]) {
            DATA if bytes.len() >= SIZE_LEN => Some(Self::Data { sequence, bytes }),
            PARITY => Some(Self::Parity { sequence, bytes }),
            _ => None,
        }
    }

    /// The datagram of KCP in a shard of data.
    pub(super) fn datagram(self) -> Option<&'a [u8]> {
        match self {
            Self::Data { bytes, .. } => bytes.get(SIZE_LEN..),
            Self::Parity { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
