//! How much is done before others have their turn.
//!
//! The clock is read once in [`Quota::PIECE`] units of work, never for each message.

use std::cell::Cell;
use std::time::{Duration, Instant};

use corewire_driver::clock;

use crate::conn::ConnId;

/// How long each kind of work (events, accepted connections, tasks, timers, deferred input) may go on in one tick.
pub(crate) const PHASE_BUDGET: Duration = Duration::from_micros(250);

/// Units that a connection may use when it is served as its bytes arrive, before those that arrived behind it. One that
/// wants more has its turns after all arrivals.
pub(crate) const ARRIVAL_UNITS: u32 = 128;

/// Units of one turn of a connection that wants more than that.
pub(crate) const TURN_UNITS: u32 = 512;

/// Time of one turn, after its first piece.
const TURN_TIME: Duration = Duration::from_micros(50);

/// So many bytes of a frame count as one unit more.
const BYTES_PER_UNIT: usize = 512;

/// What the connection that is being called may do before others have their turn. A frame is one unit, a large one more.
pub(crate) struct Quota {
    /// Whose turn it is.
    id: Cell<Option<ConnId>>,
    /// Units until the clock is read.
    piece: Cell<u32>,
    /// Units behind those.
    left: Cell<u32>,
    /// When the turn is over; not known in its first piece.
    until: Cell<Option<Instant>>,
}

impl Quota {
    /// Units between two looks at the clock.
    const PIECE: u32 = 32;

    pub(crate) const fn new() -> Self {
        Self { id: Cell::new(None), piece: Cell::new(0), left: Cell::new(0), until: Cell::new(None) }
    }

    #[inline]
    pub(crate) fn begin(&self, id: ConnId, units: u32) {
        self.id.set(Some(id));
        self.piece.set(Self::PIECE);
        self.left.set(units - Self::PIECE);
        self.until.set(None);
    }

    /// For datagrams: one that has begun is decoded whole, whose length bounds it.
    #[inline]
    pub(crate) fn begin_whole(&self, id: ConnId) {
        self.id.set(Some(id));
        self.piece.set(u32::MAX);
        self.left.set(0);
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.id.set(None);
    }

    /// Counts a frame; gives the debt if a new piece must begin for another.
    #[inline]
    pub(crate) fn frame_done(&self, bytes: usize) -> Result<(), u32> {
        let cost = 1 + (bytes / BYTES_PER_UNIT) as u32;
        let piece = self.piece.get();
        if piece > cost {
            self.piece.set(piece - cost);
            return Ok(());
        }
        Err(cost - piece)
    }

    /// Begins the next piece, if there is one.
    pub(crate) fn next_piece(&self, debt: u32) -> bool {
        let left = self.left.get().saturating_sub(debt);
        if left > 0 {
            let now = clock::now();
            match self.until.get() {
                Some(until) if now >= until => {}
                until => {
                    self.until.set(until.or(Some(now + TURN_TIME)));
                    self.piece.set(left.min(Self::PIECE));
                    self.left.set(left.saturating_sub(Self::PIECE));
                    return true;
                }
            }
        }
        self.stop();
        false
    }

    /// The turn is over for this connection.
    #[inline]
    pub(crate) fn stop_for(&self, id: ConnId) {
        if self.id.get() == Some(id) {
            self.stop();
        }
    }

    fn stop(&self) {
        self.piece.set(0);
        self.left.set(0);
    }

    /// Nothing is left of the turn.
    pub(crate) fn is_used(&self) -> bool {
        self.units_left() == 0
    }

    /// Units that were not used.
    pub(crate) fn units_left(&self) -> u32 {
        self.piece.get() + self.left.get()
    }
}

/// Limits one kind of work in a tick.
pub(crate) struct Meter {
    until: Option<Instant>,
    items: usize,
    bytes: usize,
}

impl Meter {
    /// Between two looks at the clock.
    const ITEMS: usize = 16;
    pub(crate) const BYTES: usize = 64 * 1024;

    /// The budget begins with the first look at the clock, after a few items.
    pub(crate) const fn new() -> Self {
        Self { until: None, items: 0, bytes: 0 }
    }

    /// Counts what was done; whether the budget is used.
    #[inline]
    pub(crate) fn is_used(&mut self, bytes: usize) -> bool {
        self.items += 1;
        self.bytes += bytes;
        if self.items < Self::ITEMS && self.bytes < Self::BYTES {
            return false;
        }
        self.look()
    }

    /// Whether the budget is used, by the clock.
    pub(crate) fn look(&mut self) -> bool {
        (self.items, self.bytes) = (0, 0);
        let now = clock::now();
        now >= *self.until.get_or_insert(now + PHASE_BUDGET)
    }
}
