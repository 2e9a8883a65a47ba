//! The connections to one endpoint.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use corewire::client::Connector;
use corewire::uri::Scheme;
use corewire::{ConnectError, NetUri};
use corewire_discovery::Endpoint;

use super::Discovered;
use crate::client::local::LocalChannel;

/// An endpoint that calls can go to.
pub(in crate::client) struct Member {
    /// No other member of the channel has it, even in the course of time.
    pub(in crate::client) id: u64,
    pub(super) instance: Arc<str>,
    address: Arc<str>,
    pub(super) local: Rc<LocalChannel>,
    /// A call to it has failed some time: its successes are news.
    pub(super) has_failed: Cell<bool>,
}

impl Member {
    /// Its connections have the settings of the channel, keys among them, whatever its scheme.
    ///
    /// # Errors
    /// Why it cannot be connected to.
    pub(super) fn new(id: u64, endpoint: &Endpoint, of: &Discovered) -> Result<Self, ConnectError> {
        let (instance, address) = (endpoint.instance().clone(), endpoint.address().clone());
        // What has no scheme is TCP.
        let uri = NetUri::parse(&address)?;
        if !matches!(uri.scheme(), Scheme::Tcp | Scheme::Unix | Scheme::Kcp) {
            return Err(ConnectError::Scheme(uri.scheme()));
        }
        let mut settings = of.settings.clone();
        settings.servers = vec![Connector::new(uri, settings.connect.clone())];
        let local = LocalChannel::member(settings, of.home.clone(), of.group, of.channel.clone());
        Ok(Self { id, instance, address, local, has_failed: Cell::new(false) })
    }

    pub(super) fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.address == *endpoint.address()
    }
}
