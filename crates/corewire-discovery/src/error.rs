use std::sync::Arc;
use std::time::Duration;

/// Why an [`Endpoint`](crate::Endpoint) was refused. The message names the field, the value and the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// A name has no characters.
    #[error("the {field} is empty; give it at least one character")]
    Empty {
        /// Which part of the endpoint: `service`, `instance`, `zone` or `tag`.
        field: &'static str,
    },
    /// A name is longer than its limit.
    #[error("the {field} is {length} bytes long, the limit is {limit}; shorten it")]
    TooLong {
        /// Which part of the endpoint.
        field: &'static str,
        /// Length in bytes as given.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A name holds a character that cannot be part of a key.
    #[error(
        "the {field} {value:?} holds {character:?}; white space, control characters and '/' are not allowed"
    )]
    BadCharacter {
        /// Which part of the endpoint.
        field: &'static str,
        /// The name as given.
        value: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// The address is not `host:port`, with or without a scheme, and not `unix:///path`.
    #[error(
        "the address {value:?} is not host:port or scheme://host:port ({reason}); examples: 10.0.0.1:7000, [::1]:7000, \
         db-1.lan:7000, kcp://10.0.0.1:7000, unix:///run/echo.sock"
    )]
    BadAddress {
        /// The address as given, cut to the limit.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More tags than [`MAX_TAGS`](crate::MAX_TAGS).
    #[error("{count} tags, the limit is {limit}; use fewer")]
    TooManyTags {
        /// How many were given.
        count: usize,
        /// The limit.
        limit: usize,
    },
}

/// Why a registry did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The endpoint or the service name is not valid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The registry is full.
    #[error("the registry holds its limit of {limit} {what}; raise the limit or remove some")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// The limit that was reached.
        limit: usize,
    },
    /// The registry only reads: its endpoints are written elsewhere.
    #[error("a {kind} registry cannot be written to; change its source instead")]
    ReadOnly {
        /// The kind of registry: `file` or `dns`.
        kind: &'static str,
    },
    /// The endpoint's service is not the one the key stands for, or the key is another registry's.
    #[error(
        "the key is for service {key:?} of its own registry, it cannot register an endpoint of {service:?} here"
    )]
    WrongKey {
        /// The service of the key.
        key: Arc<str>,
        /// The service of the endpoint.
        service: Arc<str>,
    },
    /// The time to live is out of range.
    #[error("a time to live of {ttl:?} is out of range; it must be from {min:?} to {max:?}")]
    BadTtl {
        /// As given.
        ttl: Duration,
        /// The shortest allowed.
        min: Duration,
        /// The longest allowed.
        max: Duration,
    },
    /// The lease no longer holds the endpoint: it ran out, or somebody registered the same instance again.
    #[error("the lease on {service}/{instance} is gone: it ran out, or the instance was registered again")]
    LeaseLost {
        /// The service.
        service: Arc<str>,
        /// The instance id.
        instance: Arc<str>,
    },
    /// The address of a registry could not be understood.
    #[error(
        "{uri:?} is not a registry address: {reason}; use local, file:PATH, dns:NAME:PORT or etcd://HOST:PORT/PREFIX"
    )]
    BadUri {
        /// As given.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This build has no support for that kind of registry.
    #[error("this build has no {kind} registry; build with the cargo feature `{kind}`")]
    NotBuilt {
        /// Name of the registry kind and of the cargo feature.
        kind: &'static str,
    },
    /// The source of the registry cannot be reached.
    #[error("the {kind} registry at {address} cannot be reached: {reason}")]
    Unreachable {
        /// The kind of registry.
        kind: &'static str,
        /// Where it was looked for.
        address: String,
        /// What happened.
        reason: String,
    },
    /// The source of the registry answered with an error.
    #[error("the {kind} registry refused: {reason}")]
    Refused {
        /// The kind of registry.
        kind: &'static str,
        /// What it said.
        reason: String,
    },
    /// The source as a whole cannot be understood.
    #[error("{source_name} cannot be read as a registry: {reason}")]
    BadSource {
        /// File or record name.
        source_name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No answer in time. A registration that timed out is withdrawn.
    #[error("the {kind} registry did not answer within {after:?}")]
    Timeout {
        /// The kind of registry.
        kind: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The registry was closed.
    #[error("the registry is closed")]
    Closed,
}
