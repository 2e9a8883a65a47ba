use crate::EndpointError;
use std::net::SocketAddr;
use std::sync::Arc;

/// Weight of an endpoint that states none.
pub const DEFAULT_WEIGHT: u16 = 100;
/// Longest service name, instance id, zone or tag, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest address, in bytes, without its scheme: a full DNS name, a colon and a port.
pub const MAX_ADDRESS_BYTES: usize = 261;
/// Most tags on one endpoint.
pub const MAX_TAGS: usize = 64;

/// One instance of a service: where it is and how much of the work it should take.
///
/// An endpoint is known by `service` and `instance`; several instances may share an address. Names are 1 to
/// [`MAX_NAME_BYTES`] bytes without white space, control characters or `/`.
///
/// ```
/// use corewire_discovery::Endpoint;
///
/// let endpoint = Endpoint::new("Echo", "echo-1", "10.0.0.1:7000")?
///     .with_weight(200)
///     .with_zone("eu-1")?
///     .with_tags(["canary"])?;
/// assert_eq!(endpoint.weight(), 200);
/// # Ok::<(), corewire_discovery::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    service: Arc<str>,
    instance: Arc<str>,
    address: Arc<str>,
    socket_addr: Option<SocketAddr>,
    weight: u16,
    zone: Option<Arc<str>>,
    /// `None` rather than empty: most endpoints have no tags, and then none are allocated.
    tags: Option<Arc<[Box<str>]>>,
}

impl Endpoint {
    /// An endpoint of weight [`DEFAULT_WEIGHT`] without zone and tags.
    ///
    /// # Errors
    /// [`EndpointError`] when a name or the address is not valid: `host:port` (port 1–65535), the same behind a scheme, such
    /// as `kcp://host:port`, or `unix:///path`. It has no settings and no key: those are the client's.
    pub fn new(
        service: impl Into<Arc<str>>,
        instance: impl Into<Arc<str>>,
        address: impl Into<Arc<str>>,
    ) -> Result<Self, EndpointError> {
        let (service, instance, address) = (service.into(), instance.into(), address.into());
        check_name("service", &service)?;
        check_name("instance", &instance)?;
        let socket_addr = parse_address(&address)?;
        Ok(Self { service, instance, address, socket_addr, weight: DEFAULT_WEIGHT, zone: None, tags: None })
    }

    /// Sets the share of the work, 0–65535, in relation to the other endpoints. Balancers give no work to
    /// weight 0 unless every endpoint has weight 0.
    #[must_use]
    pub fn with_weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the zone: rack, data centre or region, compared as a whole.
    ///
    /// # Errors
    /// [`EndpointError`] when the name is not valid.
    pub fn with_zone(mut self, zone: impl Into<Arc<str>>) -> Result<Self, EndpointError> {
        let zone = zone.into();
        check_name("zone", &zone)?;
        self.zone = Some(zone);
        Ok(self)
    }

    /// Sets the tags; they are kept sorted and without duplicates.
    ///
    /// # Errors
    /// [`EndpointError`] when a tag is not a valid name or there are more than [`MAX_TAGS`].
    pub fn with_tags<T: Into<Box<str>>>(
        mut self,
        tags: impl IntoIterator<Item = T>,
    ) -> Result<Self, EndpointError> {
        let mut tags: Vec<Box<str>> = tags.into_iter().map(Into::into).collect();
        for tag in &tags {
            check_name("tag", tag)?;
        }
        tags.sort_unstable();
        tags.dedup();
        if tags.len() > MAX_TAGS {
            return Err(EndpointError::TooManyTags { count: tags.len(), limit: MAX_TAGS });
        }
        self.tags = if tags.is_empty() { None } else { Some(tags.into()) };
        Ok(self)
    }

    /// Whether it is of this instance and address, with the defaults else.
    pub(crate) fn is_plain(&self, instance: &str, address: &str) -> bool {
        *self.instance == *instance
            && *self.address == *address
            && self.weight == DEFAULT_WEIGHT
            && self.zone.is_none()
            && self.tags.is_none()
    }

    /// Name of the service.
    pub fn service(&self) -> &Arc<str> {
        &self.service
    }

    /// Id of this instance, unique within its service.
    pub fn instance(&self) -> &Arc<str> {
        &self.instance
    }

    /// Address as `host:port`, or with a scheme.
    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// The address when its host is an IP address; `None` when it is a name that has to be resolved.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        self.socket_addr
    }

    /// Share of the work, 0–65535.
    pub fn weight(&self) -> u16 {
        self.weight
    }

    /// Zone, if stated.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Tags, sorted.
    pub fn tags(&self) -> &[Box<str>] {
        self.tags.as_deref().unwrap_or_default()
    }
}

/// Checks a name that becomes part of a key.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), EndpointError> {
    if name.is_empty() {
        return Err(EndpointError::Empty { field });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(EndpointError::TooLong { field, length: name.len(), limit: MAX_NAME_BYTES });
    }
    match name.chars().find(|c| c.is_whitespace() || c.is_control() || *c == '/') {
        Some(character) => Err(EndpointError::BadCharacter { field, value: name.to_owned(), character }),
        None => Ok(()),
    }
}

/// Longest scheme of an address, in bytes.
const SCHEME_MAX: usize = 16;

