//! What is measured over a path.

use corewire::kcp::{Config, CongestionControl, Mode};

/// A protocol with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// KCP as servers and clients set it by default.
    Kcp,
    /// KCP that paces by what the path takes, with windows that grow.
    KcpBbr,
    /// TCP as the system sets it.
    Tcp,
}

impl Protocol {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kcp => "kcp",
            Self::KcpBbr => "kcp bbr",
            Self::Tcp => "tcp",
        }
    }

    pub(super) const fn scheme(self) -> &'static str {
        match self {
            Self::Kcp | Self::KcpBbr => "kcp",
            Self::Tcp => "tcp",
        }
    }

    /// Settings of KCP other than the default.
    pub(super) fn config(self) -> Option<Config> {
        let config = || Config::turbo().mode(Mode::Stream).windows(1024, 1024).windows_max(16_384);
        (self == Self::KcpBbr).then(|| config().congestion(CongestionControl::Bbr))
    }
}
