//! Making connections, and making them again.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use corewire::NetUri;
use corewire::kcp::ClientOptions;
use corewire::uri::{Host, Scheme};
use corewire_driver::net::{connect_tcp, connect_unix};
use corewire_runtime::backoff::Backoff;
use corewire_runtime::{CloseReason, Connection, sleep, spawn_blocking, timeout};
use futures_channel::oneshot;

use super::connection::Endpoint;
use super::local::{LocalChannel, Seat};
use super::settings::Server;
use crate::status::Status;

/// Connects for a seat; after a failure again, as long as somebody waits for it.
pub(super) async fn keep_trying(channel: Rc<LocalChannel>, seat: usize) {
    let (initial, max) = channel.settings.backoff;
    let backoff = Backoff::new(corewire_driver::entropy::u64()).with_bounds(initial, max);
    let weak = Rc::downgrade(&channel);
    let mut attempt = seat;
    let mut waits = backoff.into_iter();
    let mut channel = Some(channel);
    loop {
        let Some(this) = channel.take().or_else(|| weak.upgrade()) else { return };
        if this.is_closed() {
            return;
        }
        let server = attempt % this.settings.servers.len();
        attempt += 1;
        let Err(error) = connect(&this, seat, server).await else { return };
        tracing::debug!(%error, "connecting failed");
        this.set_seat(seat, Seat::Waiting(error));
        drop(this);
        let Some(wait) = waits.next() else { return };
        sleep(wait).await;
        let Some(this) = weak.upgrade() else { return };
        if !this.is_wanted() {
            return this.set_seat(seat, Seat::Empty);
        }
        this.set_seat(seat, Seat::Connecting);
    }
}

enum Target {
    Tcp(SocketAddr),
    Kcp(SocketAddr),
    Unix(PathBuf),
}

/// Tries each address of a server.
async fn connect(channel: &Rc<LocalChannel>, seat: usize, server: usize) -> Result<(), Status> {
    let Server { uri, kcp } = &channel.settings.servers[server];
    let failed = |why: &dyn std::fmt::Display| {
        Status::unavailable(format!("cannot connect to {uri}: {why}")).not_begun()
    };
    let mut last = failed(&"it has no address");
    for target in targets(uri).await.map_err(|error| failed(&error))? {
        match connect_to(channel, seat, &target, kcp).await {
            Ok(()) => return Ok(()),
            Err(error) => last = failed(&error),
        }
    }
    Err(last)
}

async fn targets(uri: &NetUri) -> io::Result<Vec<Target>> {
    match (uri.scheme(), uri.host()) {
        (Scheme::Unix, Host::UnixPath(path)) => Ok(vec![Target::Unix(PathBuf::from(path))]),
        (Scheme::Unix, Host::UnixAbstract(name)) => Ok(vec![Target::Unix(PathBuf::from(format!("@{name}")))]),
        (scheme @ (Scheme::Tcp | Scheme::Kcp), host) => {
            let resolved = match host {
                Host::Name(_) => {
                    let uri = uri.clone();
                    let resolving = spawn_blocking(move || uri.resolve());
                    resolving.await.map_err(io::Error::other)?.map_err(io::Error::other)?
                }
                _ => uri.resolve().map_err(io::Error::other)?,
            };
            let target = if scheme == Scheme::Kcp { Target::Kcp } else { Target::Tcp };
            Ok(resolved.into_iter().map(target).collect())
        }
        (other, _) => Err(io::Error::other(format!(
            "a channel cannot connect to \"{}\": use tcp, kcp or unix",
            other.as_str()
        ))),
    }
}

async fn connect_to(
    channel: &Rc<LocalChannel>,
    seat: usize,
    target: &Target,
    kcp: &ClientOptions,
) -> io::Result<()> {
    let settings = &channel.settings;
    let (sender, receiver) = oneshot::channel();
    let endpoint = Endpoint::new(channel, seat, sender);
    let options = Rc::new(settings.connection.clone());
    let connection = match target {
        Target::Tcp(address) => {
            Connection::open_connecting(connect_tcp(*address, &settings.stream)?, options, endpoint)
        }
        Target::Kcp(address) => corewire::kcp::connect(*address, kcp, options, endpoint),
        Target::Unix(path) => {
            Connection::open_connecting(connect_unix(path, &settings.stream)?, options, endpoint)
        }
    }?;
    let guard = AbortOnDrop(Some(connection));
    match timeout(settings.connect_timeout, receiver).await {
        Ok(Ok(opened)) => {
            opened?;
            guard.keep();
            Ok(())
        }
        Ok(Err(_)) => Err(io::Error::other("the connection was lost at once")),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {:?}", settings.connect_timeout),
        )),
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
