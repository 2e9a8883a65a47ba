//! Which call a reply belongs to.

mod fifo;
mod sequence;

use crate::codec::{FrameHead, FrameKind, Matching};
use fifo::FifoTable;
use sequence::SequenceTable;

/// The calls of one connection that wait for their replies.
///
/// `T` is what waits: a waker, an index into a slab, a deadline. The life of a call is [`begin`](Self::begin),
/// then [`sequence_of`](Self::sequence_of) for the frame's head, then one of
/// - [`complete`](Self::complete), when a reply arrives;
/// - [`abandon`](Self::abandon) or [`abandon_if`](Self::abandon_if), when it is cancelled or its time is over. Its number, or its place in the
///   order, stays held until the late reply comes, which is swallowed: it never completes another call;
/// - [`withdraw`](Self::withdraw), when its frame was never sent;
/// - [`drain`](Self::drain), when the connection is gone.
///
/// Each hands the value back, so that a call ends exactly once. Nothing is allocated once the table has grown
/// to the number of calls that are in flight together.
///
/// | matching | numbers | most calls held |
/// |---|---|---|
/// | [`Matching::Sequence`] | 1, 2, … `modulus - 1`, 0, 1, … without those held | `limit`, `modulus` and [`MAX_SEQUENCES`](Self::MAX_SEQUENCES), whichever is least |
/// | [`Matching::Fifo`] | none | `limit` |
/// | [`Matching::None`] | none | 0: no call can begin |
///
/// ```
/// use corewire_proto::codec::{FrameHead, FrameKind, Matching};
/// use corewire_proto::matching::{CallTable, Matched};
///
/// let mut calls = CallTable::new(Matching::Sequence { modulus: 256 }, 256);
/// let key = calls.begin("the first").unwrap();
/// assert_eq!(calls.sequence_of(key), 1);
///
/// let reply = FrameHead { kind: FrameKind::Reply, sequence: 1, tag: 0 };
/// assert_eq!(calls.complete(&reply), Matched::Call("the first"));
/// assert_eq!(calls.complete(&reply), Matched::Unknown);
/// ```
#[derive(Debug)]
pub struct CallTable<T> {
    order: Order<T>,
}

/// One call of one [`CallTable`]. It stays valid for ever: once the call has ended, it finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Never given twice by a table, so that an old key cannot touch a newer call under the same number.
    ticket: u64,
    /// By sequence: the number. In order: tells calls apart that had the same place.
    number: u32,
}

/// What an arrived frame is to the calls that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Matched<T> {
    /// The reply to this call, which has ended now.
    Call(T),
    /// The reply to a call that was abandoned: drop it.
    Late,
    /// No call's reply: a request or message of the peer's own, or a reply to a number that nobody holds.
    Unknown,
}

impl<T> CallTable<T> {
    /// Default for the most calls in flight on a connection whose replies come in order.
    pub const DEFAULT_FIFO_LIMIT: usize = 65_536;
    /// The most calls in flight on a connection whose replies carry a sequence, whatever the modulus.
    pub const MAX_SEQUENCES: usize = sequence::MAX_SLOTS;

    /// A table with no calls; it allocates with the first one. A `limit` of 0 counts as 1.
    pub fn new(matching: Matching, limit: usize) -> Self {
        let limit = limit.max(1);
        let order = match matching {
            Matching::None => Order::None,
            Matching::Sequence { modulus } => Order::Sequence(SequenceTable::new(modulus, limit)),
            Matching::Fifo => Order::Fifo(FifoTable::new(limit)),
        };
        Self { order }
    }

    /// Begins a call.
    ///
    /// # Errors
    /// Gives `value` back while [`can_begin`](Self::can_begin) is false: wait until a call ends.
    #[inline]
    pub fn begin(&mut self, value: T) -> Result<CallKey, T> {
        match &mut self.order {
            Order::Sequence(table) => table.begin(value),
            Order::Fifo(table) => table.begin(value),
            Order::None => Err(value),
        }
    }

    /// The number that the request carries; 0 where calls are matched in order.
    #[inline]
    pub const fn sequence_of(&self, key: CallKey) -> u32 {
        match self.order {
            Order::Sequence(_) => key.number,
            Order::Fifo(_) | Order::None => 0,
        }
    }

    /// Ends the call whose reply has this head. In order, a plain [`FrameKind::Message`] is a reply too.
    #[inline]
    pub fn complete(&mut self, head: &FrameHead) -> Matched<T> {
        match (&mut self.order, head.kind) {
            (Order::Sequence(table), FrameKind::Reply | FrameKind::ErrorReply) => {
                table.complete(head.sequence)
            }
            (Order::Fifo(table), FrameKind::Reply | FrameKind::ErrorReply | FrameKind::Message) => {
                table.complete()
            }
            _ => Matched::Unknown,
        }
    }

