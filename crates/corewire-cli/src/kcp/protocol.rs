//! What is measured over a path.

use corewire::kcp::{Config, CongestionControl, Mode};

/// A protocol with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// KCP as servers and clients set it by default.
    Kcp,
    /// KCP that paces by what the path takes, with windows that grow.
    KcpBbr,
    /// KCP by default, with a datagram of parity for each.
    KcpFec,
    /// TCP as the system sets it.
    Tcp,
    /// TCP with BBR.
    TcpBbr,
    /// TCP with CUBIC.
    TcpCubic,
}

impl Protocol {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kcp => "kcp",
            Self::KcpBbr => "kcp bbr",
            Self::KcpFec => "kcp fec",
            Self::Tcp => "tcp",
            Self::TcpBbr => "tcp bbr",
            Self::TcpCubic => "tcp cubic",
        }
    }

    pub(super) const fn scheme(self) -> &'static str {
        if self.is_kcp() { "kcp" } else { "tcp" }
    }

    pub(super) const fn is_kcp(self) -> bool {
        matches!(self, Self::Kcp | Self::KcpBbr | Self::KcpFec)
    }

    /// Settings of KCP other than the default.
    pub(super) fn config(self) -> Option<Config> {
        let config = || Config::turbo().mode(Mode::Stream).windows(1024, 1024);
        match self {
            Self::KcpBbr => Some(config().windows_max(16_384).congestion(CongestionControl::Bbr)),
            Self::KcpFec => Some(config().fec(1, 1)),
            Self::Kcp | Self::Tcp | Self::TcpBbr | Self::TcpCubic => None,
        }
    }

    /// What the kernel calls the congestion control that it is to use.
    pub(super) const fn tcp_congestion(self) -> Option<&'static str> {
        match self {
            Self::TcpBbr => Some("bbr"),
            Self::TcpCubic => Some("cubic"),
            Self::Kcp | Self::KcpBbr | Self::KcpFec | Self::Tcp => None,
        }
    }
}
