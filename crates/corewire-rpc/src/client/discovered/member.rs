//! The connections to one endpoint.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use corewire::ConnectError;
use corewire_discovery::Endpoint;

use super::serving::{WatchHealth, Watched};
use crate::client::pool::Pool;
use crate::client::settings::server_uri;

/// An endpoint that calls can go to.
pub(in crate::client) struct Member {
    /// No other member of the channel has it, even in the course of time.
    pub(in crate::client) id: u64,
    pub(super) instance: Arc<str>,
    address: Arc<str>,
    /// Its connections, once it is to be called.
    pool: OnceCell<Rc<Pool>>,
    /// Where it is among those that are picked from. It may be another one's by now.
    pub(super) position: Cell<usize>,
    /// A call to it has failed some time: its successes are news.
    pub(super) has_failed: Cell<bool>,
    /// If it is asked for its health, by a connection of its own, once it is to be called.
    watched: OnceCell<Watched>,
}

impl Member {
    /// # Errors
    /// Why it cannot be connected to.
    pub(super) fn new(id: u64, endpoint: &Endpoint) -> Result<Self, ConnectError> {
        let (instance, address) = (endpoint.instance().clone(), endpoint.address().clone());
        server_uri(&address)?;
        let (pool, position, has_failed) = (OnceCell::new(), Cell::new(0), Cell::new(false));
        Ok(Self { id, instance, address, pool, position, has_failed, watched: OnceCell::new() })
    }

    /// Its connections, of which there may be none yet. They have the settings of the channel, keys among them, whatever
    /// its scheme.
    pub(super) fn open(&self, of: &Rc<Pool>, health: Option<&WatchHealth>) -> &Rc<Pool> {
        self.pool.get_or_init(|| {
            let mut settings = of.settings.clone();
            let server = settings.connector(&self.address);
            settings.servers = server.into_iter().collect();
            if let Some(watched) = health.and_then(|health| health.start(settings.clone(), of)) {
                self.watched.get_or_init(|| watched);
            }
            Pool::member(settings, of)
        })
    }

    /// Its connections, if it was ever to be called.
    pub(super) fn opened(&self) -> Option<&Rc<Pool>> {
        self.pool.get()
    }

    /// It takes calls, as far as it was asked.
    pub(super) fn is_serving(&self) -> bool {
        self.watched.get().is_none_or(Watched::is_serving)
    }

    pub(super) fn is_established(&self) -> bool {
        self.opened().is_some_and(|pool| pool.has_connections())
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.opened().is_some_and(|pool| pool.is_connecting())
    }

    /// It was opened, and is given up.
    pub(super) fn is_closed(&self) -> bool {
        self.opened().is_some_and(|pool| pool.is_closed())
    }

    pub(super) fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.address == *endpoint.address()
    }
}
