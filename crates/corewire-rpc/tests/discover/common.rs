//! What the tests share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::eventually;
use corewire::{ServerHandle, block_on};
use corewire_rpc::discover::registry::{Endpoint, LocalLease, LocalRegistry, RoundRobin};
use corewire_rpc::discover::{DiscoverBuilder, Registration};
use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, Sink, Status};

/// Says who it is; `wait` answers after the given ms, `ticks` for ever.
pub(crate) fn who(name: &str) -> Service {
    counting(name, &Arc::default())
}

/// As `who`, and counts the calls of `wait`.
pub(crate) fn counting(name: &str, begun: &Arc<AtomicUsize>) -> Service {
    let begun = begun.clone();
    let said = Bytes::from(name.to_owned());
    let waited = said.clone();
    Service::new("Who")
        .unary("name", move |_: Bytes, _: Context| std::future::ready(Ok(said.clone())))
        .unary("wait", move |ms: Bytes, _: Context| {
            begun.fetch_add(1, Ordering::SeqCst);
            let (said, ms) = (waited.clone(), std::str::from_utf8(&ms).unwrap().parse().unwrap());
            async move {
                corewire::sleep(Duration::from_millis(ms)).await;
                Ok(said)
            }
        })
        .server_stream("ticks", |_: Bytes, mut ticks: Sink, _: Context| async move {
            loop {
                ticks.send(Bytes::from_static(b"tick")).await?;
                corewire::sleep(Duration::from_millis(1)).await;
            }
        })
}

pub(crate) fn server(registry: &LocalRegistry, name: &str) -> ServerHandle {
    let registration = Registration::new(registry).instance(name.to_owned());
    RpcServer::bind("tcp://127.0.0.1:0")
        .service(who(name))
        .register_as(registration)
        .workers(1)
        .start()
        .unwrap()
}

/// One that is in the registry by hand, so that nobody takes it out when it dies.
pub(crate) fn unregistered(name: &str) -> ServerHandle {
    RpcServer::bind("tcp://127.0.0.1:0").service(who(name)).workers(1).start().unwrap()
}

pub(crate) fn put(registry: &LocalRegistry, name: &str, address: impl ToString) -> LocalLease {
    registry.register(Endpoint::new("Who", name.to_owned(), address.to_string()).unwrap()).unwrap()
}

pub(crate) fn in_turn(registry: &LocalRegistry) -> DiscoverBuilder {
    Channel::discover(registry, "Who").balancer(RoundRobin::new()).eager()
}

pub(crate) fn build(builder: DiscoverBuilder) -> Channel {
    block_on(builder.build()).unwrap()
}

pub(crate) fn name(channel: &Channel) -> Result<String, Status> {
    block_on(channel.unary("Who/name", "")).map(|name| String::from_utf8(name.to_vec()).unwrap())
}

/// How often each server answers.
pub(crate) fn answers(channel: &Channel, calls: usize) -> HashMap<String, usize> {
    let mut answers = HashMap::new();
    for _ in 0..calls {
        *answers.entry(name(channel).unwrap()).or_default() += 1;
    }
    answers
}

pub(crate) fn eventually_answers(channel: &Channel, servers: &[&str]) {
    eventually(&format!("calls go to {servers:?}"), || {
        // A call that was on its way to a server that died has failed: that is not yet so either.
        let answers: Result<HashSet<_>, _> = (0..4 * servers.len()).map(|_| name(channel)).collect();
        answers.is_ok_and(|answers| answers == servers.iter().map(ToString::to_string).collect())
    });
}