fn parse_address(address: &str) -> Result<Option<SocketAddr>, EndpointError> {
    let bad = |reason| EndpointError::BadAddress { value: cut(address), reason };
    let Some((scheme, rest)) = address.split_once("://") else { return parse_host_port(address, address) };
    let is_scheme = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    if scheme.len() > SCHEME_MAX
        || !scheme.starts_with(|first: char| first.is_ascii_lowercase())
        || !scheme.bytes().all(is_scheme)
    {
        return Err(bad("what stands before :// is no scheme in lower case"));
    }
    if rest.contains(|c: char| c == '?' || c == '#' || c.is_whitespace() || c.is_control()) {
        return Err(bad("it has a setting or a space; settings and keys are the client's"));
    }
    if scheme != "unix" {
        return parse_host_port(rest, address);
    }
    check_length(rest)?;
    if rest.is_empty() { Err(bad("there is no path")) } else { Ok(None) }
}

/// As much of it as an error shows.
fn cut(address: &str) -> String {
    address.chars().take(MAX_ADDRESS_BYTES).collect()
}

fn check_length(address: &str) -> Result<(), EndpointError> {
    if address.len() > MAX_ADDRESS_BYTES {
        let (length, limit) = (address.len(), MAX_ADDRESS_BYTES);
        return Err(EndpointError::TooLong { field: "address", length, limit });
    }
    Ok(())
}

/// `whole`: what it is a part of, for the error.
fn parse_host_port(address: &str, whole: &str) -> Result<Option<SocketAddr>, EndpointError> {
    check_length(address)?;
    let bad = |reason| EndpointError::BadAddress { value: cut(whole), reason };
    if let Ok(addr) = address.parse::<SocketAddr>() {
        return if addr.port() == 0 { Err(bad("port 0 cannot be connected to")) } else { Ok(Some(addr)) };
    }
    let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("there is no port"))?;
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad("the port is not a number"));
    }
    match port.parse::<u16>() {
        Ok(0) => return Err(bad("port 0 cannot be connected to")),
        Ok(_) => {}
        Err(_) => return Err(bad("the port is not from 1 to 65535")),
    }
    check_host(host).map_err(bad)?;
    Ok(None)
}

fn check_host(host: &str) -> Result<(), &'static str> {
    if host.is_empty() {
        return Err("there is no host");
    }
    if host.contains(':') {
        return Err("an IPv6 host stands in brackets");
    }
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Err("the host has characters no host name has");
    }
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err("the host is not an IPv4 address");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_error(address: &str) -> String {
        Endpoint::new("s", "i", address).unwrap_err().to_string()
    }

    #[test]
    fn addresses_of_every_kind_are_taken() {
        let ip = Endpoint::new("s", "i", "10.0.0.1:7000").unwrap();
        assert_eq!(ip.socket_addr(), Some("10.0.0.1:7000".parse().unwrap()));
        assert!(Endpoint::new("s", "i", "[::1]:7000").unwrap().socket_addr().is_some());
        assert_eq!(Endpoint::new("s", "i", "db-1.lan:65535").unwrap().socket_addr(), None);
        let kcp = Endpoint::new("s", "i", "kcp://10.0.0.1:7000").unwrap();
        assert_eq!(kcp.socket_addr(), Some("10.0.0.1:7000".parse().unwrap()));
        for address in ["unix:///run/echo.sock", "unix://@echo", "tls://db-1.lan:443"] {
            assert_eq!(&**Endpoint::new("s", "i", address).unwrap().address(), address);
        }
    }

    #[test]
    fn bad_addresses_are_refused_with_the_reason() {
        for (address, reason) in [
            ("", "there is no port"),
            ("host", "there is no port"),
            (":80", "there is no host"),
            ("host:", "the port is not from 1 to 65535"),
            ("host:0", "port 0"),
            ("127.0.0.1:0", "port 0"),
            ("host:65536", "the port is not from 1 to 65535"),
            ("host:+80", "the port is not a number"),
            ("::1:80", "in brackets"),
            ("999.0.0.1:80", "not an IPv4 address"),
            ("a b:80", "no host name has"),
            ("kcp://host", "there is no port"),
            ("kcp://host:1?key=file:k", "the client's"),
            ("KCP://host:1", "no scheme"),
            ("unix://", "there is no path"),
        ] {
            assert!(address_error(address).contains(reason), "{address}: {}", address_error(address));
        }
        assert!(matches!(
            Endpoint::new("s", "i", "h".repeat(300)),
            Err(EndpointError::TooLong { field: "address", length: 300, .. })
        ));
    }

    #[test]
    fn names_that_cannot_be_keys_are_refused() {
        assert_eq!(Endpoint::new("", "i", "h:1").unwrap_err(), EndpointError::Empty { field: "service" });
        for name in ["a/b", "a b", "a\n", "a\0"] {
            let error = Endpoint::new("s", name, "h:1").unwrap_err();
            assert!(matches!(error, EndpointError::BadCharacter { field: "instance", .. }), "{name:?}");
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert!(matches!(
            Endpoint::new("s", long, "h:1"),
            Err(EndpointError::TooLong { field: "instance", length: 256, limit: 255 })
        ));
    }

    #[test]
    fn tags_are_sorted_unique_and_limited() {
        let endpoint = Endpoint::new("s", "i", "h:1").unwrap();
        let tagged = endpoint.clone().with_tags(["b", "a", "b"]).unwrap();
        assert_eq!(tagged.tags().iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["a", "b"]);
        assert!(endpoint.clone().with_tags([""]).is_err());
        let many = (0..=MAX_TAGS).map(|n| n.to_string());
        assert!(matches!(endpoint.with_tags(many), Err(EndpointError::TooManyTags { count: 65, limit: 64 })));
    }
}
