//! Addresses of names, without blocking a worker.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::error::BlockingError;
use crate::task::run_on_pool;
use crate::worker::Core;

/// The addresses of a name, as the system's resolver gives them (`/etc/hosts`, DNS, …), in its order; a literal address is
/// itself, at once.
///
/// Names are looked up by threads that do nothing else, 16 of a runtime at the most, so that a DNS server which does not
/// answer keeps neither a worker nor [`spawn_blocking`](crate::spawn_blocking) waiting; 4,096 more look-ups wait for
/// one of them ([`Builder::lookups`](crate::Builder::lookups)). The system's own time-out holds, commonly 5 s for each of its
/// servers: give less by [`timeout`](crate::timeout). Dropping the future is safe at any point; its thread ends with the
/// system's answer.
///
/// ```
/// use corewire_runtime::lookup_host;
///
/// corewire_runtime::run(async {
///     let addresses = lookup_host("localhost", 80).await?;
///     assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What the system says of the name; `NotFound` if it has no address; or too many look-ups wait.
///
/// # Panics
/// Outside a worker.
pub async fn lookup_host(name: impl Into<String>, port: u16) -> io::Result<Vec<SocketAddr>> {
    let name = name.into();
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    if let Ok(ip) = literal.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let look_up = move || {
        let addresses: Vec<_> = (name.as_str(), port).to_socket_addrs()?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{name:?} has no address")));
        }
        Ok(addresses)
    };
    lookup(look_up).await.map_err(io::Error::other)?
}

/// Runs code that looks names up on the threads that are kept for that; see [`lookup_host`].
///
/// # Errors
/// As [`spawn_blocking`](crate::spawn_blocking).
///
/// # Panics
/// Outside a worker.
pub async fn lookup<R: Send + 'static>(
    look_up: impl FnOnce() -> R + Send + 'static,
) -> Result<R, BlockingError> {
    let pools = Core::current_or_panic("lookup").pools.clone();
    run_on_pool(&pools.lookups, look_up).await
}
