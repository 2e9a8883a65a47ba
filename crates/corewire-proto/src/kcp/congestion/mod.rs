//! What limits the data in flight beside the windows of both ends.

mod bbr;
mod kcp_window;
mod pacer;
mod rate;

use self::bbr::Bbr;
use self::kcp_window::KcpWindow;
pub(super) use self::rate::{Delivered, Stamp};

/// How a conversation finds out how much it may send ([`Config::congestion`](super::Config::congestion)). It is a
/// matter of the sender alone: the peer need not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CongestionControl {
    /// Only the windows limit what is in flight, as with KCP's `nc` = 1: right where bandwidth is plenty and the
    /// windows suit the path.
    Off,
    /// KCP's own window: slow start, one segment more per round trip, halved when something is lost (`nc` = 0).
    #[default]
    Kcp,
    /// By the rate at which the path delivers and its shortest round trip, as TCP BBR does: paced, in flight about
    /// twice what the path holds at the most, and indifferent to loss that is not of its own making. Windows grow
    /// with the path, up to [`Config::windows_max`](super::Config::windows_max).
    Bbr,
}

/// The congestion control of one conversation.
#[derive(Debug)]
pub(super) enum Congestion {
    Off,
    Kcp(KcpWindow),
    Bbr(Box<Bbr>),
}

impl Congestion {
    pub(super) fn new(control: CongestionControl, window_max: u32, first_number: u32, mtu: usize) -> Self {
        match control {
            CongestionControl::Off => Self::Off,
            CongestionControl::Kcp => Self::Kcp(KcpWindow::new(window_max, first_number)),
            CongestionControl::Bbr => Self::Bbr(Box::new(Bbr::new(mtu as u64))),
        }
    }

    /// Segments that may be in flight, counted from the oldest that is not acknowledged.
    #[inline]
    pub(super) const fn window(&self) -> u32 {
        match self {
            Self::Kcp(window) => window.segments(),
            Self::Off | Self::Bbr(_) => u32::MAX,
        }
    }

    /// Lets time pass for the pace.
    #[inline]
    pub(super) fn advance(&mut self, now: u64) {
        if let Self::Bbr(bbr) = self {
            bbr.advance(now);
        }
    }

    /// A segment may be sent again now.
    #[inline]
    pub(super) const fn may_resend(&self) -> bool {
        match self {
            Self::Bbr(bbr) => bbr.may_resend(),
            Self::Off | Self::Kcp(_) => true,
        }
    }

    /// A segment may be sent for the first time now, if the window has room.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        match self {
            Self::Bbr(bbr) => bbr.may_send(),
            Self::Off | Self::Kcp(_) => true,
        }
    }

    /// When a segment may be sent again, if nothing is acknowledged before.
    pub(super) fn resend_at(&self, now: u64) -> u64 {
        match self {
            Self::Bbr(bbr) => bbr.resend_at(now),
            Self::Off | Self::Kcp(_) => now,
        }
    }

    /// When a segment may be sent for the first time, if nothing is acknowledged before; `None`: never.
    pub(super) fn send_at(&self, now: u64) -> Option<u64> {
        match self {
            Self::Bbr(bbr) => bbr.send_at(now),
            Self::Off | Self::Kcp(_) => Some(now),
        }
    }

    /// A segment of `len` bytes leaves; what is to be kept with it until it is acknowledged.
    #[inline]
    pub(super) fn on_sent(&mut self, now: u64, len: usize, is_first: bool) -> Stamp {
        match self {
            Self::Bbr(bbr) => bbr.on_sent(now, len as u64, is_first),
            Self::Off | Self::Kcp(_) => Stamp::default(),
        }
    }

    /// Everything that there was to send has been sent.
    #[inline]
    pub(super) fn on_drained(&mut self) {
        if let Self::Bbr(bbr) = self {
            bbr.on_drained();
        }
    }

    #[inline]
    pub(super) fn on_acknowledged(&mut self, now: u64, delivered: &Delivered) {
        match self {
            Self::Off => {}
            Self::Kcp(window) => window.on_acknowledged(delivered.segments),
            Self::Bbr(bbr) => bbr.on_acknowledged(now, delivered),
        }
    }

    /// Segment `number` was lost while later ones came through; `next` is the first number not yet sent.
    pub(super) fn on_loss(&mut self, number: u32, next: u32, in_flight: u32) {
        if let Self::Kcp(window) = self {
            window.on_loss(number, next, in_flight);
        }
    }

    /// Segment `number` ran into its time-out, and nothing sent after it was acknowledged either.
    pub(super) fn on_silence(&mut self, number: u32, next: u32) {
        match self {
            Self::Off => {}
            Self::Kcp(window) => window.on_silence(number, next),
            Self::Bbr(bbr) => bbr.on_silence(),
        }
    }

    /// Nothing is in flight any more, and nothing will be.
    pub(super) fn clear(&mut self) {
        if let Self::Bbr(bbr) = self {
            bbr.clear();
        }
    }
}
