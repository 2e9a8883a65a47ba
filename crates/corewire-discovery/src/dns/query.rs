use crate::{DEFAULT_WEIGHT, Endpoint, RegistryError};
use hashbrown::HashMap;
use hickory_resolver::TokioResolver;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The name to look up for each service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Addresses { host: String, port: u16 },
    Services { name: String },
}

/// What DNS says of a service, and until when.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    pub(super) valid_until: Option<Instant>,
    pub(super) targets: Arc<Targets>,
}

/// The last known addresses of each target of SRV records.
pub(super) type Targets = HashMap<String, Vec<IpAddr>>;

/// Most targets of SRV records that are looked up for one service.
const TARGETS_MAX: usize = 256;
/// Most targets that are looked up at the same time for one service.
const LOOKUPS_MAX: usize = 16;

impl Pattern {
    pub(super) fn parse(name: &str) -> Result<Self, RegistryError> {
        let bad = |reason: &str| RegistryError::BadUri { uri: format!("dns:{name}"), reason: reason.into() };
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(bad("there is no name"));
        }
        match name.rsplit_once(':') {
            None if name.starts_with('_') => Ok(Self::Services { name: name.to_owned() }),
            None => Err(bad("a name of address records needs a port; one of SRV records begins with '_'")),
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                let port = port.ok_or_else(|| bad("the port is not from 1 to 65535"))?;
                if host.is_empty() {
                    return Err(bad("there is no name"));
                }
                Ok(Self::Addresses { host: host.to_owned(), port })
            }
        }
    }

    /// Asks DNS. `known` is what the last answer said of targets.
    pub(super) async fn ask(
        &self,
        resolver: &TokioResolver,
        service: &str,
        known: &Targets,
    ) -> Result<Answer, NetError> {
        let named = |pattern: &str| pattern.replace("{service}", service);
        match self {
            Self::Addresses { host, port } => {
                let (addresses, valid_until) = addresses(resolver, &named(host)).await?;
                let endpoints = collect(service, addresses.into_iter().map(|ip| (ip, *port, DEFAULT_WEIGHT)));
                Ok(Answer { endpoints, valid_until, targets: Arc::default() })
            }
            Self::Services { name } => services(resolver, &named(name), service, known).await,
        }
    }
}

async fn services(
    resolver: &TokioResolver,
    name: &str,
    service: &str,
    known: &Targets,
) -> Result<Answer, NetError> {
    let lookup = match resolver.srv_lookup(name).await {
        Ok(lookup) => lookup,
        Err(error) if error.is_no_records_found() => {
            return Ok(Answer { endpoints: Vec::new(), valid_until: None, targets: Arc::default() });
        }
        Err(error) => return Err(error),
    };
    let records = || {
        lookup.answers().iter().filter_map(|record| match &record.data {
            // The root as target says that there is decidedly no such service.
            RData::SRV(srv) if !srv.target.is_root() && srv.port > 0 => Some(srv),
            _ => None,
        })
    };
    let best = records().map(|srv| srv.priority).min();
    let mut best: Vec<&SRV> = records().filter(|srv| Some(srv.priority) == best).collect();
    if best.len() > TARGETS_MAX {
        tracing::warn!(%service, targets = best.len(), limit = TARGETS_MAX, "targets left out");
        best.truncate(TARGETS_MAX);
    }
    let names = best.iter().map(|srv| srv.target.to_utf8());
    let (targets, until) = look_up(resolver, service, names, known).await?;
    let found = best.iter().flat_map(|srv| {
        let ips = targets.get(&srv.target.to_utf8()).into_iter().flatten();
        ips.map(|ip| (*ip, srv.port, srv.weight))
    });
    let endpoints = collect(service, found);
    let valid_until = until.into_iter().chain([lookup.valid_until()]).min();
    Ok(Answer { endpoints, valid_until, targets: Arc::new(targets) })
}

/// The addresses of targets, and until when they are good. One that cannot be looked up is as it was known before and is
/// to be asked for again at once; an error says that nothing is known of any.
async fn look_up(
    resolver: &TokioResolver,
    service: &str,
    names: impl Iterator<Item = String>,
    known: &Targets,
) -> Result<(Targets, Option<Instant>), NetError> {
    let permits = Arc::new(Semaphore::new(LOOKUPS_MAX));
    let mut asking = JoinSet::new();
    let mut targets = Targets::new();
    for target in names {
        if targets.insert(target.clone(), Vec::new()).is_some() {
            continue;
        }
        let (resolver, permits) = (resolver.clone(), permits.clone());
        asking.spawn(async move {
            let _permit = permits.acquire().await;
            let answer = addresses(&resolver, &target).await;
            (target, answer)
        });
    }
    let (mut valid_until, mut failure) = (None::<Instant>, None);
    while let Some(asked) = asking.join_next().await {
        let Ok((target, answer)) = asked else { continue };
        match answer {
            Ok((ips, until)) => {
                valid_until = valid_until.into_iter().chain(until).min();
                targets.insert(target, ips);
            }
            Err(error) => {
                tracing::warn!(%service, %target, %error, "the target's last known addresses stay");
                valid_until = Some(Instant::now());
                match known.get(&target) {
                    Some(ips) => targets.insert(target, ips.clone()),
                    None => targets.remove(&target),
                };
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if targets.is_empty() => Err(error),
        _ => Ok((targets, valid_until)),
    }
}

async fn addresses(resolver: &TokioResolver, host: &str) -> Result<(Vec<IpAddr>, Option<Instant>), NetError> {
    match resolver.lookup_ip(host).await {
        Ok(lookup) => Ok((lookup.iter().collect(), Some(lookup.valid_until()))),
        Err(error) if error.is_no_records_found() => Ok((Vec::new(), None)),
        Err(error) => Err(error),
    }
}

fn collect(service: &str, found: impl IntoIterator<Item = (IpAddr, u16, u16)>) -> Vec<Arc<Endpoint>> {
    let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
    for (ip, port, weight) in found {
        let address = SocketAddr::new(ip, port).to_string();
        if endpoints.iter().any(|known| **known.address() == *address) {
            continue;
        }
        match Endpoint::new(service, address.as_str(), address.as_str()) {
            Ok(endpoint) => endpoints.push(Arc::new(endpoint.with_weight(weight))),
            Err(error) => tracing::warn!(%service, %address, %error, "record left out"),
        }
    }
    endpoints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_asked() {
        let addresses = |host: &str, port| Pattern::Addresses { host: host.into(), port };
        assert_eq!(Pattern::parse("h.example:70").unwrap(), addresses("h.example", 70));
        assert_eq!(Pattern::parse("{service}.x:1").unwrap(), addresses("{service}.x", 1));
        assert_eq!(Pattern::parse("_a._tcp.x").unwrap(), Pattern::Services { name: "_a._tcp.x".into() });
        for bad in ["", "h.example", "h:", "h:0", "h:65536", ":80", "a b:80", "//h:80"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }
}
