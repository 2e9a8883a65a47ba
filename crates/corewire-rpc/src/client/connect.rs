//! The pool's connections as they are kept: one attempt, and when there is another.

use std::rc::Weak;

use corewire::ConnectError;
use corewire::client::{ClientConnection, ConnectionOwner, Keep};
use corewire::uri::Scheme;

use super::connection::Endpoint;
use super::local::LocalChannel;
use crate::link::Link;

/// A slot of a channel's pool, as its connection knows it.
#[derive(Clone)]
pub(super) struct WeakSlot {
    pub(super) channel: Weak<LocalChannel>,
    pub(super) slot: usize,
}

impl ConnectionOwner for WeakSlot {
    type Established = std::rc::Rc<Link>;

    fn with<R>(&self, look: impl FnOnce(&ClientConnection<Self::Established>) -> R) -> Option<R> {
        self.channel.upgrade().map(|channel| look(&channel.slot(self.slot).connection))
    }

    async fn attempt(&self) -> Result<(), ConnectError> {
        let channel = self.channel.upgrade().ok_or(ConnectError::Stopped)?;
        let connector = channel.next_server(self.slot);
        // A stream of bytes is needed.
        if connector.uri().scheme() == Scheme::Udp {
            return Err(ConnectError::Scheme(Scheme::Udp));
        }
        connector.connect(|attempt| Endpoint::new(self.clone(), attempt)).await
    }

    fn is_wanted(&self) -> bool {
        self.channel.upgrade().is_some_and(|channel| channel.is_wanted())
    }

    fn keep(&self) -> Keep {
        let is_member = self.channel.upgrade().is_some_and(|channel| channel.is_member());
        if is_member { Keep::OnceWanted } else { Keep::WhileWanted }
    }

    fn changed(&self) {
        if let Some(channel) = self.channel.upgrade() {
            channel.wake_all();
        }
    }
}
