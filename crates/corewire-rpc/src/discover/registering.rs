//! Servers that register themselves as soon as they listen.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use corewire::{ServerError, ServerHandle};
use corewire_discovery::RegistryError;
use futures_channel::oneshot;

use super::keeper::Keeper;
use super::registration::{Registration, RegistrationError};
use super::source::RegistrySource;
use crate::server::{OnStart, RpcServer};

/// How long a start waits for a registry before the server goes on trying by itself.
const START_WAIT: Duration = Duration::from_secs(5);
/// How long a shutdown waits for a registry at the most.
const DEREGISTER_WAIT: Duration = Duration::from_secs(2);

impl RpcServer {
    /// Makes all its services known to this registry, once it listens and until a shutdown begins. The registry is one
    /// that is open, or an address as [`discover::connect`](crate::discover::connect) takes it.
    ///
    /// Short for [`register_as`](Self::register_as) with the defaults of [`Registration`].
    pub fn register(self, registry: impl Into<RegistrySource>) -> Self {
        self.register_as(Registration::new(registry))
    }

    /// Makes services known to a registry, once it listens and until a shutdown begins: they are taken out of it before
    /// clients are told to go away.
    pub fn register_as(mut self, registration: Registration) -> Self {
        self.add_on_start(registration);
        self
    }
}

impl OnStart for Registration {
    /// Makes a server that listens known, and has its shutdown begin with the opposite.
    fn on_start(
        mut self: Box<Self>,
        server: &mut ServerHandle,
        services: &[String],
    ) -> Result<(), ServerError> {
        self.services.get_or_insert_with(|| services.to_vec());
        begin(server, *self).map_err(|error| ServerError::Registration(Box::new(error)))
    }
}

fn begin(server: &mut ServerHandle, registration: Registration) -> Result<(), RegistrationError> {
    let endpoints = registration.endpoints(server)?;
    let settle = registration.settle;
    let (started, on_start) = mpsc::channel();
    let (stop, on_stop) = oneshot::channel();
    let (done, on_done) = mpsc::channel();
    let keeper = Keeper { registration, endpoints, started, stop: on_stop, _done: done };
    let spawned = server.runtime().run_on(0, move || drop(corewire_runtime::spawn_local(keeper.run())));
    spawned.map_err(|_| RegistryError::Closed)?;
    match on_start.recv_timeout(START_WAIT) {
        Ok(result) => result?,
        Err(_) => tracing::warn!("the registry does not answer; the server goes on trying"),
    }
    let on_done = Mutex::new(on_done);
    server.on_shutdown(move |deadline| {
        let _ = stop.send(());
        if let Ok(on_done) = on_done.into_inner() {
            // Ready when the keeper is gone. A registry that does not answer lets the lease run out.
            let _: Result<(), _> = on_done.recv_timeout(deadline.min(DEREGISTER_WAIT));
        }
        std::thread::sleep(settle.min(deadline));
    });
    Ok(())
}
