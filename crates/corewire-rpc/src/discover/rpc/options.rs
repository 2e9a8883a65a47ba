//! How a registry elsewhere is used.

use std::time::Duration;

use corewire::NetUri;
use corewire::uri::Scheme;
use corewire_discovery::{CatalogLimits, MAX_TTL, RegistryError};

/// How an [`RpcRegistry`](super::RpcRegistry) reaches its registry, and how it behaves when it does not.
#[derive(Debug, Clone)]
pub struct RpcRegistryOptions {
    /// Where it is served, such as `tcp://10.0.0.1:7400` or `tls://10.0.0.1:7400?ca=ca.pem`.
    pub uri: String,
    /// How long an endpoint stays when its process is gone, for registrations that state none: 100 ms to 365 days.
    /// Default 5 s.
    pub lease_ttl: Duration,
    /// Longest wait for one answer. Default 5 s.
    pub request_timeout: Duration,
    /// Whether to wait for a registry that cannot be reached at the start, instead of failing. Default `false`.
    pub wait_for_registry: bool,
    /// How long endpoints are still served that are missing when the registry is back after an outage; their processes
    /// may just not have registered again yet. Default 5 s.
    pub absence_grace: Duration,
    /// Limits of what is kept in memory here.
    pub limits: CatalogLimits,
}

/// Shortest time to live.
const TTL_MIN: Duration = Duration::from_millis(100);

impl RpcRegistryOptions {
    /// The defaults, for a registry at this URI.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            lease_ttl: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
            wait_for_registry: false,
            absence_grace: Duration::from_secs(5),
            limits: CatalogLimits::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), RegistryError> {
        ttl_ms(self.lease_ttl)?;
        let bad = |reason: String| RegistryError::BadUri { uri: self.uri.clone(), reason };
        let uri = NetUri::parse(&self.uri).map_err(|error| bad(error.to_string()))?;
        match uri.scheme() {
            Scheme::Tcp | Scheme::Tls if uri.port().is_none() => Err(bad("there is no port".into())),
            Scheme::Tcp | Scheme::Tls | Scheme::Unix => Ok(()),
            _ => Err(bad("a registry is served on tcp, tls or unix".into())),
        }
    }

    /// Reads `rpc://HOST:PORT` or `tcp://…` with the settings `ttl`, `timeout`, `grace` and `wait`; `tls://…` with the
    /// parameters of such a URI besides.
    pub(crate) fn parse(address: &str) -> Result<Self, RegistryError> {
        let bad = |reason: String| RegistryError::BadUri { uri: address.to_owned(), reason };
        let (uri, settings) = address.split_once('?').unwrap_or((address, ""));
        let mut options = Self::new(uri.replacen("rpc://", "tcp://", 1));
        let of_tls: &[&str] = match uri.starts_with("tls://") {
            true => &["ca", "cert", "key", "server-name", "alpn"],
            false => &[],
        };
        let mut separator = '?';
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| bad("a setting is name=value".into()))?;
            let time = || {
                let wrong = || bad(format!("{name} is not a time such as 500ms, 10s or 5m"));
                duration(value).ok_or_else(wrong)
            };
            match name {
                "ttl" => options.lease_ttl = time()?,
                "timeout" => options.request_timeout = time()?,
                "grace" => options.absence_grace = time()?,
                "wait" => {
                    let wrong = |_| bad("wait is neither true nor false".into());
                    options.wait_for_registry = value.parse().map_err(wrong)?;
                }
                name if of_tls.contains(&name) => {
                    options.uri.push(std::mem::replace(&mut separator, '&'));
                    options.uri.push_str(setting);
                }
                other => return Err(bad(format!("there is no setting {other:?}"))),
            }
        }
        Ok(options)
    }
}

pub(super) fn ttl_ms(ttl: Duration) -> Result<u64, RegistryError> {
    if ttl < TTL_MIN || ttl > MAX_TTL {
        return Err(RegistryError::BadTtl { ttl, min: TTL_MIN, max: MAX_TTL });
    }
    Ok(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

fn duration(value: &str) -> Option<Duration> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    match &value[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_settings_and_says_what_is_wrong_with_them() {
        let options = RpcRegistryOptions::parse("rpc://h:1?ttl=2s&timeout=10ms&grace=1m&wait=true").unwrap();
        assert_eq!(options.uri, "tcp://h:1");
        assert_eq!(
            (options.lease_ttl, options.request_timeout),
            (Duration::from_secs(2), Duration::from_millis(10))
        );
        assert!(options.wait_for_registry && options.absence_grace == Duration::from_secs(60));
        let options = RpcRegistryOptions::parse("tls://h:1?ca=ca.pem&ttl=2s&server-name=r.lan").unwrap();
        assert_eq!(options.uri, "tls://h:1?ca=ca.pem&server-name=r.lan");
        assert_eq!(options.lease_ttl, Duration::from_secs(2));
        for (address, reason) in [
            ("tcp://h:1?ca=ca.pem", "no setting \"ca\""),
            ("rpc://h:1?ttl=2", "not a time"),
            ("rpc://h:1?wait=1", "neither true nor false"),
            ("rpc://h:1?x=1", "no setting \"x\""),
            ("rpc://h:1?x", "name=value"),
        ] {
            let refused = RpcRegistryOptions::parse(address).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
