//! Making connections: the first one, and the next after a loss.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use corewire_proto::codec::Codec;
use corewire_runtime::{Runtime, WorkerHandle, spawn_local};
use futures_channel::oneshot;

use super::connection::{ClientConnection, ConnectionOwner, Keep};
use super::endpoint::Endpoint;
use super::error::ConnectError;
use super::inbox::Inbox;
use super::local;
use super::settings::Settings;
use super::worker_client::{Client, WeakClient};
use super::{NetClient, Shared};
use crate::framed::Framed;
use crate::handler::Handler;
use crate::session::SessionInner;

/// Makes a client on its worker and its first connection.
pub(super) async fn connect<C, H, CF, HF>(
    mut settings: Settings,
    worker: WorkerHandle,
    codec: CF,
    handler: HF,
) -> Result<NetClient, ConnectError>
where
    CF: Fn() -> C + Send + 'static,
    HF: Fn() -> H + Send + 'static,
    C: Codec,
    H: Handler,
{
    settings.check()?;
    settings.connector = settings.connector.load_secrets()?;
    let (sender, receiver) = oneshot::channel();
    let home = worker.clone();
    let begin = move || {
        drop(spawn_local(async move {
            let handler = move || -> Box<dyn Handler> { Box::new(handler()) };
            // Given up meanwhile: the client is dropped, and with it closed.
            let _ = sender.send(establish(home, settings, Box::new(codec), Box::new(handler)).await);
        }));
    };
    worker.run(begin).map_err(|_| ConnectError::Stopped)?;
    receiver.await.unwrap_or(Err(ConnectError::Stopped))
}

/// The worker of clients and channels that are made outside of workers; started with the first of them.
pub(super) fn shared_worker() -> Result<WorkerHandle, ConnectError> {
    static SHARED: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = match shared.take() {
        Some(runtime) => runtime,
        None => Runtime::builder().workers(1).name("corewire-client").build()?,
    };
    let worker = runtime.handle().worker(0).ok_or(ConnectError::Stopped);
    *shared = Some(runtime);
    worker
}

async fn establish<C: Codec>(
    worker: WorkerHandle,
    settings: Settings,
    codec: Box<dyn Fn() -> C>,
    handler: Box<dyn Fn() -> Box<dyn Handler>>,
) -> Result<NetClient, ConnectError> {
    let inbox = settings.inbox.map(|limit| Arc::new(Inbox::new(limit)));
    let (uri, remote_high_water) =
        (settings.connector.uri.clone(), settings.connector.settings.connection.high_water);
    let closed = Arc::new(AtomicBool::new(false));
    let client = Client::new(settings, codec, handler, inbox.clone(), closed.clone());
    client.connection.begin();
    attempt(&client).await?;
    let lane = client.lane.clone();
    let key = local::add(client, lane);
    let remote_bytes = AtomicUsize::new(0);
    let worker_id = worker.id();
    let shared = Shared { worker_id, worker, key, uri, inbox, closed, remote_bytes, remote_high_water };
    Ok(NetClient { shared: Arc::new(shared) })
}

async fn attempt<C: Codec>(client: &Rc<Client<C>>) -> Result<(), ConnectError> {
    let make = |attempt| {
        let number = client.connections.get() + 1;
        client.connections.set(number);
        Framed::with_opened(number, (client.codec)(), Endpoint::new(client.clone(), attempt), {
            let client = client.clone();
            move |session| client.established(session)
        })
    };
    client.settings.connector.connect(make).await
}

impl<C: Codec> ConnectionOwner for WeakClient<C> {
    type Established = Rc<SessionInner<C>>;

    fn with<R>(&self, look: impl FnOnce(&ClientConnection<Self::Established>) -> R) -> Option<R> {
        self.0.upgrade().map(|client| look(&client.connection))
    }

    async fn attempt(&self) -> Result<(), ConnectError> {
        match self.0.upgrade() {
            Some(client) => attempt(&client).await,
            None => Err(ConnectError::Stopped),
        }
    }

    fn is_wanted(&self) -> bool {
        self.0.upgrade().is_some_and(|client| client.is_waited_for())
    }

    fn keep(&self) -> Keep {
        Keep::Always
    }

    fn changed(&self) {
        if let Some(client) = self.0.upgrade()
            && client.is_closed()
        {
            tracing::warn!(uri = %client.settings.connector.uri, "no more attempts to connect: the client closes");
            client.shut();
        }
    }
}
