//! A registry for other processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corewire_discovery::{Endpoint, LocalLease, LocalRegistry, RegistryError};
use corewire_proto::rpc::Code;

use super::wire::{
    Deregister, Deregistered, Empty, Endpoints, Of, Record, Register, Renew, Renewed, SERVICE, Services, Told,
};
use crate::message::Json;
use crate::server::{Context, Service};
use crate::sink::Sink;
use crate::status::Status;

/// Most leases that other processes hold in one registry.
pub const LEASES_MAX: usize = 65_536;

/// A registry as a service, `corewire.Registry`, which an [`RpcRegistry`](super::RpcRegistry) in another process uses.
///
/// Its messages are JSON. `register` takes `{"endpoint": {"service", "instance", "address", "weight", "zone", "tags"},
/// "ttl_ms", "lease"}`, where the lease is a number that the client draws; `renew` takes `{"leases": […]}` and answers
/// which are `gone` and which were `taken` by another registration of the instance; `deregister` takes `{"lease"}`;
/// `services` takes `{}`; `list` and `watch` take `{"service"}`. `watch` answers by a stream of
/// `{"change": "reset", "endpoints"}`, `{"change": "put", "endpoint"}` and `{"change": "removed", "instance"}`. An endpoint
/// that is not valid is left out by the client, also one that was valid before.
///
/// What is registered in the registry by this process itself is served as well. It keeps [`LEASES_MAX`] leases.
///
/// ```
/// use corewire_rpc::RpcServer;
/// use corewire_rpc::discover::registry::{Endpoint, LocalRegistry};
/// use corewire_rpc::discover::{connect, registry_service};
///
/// let registry = LocalRegistry::new();
/// let server = RpcServer::bind("tcp://127.0.0.1:0").service(registry_service(&registry)).workers(1).start()?;
/// let address = server.uri().replace("tcp:", "rpc:");
/// let _lease = registry.register(Endpoint::new("Echo", "1", "10.0.0.1:7000")?)?;
/// corewire::block_on(async {
///     let elsewhere = connect(&address).await?;
///     assert_eq!(elsewhere.discover("Echo").await?.len(), 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn registry_service(registry: &LocalRegistry) -> Service {
    let served = Arc::new(Served { registry: registry.clone(), leases: Mutex::default() });
    let here = |served: &Arc<Served>| served.clone();
    let (register, renew, deregister) = (here(&served), here(&served), here(&served));
    let (services, list, watch) = (registry.clone(), registry.clone(), registry.clone());
    Service::new(SERVICE)
        .unary("register", move |Json(request): Json<Register>, _: Context| {
            std::future::ready(register.register(request).map(Json))
        })
        .unary("renew", move |Json(request): Json<Renew>, _: Context| {
            std::future::ready(Ok(Json(renew.renew(&request))))
        })
        .unary("deregister", move |Json(request): Json<Deregister>, _: Context| {
            std::future::ready(Ok(Json(deregister.deregister(&request))))
        })
        .unary("services", move |_: Json<Empty>, _: Context| {
            let services = services.catalog().services().iter().map(ToString::to_string).collect();
            std::future::ready(Ok(Json(Services { services })))
        })
        .unary("list", move |Json(of): Json<Of>, _: Context| {
            let endpoints =
                list.discover(&of.service).iter().map(|endpoint| Record::from(&**endpoint)).collect();
            std::future::ready(Ok(Json(Endpoints { endpoints })))
        })
        .server_stream("watch", move |Json(of): Json<Of>, mut told: Sink<Json<Told>>, _: Context| {
            let watch = watch.watch(&of.service);
            async move {
                let mut watch = watch.map_err(|error| refusal(&error))?;
                while let Some(event) = watch.next().await {
                    if let Some(change) = Told::of(&event.change) {
                        told.send(Json(change)).await?;
                    }
                }
                Ok(())
            }
        })
}

struct Served {
    registry: LocalRegistry,
    leases: Mutex<Leases>,
}

#[derive(Default)]
struct Leases {
    by_id: HashMap<u64, LocalLease>,
    /// Those that ran out are looked for when there are so many.
    sweep_at: usize,
}

const SWEEP_MIN: usize = 1_024;

impl Served {
    fn register(&self, Register { endpoint, ttl_ms, lease }: Register) -> Result<Empty, Status> {
        let endpoint = Endpoint::try_from(endpoint).map_err(|error| Status::invalid(error.to_string()))?;
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let count = leases.by_id.len();
        if count >= leases.sweep_at.max(SWEEP_MIN) || count >= LEASES_MAX {
            leases.by_id.retain(|_, lease| lease.is_held());
            leases.sweep_at = leases.by_id.len() * 2;
        }
        if leases.by_id.len() >= LEASES_MAX {
            let text = format!("the registry holds its limit of {LEASES_MAX} leases");
            return Err(Status::new(Code::RESOURCE_EXHAUSTED, text));
        }
        let held = self.registry.register_with_ttl(endpoint, Duration::from_millis(ttl_ms));
        let held = held.map_err(|error| refusal(&error))?;
        leases.by_id.insert(lease, held);
        Ok(Empty {})
    }

    fn renew(&self, request: &Renew) -> Renewed {
        let mut renewed = Renewed::default();
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &request.leases {
            let Some(lease) = leases.by_id.get(id) else {
                renewed.gone.push(*id);
                continue;
            };
            if lease.renew().is_ok() {
                continue;
            }
            let endpoint = lease.endpoint();
            let known = self.registry.discover(endpoint.service());
            let is_taken = known.iter().any(|other| other.instance() == endpoint.instance());
            if is_taken {
                renewed.taken.push(*id)
            } else {
                renewed.gone.push(*id)
            }
            leases.by_id.remove(id);
        }
        renewed
    }

    fn deregister(&self, request: &Deregister) -> Deregistered {
        let lease = self.leases.lock().unwrap_or_else(PoisonError::into_inner).by_id.remove(&request.lease);
        Deregistered { was_held: lease.is_some_and(|lease| lease.deregister().is_ok()) }
    }
}

fn refusal(error: &RegistryError) -> Status {
    let code = match error {
        RegistryError::Full { .. } => Code::RESOURCE_EXHAUSTED,
        RegistryError::Endpoint(_) | RegistryError::BadTtl { .. } => Code::INVALID_REQUEST,
        _ => Code::INTERNAL,
    };
    Status::new(code, error.to_string())
}
