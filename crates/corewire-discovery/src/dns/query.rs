use crate::{DEFAULT_WEIGHT, Endpoint, RegistryError};
use hickory_resolver::TokioResolver;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::RData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

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
}

/// Most targets of SRV records that are looked up for one service.
const TARGETS_MAX: usize = 256;

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

    pub(super) async fn ask(&self, resolver: &TokioResolver, service: &str) -> Result<Answer, NetError> {
        let named = |pattern: &str| pattern.replace("{service}", service);
        match self {
            Self::Addresses { host, port } => {
                let (addresses, valid_until) = addresses(resolver, &named(host)).await?;
                let endpoints = collect(service, addresses.into_iter().map(|ip| (ip, *port, DEFAULT_WEIGHT)));
                Ok(Answer { endpoints, valid_until })
            }
            Self::Services { name } => services(resolver, &named(name), service).await,
        }
    }
}

async fn services(resolver: &TokioResolver, name: &str, service: &str) -> Result<Answer, NetError> {
    let lookup = match resolver.srv_lookup(name).await {
        Ok(lookup) => lookup,
        Err(error) if error.is_no_records_found() => {
            return Ok(Answer { endpoints: Vec::new(), valid_until: None });
        }
        Err(error) => return Err(error),
    };
    let mut valid_until = Some(lookup.valid_until());
    let records = || {
        lookup.answers().iter().filter_map(|record| match &record.data {
            // The root as target says that there is decidedly no such service.
            RData::SRV(srv) if !srv.target.is_root() && srv.port > 0 => Some(srv),
            _ => None,
        })
    };
    let best = records().map(|srv| srv.priority).min();
    let targets: Vec<_> = records().filter(|srv| Some(srv.priority) == best).collect();
    if targets.len() > TARGETS_MAX {
        tracing::warn!(%service, targets = targets.len(), limit = TARGETS_MAX, "targets left out");
    }
    let mut found = Vec::new();
    for srv in targets.into_iter().take(TARGETS_MAX) {
        let (ips, until) = addresses(resolver, &srv.target.to_utf8()).await?;
        found.extend(ips.into_iter().map(|ip| (ip, srv.port, srv.weight)));
        valid_until = valid_until.into_iter().chain(until).min();
    }
    Ok(Answer { endpoints: collect(service, found), valid_until })
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
