//! Making connections: the first one, and the next after a loss.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use corewire_driver::Socket;
use corewire_driver::net::{connect_tcp, connect_unix};
use corewire_proto::codec::Codec;
use corewire_runtime::{
    CloseReason, Connection, ConnectionOptions, Runtime, WorkerHandle, sleep, spawn_blocking, spawn_local,
    timeout,
};
use futures_channel::oneshot;

use super::endpoint::Endpoint;
use super::error::ConnectError;
use super::inbox::Inbox;
use super::local::{self, Client, Link};
use super::settings::Settings;
use super::{NetClient, Shared};
use crate::datagram::{self, DatagramKind, reachable};
use crate::framed::Framed;
use crate::handler::Handler;
use crate::server::unix_path;
use crate::uri::{Host, NetUri, Scheme};

/// Makes a client on its worker and its first connection.
pub(super) async fn connect<C, H, CF, HF>(
    mut settings: Settings,
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
    settings.datagram.answer_timeout = settings.connect_timeout;
    if let (None, Some(source)) = (&settings.datagram.key, settings.uri.key_source()) {
        settings.datagram.key = Some(source.load()?);
    }
    let worker = match settings.worker.clone().or_else(WorkerHandle::current) {
        Some(worker) => worker,
        None => shared_worker()?,
    };
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

/// The worker of clients that are made outside of workers; started with the first of them.
fn shared_worker() -> Result<WorkerHandle, ConnectError> {
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
    let (uri, remote_high_water) = (settings.uri.clone(), settings.connection.high_water);
    let closed = Arc::new(AtomicBool::new(false));
    let client = Client::new(settings, codec, handler, inbox.clone(), closed.clone());
    attempt(&client).await?;
    let key = local::add(client);
    let shared =
        Shared { worker, key, uri, inbox, closed, remote_bytes: AtomicUsize::new(0), remote_high_water };
    Ok(NetClient { shared: Arc::new(shared) })
}

/// Comes back after a loss, or closes the client if it may not.
pub(super) fn reconnect<C: Codec>(client: &Rc<Client<C>>) {
    let Some(policy) = client.settings.reconnect.clone() else { return client.shut() };
    // Clients that lose the same server must not come back in step.
    let seed =
        Rc::as_ptr(client).addr() as u64 ^ client.connections.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let weak = client.weak.clone();
    drop(spawn_local(async move {
        for delay in policy.backoff(seed) {
            sleep(delay).await;
            let Some(client) = weak.upgrade() else { return };
            if client.is_closed() {
                return;
            }
            match attempt(&client).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "reconnecting failed"),
            }
        }
        if let Some(client) = weak.upgrade() {
            tracing::warn!(uri = %client.settings.uri, "reconnecting given up; the client closes");
            client.shut();
        }
    }));
}

enum Target {
    Tcp(SocketAddr),
    Datagram(DatagramKind, SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) | Self::Datagram(_, address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Tries each address of the client's URI.
async fn attempt<C: Codec>(client: &Rc<Client<C>>) -> Result<(), ConnectError> {
    let mut last = None;
    for target in targets(&client.settings.uri).await? {
        match attempt_at(client, &target).await {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    // A URI resolves to at least one address.
    Err(last.unwrap_or(ConnectError::Stopped))
}

async fn targets(uri: &NetUri) -> Result<Vec<Target>, ConnectError> {
    match uri.scheme() {
        Scheme::Unix => {
            unix_path(uri.host()).map(|path| vec![Target::Unix(path)]).ok_or(ConnectError::Stopped)
        }
        Scheme::Tcp | Scheme::Udp | Scheme::Kcp => {
            let resolved = match uri.host() {
                Host::Name(_) => {
                    let uri = uri.clone();
                    spawn_blocking(move || uri.resolve()).await.map_err(|_| ConnectError::Stopped)??
                }
                _ => uri.resolve()?,
            };
            let target = |address: SocketAddr| match uri.scheme() {
                Scheme::Udp => Target::Datagram(DatagramKind::Udp, reachable(address)),
                Scheme::Kcp => Target::Datagram(DatagramKind::Kcp, reachable(address)),
                _ => Target::Tcp(address),
            };
            Ok(resolved.into_iter().map(target).collect())
        }
        other => Err(ConnectError::Scheme(other)),
    }
}

async fn attempt_at<C: Codec>(client: &Rc<Client<C>>, target: &Target) -> Result<(), ConnectError> {
    let refused = |source| ConnectError::Refused { address: target.to_string(), source };
    let settings = &client.settings;
    let (sender, receiver) = oneshot::channel();
    let number = client.connections.get() + 1;
    client.connections.set(number);
    let endpoint = Endpoint::new(client.clone(), sender);
    let framed = Framed::with_opened(number, (client.codec)(), endpoint, {
        let client = client.clone();
        move |session| {
            if !client.is_closed() {
                client.set_link(Link::Up(session));
            }
        }
    });
    let options: Rc<ConnectionOptions> = Rc::new(settings.connection.clone());
    let open =
        |socket: io::Result<Socket>, options, framed| Connection::open_connecting(socket?, options, framed);
    let connection = match target {
        Target::Tcp(address) => open(connect_tcp(*address, &settings.stream), options, framed),
        Target::Unix(path) => open(connect_unix(path, &settings.stream), options, framed),
        Target::Datagram(kind, address) => {
            datagram::connect(*kind, *address, &settings.datagram, options, Box::new(framed))
        }
    };
    let connection = connection.map_err(refused)?;
    let guard = AbortOnDrop(Some(connection));
    match timeout(settings.connect_timeout, receiver).await {
        Ok(Ok(Ok(()))) => {
            guard.keep();
            Ok(())
        }
        Ok(Ok(Err(failed))) => Err(refused(failed)),
        Ok(Err(_)) => Err(ConnectError::Stopped),
        Err(_) => {
            Err(ConnectError::TimedOut { address: target.to_string(), timeout: settings.connect_timeout })
        }
    }
}

/// Ends an attempt that is given up.
struct AbortOnDrop(Option<Connection>);

impl AbortOnDrop {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.abort(CloseReason::Local);
        }
    }
}
