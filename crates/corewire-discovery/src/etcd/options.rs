use crate::endpoint::check_name;
use crate::{CatalogLimits, MAX_TTL, RegistryError};
use std::fmt;
use std::time::Duration;

/// How an [`EtcdRegistry`](super::EtcdRegistry) reaches etcd, and how it behaves when it does not.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Addresses of the cluster's members, `host:port`, at least one. All should be stated: leases outlive the loss of
    /// one of them then.
    pub members: Vec<String>,
    /// First part of every key, without slashes at its ends. Default `corewire`.
    pub prefix: String,
    /// User and password, if etcd asks for them.
    pub user: Option<(String, String)>,
    /// TLS, if etcd speaks it. Needs the cargo feature `etcd-tls`.
    pub tls: Option<EtcdTls>,
    /// Time to live of registrations that state none: how long an endpoint stays when its process is gone.
    /// 1 s to 365 days, rounded up to whole seconds. Default 10 s.
    pub lease_ttl: Duration,
    /// Longest wait for one answer, and for a registration to be granted. Default 5 s.
    pub request_timeout: Duration,
    /// Whether [`EtcdRegistry::connect`](super::EtcdRegistry::connect) waits for as long as it takes, instead of
    /// failing after [`EtcdOptions::request_timeout`], when etcd cannot be reached. Default `false`.
    pub wait_for_etcd: bool,
    /// How long endpoints are still served that are missing when etcd is back after an outage; their processes
    /// may just not have registered again yet. Default 5 s.
    pub absence_grace: Duration,
    /// Most endpoints registered through one registry. Default 65,536.
    pub registrations_max: usize,
    /// Limits of what is kept in memory.
    pub limits: CatalogLimits,
}

/// TLS settings, all in PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// Certificates to trust; the system's own if `None`.
    pub ca_certificate: Option<Vec<u8>>,
    /// This client's certificate and private key, if etcd asks for them.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Name the server's certificate must have; the host's own if `None`.
    pub server_name: Option<String>,
}

impl EtcdOptions {
    /// The defaults, for these members.
    pub fn new<M: Into<String>>(members: impl IntoIterator<Item = M>) -> Self {
        Self {
            members: members.into_iter().map(Into::into).collect(),
            prefix: "corewire".into(),
            user: None,
            tls: None,
            lease_ttl: Duration::from_secs(10),
            request_timeout: Duration::from_secs(5),
            wait_for_etcd: false,
            absence_grace: Duration::from_secs(5),
            registrations_max: 65_536,
            limits: CatalogLimits::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), RegistryError> {
        ttl_seconds(self.lease_ttl)?;
        for part in self.prefix.split('/') {
            check_name("prefix", part)?;
        }
        let bad =
            |reason: &str| Err(RegistryError::BadUri { uri: self.members.join(","), reason: reason.into() });
        if self.members.is_empty() {
            return bad("there is no member");
        }
        if self.members.iter().any(|member| member.contains("://") || !member.contains(':')) {
            return bad("a member is host:port");
        }
        if self.tls.is_some() && cfg!(not(feature = "etcd-tls")) {
            return Err(RegistryError::NotBuilt { kind: "etcd-tls" });
        }
        Ok(())
    }
}

/// etcd counts whole seconds.
pub(super) fn ttl_seconds(ttl: Duration) -> Result<i64, RegistryError> {
    let min = Duration::from_secs(1);
    if ttl < min || ttl > MAX_TTL {
        return Err(RegistryError::BadTtl { ttl, min, max: MAX_TTL });
    }
    Ok(ttl.as_secs() as i64 + i64::from(ttl.subsec_nanos() > 0))
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("members", &self.members)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("lease_ttl", &self.lease_ttl)
            .field("request_timeout", &self.request_timeout)
            .field("wait_for_etcd", &self.wait_for_etcd)
            .field("absence_grace", &self.absence_grace)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

#[cfg(feature = "etcd-tls")]
pub(super) fn client_tls(tls: &EtcdTls) -> etcd_client::TlsOptions {
    let mut options = etcd_client::TlsOptions::new();
    options = match &tls.ca_certificate {
        Some(ca) => options.ca_certificate(etcd_client::Certificate::from_pem(ca)),
        None => options.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        options = options.identity(etcd_client::Identity::from_pem(certificate, key));
    }
    match &tls.server_name {
        Some(name) => options.domain_name(name),
        None => options,
    }
}
