//! `corewire registry`: a registry for several processes, and a look into any.

mod args;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use corewire_rpc::RpcServer;
use corewire_rpc::discover::registry::{
    Change, Endpoint, Event, LocalRegistry, RegisterOptions, Registry, RegistryError, Snapshot, Watch,
};
use corewire_rpc::discover::{connect, registry_service};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub(crate) use self::args::RegistryCommand;
use self::args::{DeregisterArgs, ListArgs, RegisterArgs, ServeRegistryArgs, WatchArgs, Which};
use crate::failure::Failure;

/// Does what was asked.
pub(crate) fn run(command: &RegistryCommand) -> Result<(), Failure> {
    match command {
        RegistryCommand::Serve(args) => serve(args),
        RegistryCommand::List(args) => list(args),
        RegistryCommand::Watch(args) => watch(args),
        RegistryCommand::Register(args) => register(args),
        RegistryCommand::Deregister(args) => deregister(args),
    }
}

pub(crate) fn open(address: &str) -> Result<Arc<dyn Registry>, Failure> {
    corewire::block_on(connect(address)).map_err(refused)
}

impl Which {
    fn open(&self) -> Result<Arc<dyn Registry>, Failure> {
        open(&self.tls.apply(&self.registry)?)
    }
}

fn refused(error: RegistryError) -> Failure {
    Failure::Library(error.to_string())
}

fn serve(args: &ServeRegistryArgs) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::io("cannot wait for signals"))?;
    let server = RpcServer::bind(args.tls.apply(&args.listen)?)
        .service(registry_service(&LocalRegistry::new()))
        .workers(1);
    let server = server.start().map_err(|error| Failure::Library(error.to_string()))?;
    write(&format!("listening on {}", server.uri()))?;
    let _ = signals.forever().next();
    eprintln!("corewire: {}", server.shutdown(Duration::from_secs(1)));
    Ok(())
}

/// An endpoint as it is written in JSON.
#[derive(Serialize)]
struct Written<'a> {
    service: &'a str,
    instance: &'a str,
    address: &'a str,
    weight: u16,
    zone: Option<&'a str>,
    tags: Vec<&'a str>,
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let registry = args.which.open()?;
    let services = match &args.service {
        Some(service) => vec![Arc::from(service.as_str())],
        None => corewire::block_on(registry.services()).map_err(refused)?,
    };
    let discover = |service: &Arc<str>| corewire::block_on(registry.discover(service)).map_err(refused);
    let found = services.iter().map(discover).collect::<Result<Vec<Arc<Snapshot>>, Failure>>()?;
    let mut endpoints: Vec<&Arc<Endpoint>> = found.iter().flat_map(|snapshot| snapshot.iter()).collect();
    endpoints.sort_by_key(|endpoint| (endpoint.service(), endpoint.instance()));
    if args.json {
        let written: Vec<Written<'_>> = endpoints.into_iter().map(|endpoint| written(endpoint)).collect();
        let json = serde_json::to_string_pretty(&written);
        return write(&json.map_err(Failure::io("cannot write the endpoints as JSON"))?);
    }
    endpoints.into_iter().try_for_each(|endpoint| write(&line(endpoint)))
}

fn written(endpoint: &Endpoint) -> Written<'_> {
    Written {
        service: endpoint.service(),
        instance: endpoint.instance(),
        address: endpoint.address(),
        weight: endpoint.weight(),
        zone: endpoint.zone(),
        tags: endpoint.tags().iter().map(AsRef::as_ref).collect(),
    }
}

fn line(endpoint: &Endpoint) -> String {
    let mut line = format!(
        "{}/{} {} weight {}",
        endpoint.service(),
        endpoint.instance(),
        endpoint.address(),
        endpoint.weight()
    );
    if let Some(zone) = endpoint.zone() {
        line += &format!(" zone {zone}");
    }
    if !endpoint.tags().is_empty() {
        line += &format!(" tags {}", endpoint.tags().join(","));
    }
    line
}

fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let registry = args.which.open()?;
    let mut watch: Watch = corewire::block_on(registry.watch(&args.service)).map_err(refused)?;
    let mut left = args.count.unwrap_or(usize::MAX);
    while left > 0
        && let Some(Event { change, .. }) = corewire::block_on(watch.next())
    {
        left -= 1;
        match change {
            Change::Reset(all) => {
                write(&format!("= {} endpoints", all.len()))?;
                all.iter().try_for_each(|endpoint| write(&format!("= {}", line(endpoint))))?;
            }
            Change::Added(endpoint) => write(&format!("+ {}", line(&endpoint)))?,
            Change::Updated { after, .. } => write(&format!("~ {}", line(&after)))?,
            Change::Removed(endpoint) => write(&format!("- {}", line(&endpoint)))?,
            other => write(&format!("? {other:?}"))?,
        }
    }
    Ok(())
}

fn register(args: &RegisterArgs) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::io("cannot wait for signals"))?;
    let endpoint = endpoint(args).map_err(refused)?;
    let registry = args.which.open()?;
    let mut options = RegisterOptions::new();
    options.ttl = args.ttl;
    let lease = corewire::block_on(registry.register(Arc::new(endpoint), options)).map_err(refused)?;
    write(&format!("registered {}", line(lease.endpoint())))?;
    let _ = signals.forever().next();
    corewire::block_on(lease.deregister()).map_err(refused)
}

fn endpoint(args: &RegisterArgs) -> Result<Endpoint, RegistryError> {
    let instance = args.instance.as_deref().unwrap_or(&args.address);
    let endpoint = Endpoint::new(&*args.service, instance, &*args.address)?.with_weight(args.weight);
    let endpoint = match &args.zone {
        Some(zone) => endpoint.with_zone(&**zone)?,
        None => endpoint,
    };
    Ok(endpoint.with_tags(args.tag.iter().map(String::as_str))?)
}

/// Registers the instance once more, which takes it over, and gives it back.
fn deregister(args: &DeregisterArgs) -> Result<(), Failure> {
    let registry = args.which.open()?;
    let known = corewire::block_on(registry.discover(&args.service)).map_err(refused)?;
    let found = known.iter().find(|endpoint| **endpoint.instance() == *args.instance);
    let missing =
        || Failure::Setting(format!("there is no {}/{} in the registry", args.service, args.instance));
    let endpoint = found.ok_or_else(missing)?.clone();
    let lease = corewire::block_on(registry.register(endpoint, RegisterOptions::new())).map_err(refused)?;
    corewire::block_on(lease.deregister()).map_err(refused)
}

fn write(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(Failure::io("cannot write to standard output"))
}