    /// Ends a call that no longer waits, although its request was sent; `None` if it has ended already.
    #[inline]
    pub fn abandon(&mut self, key: CallKey) -> Option<T> {
        match &mut self.order {
            Order::Sequence(table) => table.abandon(key),
            Order::Fifo(table) => table.abandon(key),
            Order::None => None,
        }
    }

    /// Abandons every call of which `over` is true, a sweep over deadlines for example, and hands each to
    /// `ended`.
    pub fn abandon_if(&mut self, over: impl FnMut(&T) -> bool, ended: impl FnMut(T)) {
        match &mut self.order {
            Order::Sequence(table) => table.abandon_if(over, ended),
            Order::Fifo(table) => table.abandon_if(over, ended),
            Order::None => {}
        }
    }

    /// Frees the numbers of the calls that were abandoned before the last time this was called, and says how many: for
    /// datagrams, where a reply may never come. To be called no more often than a late reply may take: a number is free
    /// again one to two such times after it was abandoned. In order it does nothing.
    pub fn age(&mut self) -> usize {
        match &mut self.order {
            Order::Sequence(table) => table.age(),
            Order::Fifo(_) | Order::None => 0,
        }
    }

    /// Takes back a call whose request was never sent, so that no reply will come: its number or place is free
    /// at once. In order this is only possible while no later call has begun; otherwise, and if the call has
    /// ended already, it is `None` and nothing changes.
    pub fn withdraw(&mut self, key: CallKey) -> Option<T> {
        match &mut self.order {
            Order::Sequence(table) => table.withdraw(key),
            Order::Fifo(table) => table.withdraw(key),
            Order::None => None,
        }
    }

    /// What waits under this key; `None` once the call has ended.
    #[inline]
    pub fn get(&self, key: CallKey) -> Option<&T> {
        match &self.order {
            Order::Sequence(table) => table.get(key),
            Order::Fifo(table) => table.get(key),
            Order::None => None,
        }
    }

    /// What waits under this key; `None` once the call has ended.
    #[inline]
    pub fn get_mut(&mut self, key: CallKey) -> Option<&mut T> {
        match &mut self.order {
            Order::Sequence(table) => table.get_mut(key),
            Order::Fifo(table) => table.get_mut(key),
            Order::None => None,
        }
    }

    /// All calls that wait, with their keys. In order: the oldest first; by sequence: in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (CallKey, &mut T)> {
        let (sequence, fifo) = match &mut self.order {
            Order::Sequence(table) => (Some(table), None),
            Order::Fifo(table) => (None, Some(table)),
            Order::None => (None, None),
        };
        let sequence = sequence.into_iter().flat_map(SequenceTable::iter_mut);
        sequence.chain(fifo.into_iter().flat_map(FifoTable::iter_mut))
    }

    /// Ends every call, because the connection is gone: each value that waits comes out once, whatever is not
    /// taken is dropped. The table is as new then, for the next connection; old keys stay invalid.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        let (sequence, fifo) = match &mut self.order {
            Order::Sequence(table) => (Some(table), None),
            Order::Fifo(table) => (None, Some(table)),
            Order::None => (None, None),
        };
        let sequence = sequence.into_iter().flat_map(SequenceTable::drain);
        sequence.chain(fifo.into_iter().flat_map(FifoTable::drain))
    }

    /// How many calls wait.
    pub fn in_flight(&self) -> usize {
        self.held() - self.abandoned()
    }

    /// How many abandoned calls still hold their number or place.
    pub const fn abandoned(&self) -> usize {
        match &self.order {
            Order::Sequence(table) => table.abandoned(),
            Order::Fifo(table) => table.abandoned(),
            Order::None => 0,
        }
    }

    /// There is room for another call.
    #[inline]
    pub fn can_begin(&self) -> bool {
        self.held() < self.capacity()
    }

    /// Every number or place is held by an abandoned call: unless the late replies come after all, only another
    /// connection helps.
    pub fn is_exhausted(&self) -> bool {
        self.capacity() > 0 && self.abandoned() == self.capacity()
    }

    fn held(&self) -> usize {
        match &self.order {
            Order::Sequence(table) => table.held(),
            Order::Fifo(table) => table.held(),
            Order::None => 0,
        }
    }

    /// The most calls that can be held.
    pub const fn capacity(&self) -> usize {
        match &self.order {
            Order::Sequence(table) => table.capacity(),
            Order::Fifo(table) => table.capacity(),
            Order::None => 0,
        }
    }
}

#[derive(Debug)]
enum Order<T> {
    Sequence(SequenceTable<T>),
    Fifo(FifoTable<T>),
    None,
}
