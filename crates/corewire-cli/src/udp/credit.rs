//! How one-way load is kept to what the receiver takes.
//!
//! UDP has no flow control: a sender that is faster than the receiver only measures how much is thrown away. So the
//! server of `udp-sink` tells each peer how many datagrams it has received, once in [`EVERY`], and the load has at most
//! [`WINDOW`] datagrams on their way, shared by its connections. A run in which nothing was lost is then one that both sides kept up with, and both
//! sides counted.

/// A server tells its count once in so many datagrams of a peer: eight bytes, little-endian.
pub(crate) const EVERY: u64 = 1024;
/// Datagrams that a load has on their way. With 1 KiB each they fill the receive buffer of the report (8 MiB) to some two
/// thirds, as the kernel counts.
pub(crate) const WINDOW: u64 = 8 * EVERY;
/// The same for datagrams that are not joined: the kernel counts some 2.3 KiB for one of 1 KiB.
pub(crate) const WINDOW_PLAIN: u64 = 4 * EVERY;

/// Looks for losses, 20 ms apart, that hear nothing from the server before what is on its way counts as lost.
const LOOKS: u32 = 25;

/// What a server has received from one peer.
#[derive(Debug, Default)]
pub(crate) struct Received(u64);

impl Received {
    /// Counts datagrams; what to tell the peer, if it is time to.
    #[inline]
    pub(crate) fn add(&mut self, datagrams: u64) -> Option<[u8; 8]> {
        let before = self.0;
        self.0 += datagrams;
        (before / EVERY != self.0 / EVERY).then(|| self.0.to_le_bytes())
    }
}

/// What a load may still send.
#[derive(Debug)]
pub(crate) struct Credit {
    window: u64,
    sent: u64,
    received: u64,
    /// Given up: told late or lost.
    forgotten: u64,
    /// Looks in a row that heard nothing.
    silent: u32,
    is_granted: bool,
    is_unpaced: bool,
}

impl Credit {
    /// For one of several connections that share the window.
    pub(crate) fn new(is_plain: bool, connections: usize) -> Self {
        let all = if is_plain { WINDOW_PLAIN } else { WINDOW };
        // Less would never be told.
        let window = (all / connections.max(1) as u64).max(EVERY);
        Self { window, sent: 0, received: 0, forgotten: 0, silent: 0, is_granted: false, is_unpaced: false }
    }

    /// Datagrams that may be sent now.
    pub(crate) fn room(&self) -> u64 {
        if self.is_unpaced {
            return self.window;
        }
        let gone = self.received.max(self.forgotten);
        self.window.saturating_sub(self.sent.saturating_sub(gone))
    }

    pub(crate) fn sent(&mut self, datagrams: u64) {
        self.sent += datagrams;
    }

    /// Takes the server's word, the last of several that came in one.
    pub(crate) fn told(&mut self, payload: &[u8]) {
        if let Some(count) = payload.last_chunk() {
            self.received = self.received.max(u64::from_le_bytes(*count)).min(self.sent);
            self.is_granted = true;
            self.silent = 0;
        }
    }

    /// Nothing was told since the last look. After [`LOOKS`] of them what is on its way is lost: a server may get no
    /// processor for a while. A server that never tells is sent to without a pace.
    pub(crate) fn stalled(&mut self) {
        self.silent += 1;
        if self.silent < LOOKS {
            return;
        }
        self.silent = 0;
        self.forgotten = self.sent;
        self.is_unpaced |= !self.is_granted && self.sent > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_told_once_in_so_many_datagrams() {
        let mut received = Received::default();
        assert_eq!(received.add(EVERY - 1), None);
        assert_eq!(received.add(1), Some(EVERY.to_le_bytes()));
        assert_eq!(received.add(100), None);
        assert_eq!(received.add(EVERY), Some((2 * EVERY + 100).to_le_bytes()));
    }

    #[test]
    fn no_more_is_on_its_way_than_the_window() {
        let mut credit = Credit::new(false, 1);
        credit.sent(WINDOW);
        assert_eq!(credit.room(), 0);
        credit.told(&1024_u64.to_le_bytes());
        assert_eq!(credit.room(), 1024);
        assert_eq!(Credit::new(false, 1000).room(), EVERY);
        credit.told(b"noise");
        credit.told(&1_u64.to_le_bytes());
        assert_eq!(credit.room(), 1024, "an old count takes nothing back");
        credit.told(&u64::MAX.to_le_bytes());
        assert_eq!(credit.room(), WINDOW, "nobody has received more than was sent");
    }

    #[test]
    fn what_is_lost_does_not_stop_the_load_and_a_silent_server_is_not_waited_for() {
        let mut credit = Credit::new(true, 1);
        credit.sent(WINDOW_PLAIN);
        credit.told(&1024_u64.to_le_bytes());
        (1..LOOKS).for_each(|_| credit.stalled());
        assert_eq!(credit.room(), 1024);
        credit.stalled();
        assert_eq!(credit.room(), WINDOW_PLAIN);
        credit.sent(WINDOW_PLAIN);
        assert_eq!(credit.room(), 0);
        let mut silent = Credit::new(true, 1);
        silent.sent(WINDOW_PLAIN);
        (0..LOOKS).for_each(|_| silent.stalled());
        silent.sent(10 * WINDOW_PLAIN);
        assert_eq!(silent.room(), WINDOW_PLAIN);
    }
}
