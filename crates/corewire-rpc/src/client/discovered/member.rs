//! The connections to one endpoint.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use corewire::NetUri;
use corewire::client::Connector;
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
    /// `None`, and a warning, for an address that cannot be connected to.
    pub(super) fn new(id: u64, endpoint: &Endpoint, of: &Discovered) -> Option<Self> {
        let (instance, address) = (endpoint.instance().clone(), endpoint.address().clone());
        let uri = NetUri::parse(&format!("tcp://{address}")).inspect_err(|error| {
            tracing::warn!(service = %of.service, %instance, %error, "endpoint left out");
        });
        let mut settings = of.settings.clone();
        settings.servers = vec![Connector::new(uri.ok()?, settings.connect.clone())];
        let local = LocalChannel::member(settings, of.home.clone(), of.group, of.channel.clone());
        Some(Self { id, instance, address, local, has_failed: Cell::new(false) })
    }

    pub(super) fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.address == *endpoint.address()
    }
}
