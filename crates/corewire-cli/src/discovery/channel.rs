//! A channel that follows a service of very many endpoints.

use std::time::Instant;

use corewire_rpc::discover::registry::{CatalogLimits, Endpoint, LocalRegistry, RegistryError};
use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};

use super::{DiscoveryRow, Pace};
use crate::failure::Failure;
use crate::heap;
use crate::percentiles::latency;

/// Calls that are measured. Each may connect to two endpoints, of which both ends are in this process.
const CALLS: usize = 2_000;

/// Calls one after the other, most of which find the endpoints that they choose not connected to yet.
pub(super) fn of(endpoints: usize, pace: Pace) -> Result<DiscoveryRow, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
    let echo = Service::new("Bench").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
    let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).workers(1).start();
    let server = server.map_err(|error| failed(&error))?;
    let address = server.local_addrs()[0].to_string();
    let limits = CatalogLimits { endpoints_per_service_max: endpoints, ..Default::default() };
    let registry = LocalRegistry::with_limits(limits);
    let _leases = (0..endpoints)
        .map(|n| registry.register(Endpoint::new("Bench", format!("instance-{n}"), &*address)?))
        .collect::<Result<Vec<_>, RegistryError>>()
        .map_err(|error| failed(&error))?;
    let (before, began) = (heap::totals().live_bytes, Instant::now());
    let channel = corewire::block_on(Channel::discover(&registry, "Bench").build());
    let channel = channel.map_err(|error| failed(&error))?;
    let call = || corewire::block_on(channel.unary("Bench/echo", "")).map_err(|error| failed(&error));
    call()?;
    let first_call = began.elapsed();
    let heap_bytes = heap::totals().live_bytes.saturating_sub(before);
    let (mut latencies, began) = (latency(), Instant::now());
    for _ in 0..CALLS {
        let began = Instant::now();
        call()?;
        latencies.saturating_record(began.elapsed().as_nanos() as u64);
    }
    let seconds = began.elapsed().as_secs_f64();
    channel.close();
    Ok(DiscoveryRow {
        workload: format!("channel of {endpoints} endpoints, {CALLS} calls"),
        workers: 1,
        threads: pace.threads,
        seconds,
        ops_per_s: CALLS as f64 / seconds,
        registered: 0,
        discovered: 0,
        deregistered: 0,
        looked_up: 0,
        errors: 0,
        heap_bytes_per_op: 0.0,
        cpu_ns_per_op: None,
        p50_ns: Some(latencies.value_at_quantile(0.5)),
        p99_ns: Some(latencies.value_at_quantile(0.99)),
        first_call_ms: Some(first_call.as_secs_f64() * 1e3),
        heap_bytes_per_endpoint: Some(heap_bytes as f64 / endpoints as f64),
        report_ops_per_s: None,
    })
}
