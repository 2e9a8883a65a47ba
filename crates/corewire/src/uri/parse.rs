use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Host, NetUri, Scheme, UriError};
use crate::kcp::{Parameters, Refused};
use crate::tls::TlsFiles;

pub(super) fn parse(text: &str) -> Result<NetUri, UriError> {
    if text.len() > NetUri::LEN_MAX {
        return Err(UriError::TooLong { len: text.len() });
    }
    let uri = text.trim();
    let (scheme, after_scheme) = split_scheme(uri)?;
    if scheme == Scheme::Unix {
        return Ok(NetUri {
            scheme,
            host: unix_host(after_scheme, uri)?,
            port: None,
            kcp: Parameters::default(),
            tls: None,
        });
    }
    let end = after_scheme.find(['/', '?', '#']).unwrap_or(after_scheme.len());
    let (host, port) = split_port(&after_scheme[..end])?;
    if host.is_empty() {
        return Err(UriError::EmptyHost { uri: uri.into() });
    }
    let port = port.map(|port| parse_port(port, uri)).transpose()?;
    let rest = &after_scheme[end..];
    let kcp = if scheme == Scheme::Kcp { parse_kcp(rest)? } else { Parameters::default() };
    let tls = if scheme == Scheme::Tls { parse_tls(rest, uri)? } else { None };
    Ok(NetUri { scheme, host: parse_host(host)?, port: port.or(scheme.default_port()), kcp, tls })
}

/// A parameter that is written wrong must not lead to a conversation in plain text.
fn parse_kcp(rest: &str) -> Result<Parameters, UriError> {
    let mut found = Parameters::default();
    for parameter in parameters(rest) {
        // Not the whole text: somebody may have written the key itself.
        let name = || parameter.split('=').next().unwrap_or_default().into();
        found.take(parameter).map_err(|refused| match refused {
            Refused::Invalid => UriError::InvalidParameter { name: name() },
            Refused::Repeated => UriError::RepeatedParameter { name: name() },
        })?;
    }
    Ok(found)
}

/// What stands between `?` and `#`.
fn parameters(rest: &str) -> impl Iterator<Item = &str> {
    let before_fragment = rest.split('#').next().unwrap_or(rest);
    let query = before_fragment.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter(|parameter| !parameter.is_empty())
}

/// A parameter that is written wrong must not lead to another server being trusted.
fn parse_tls(rest: &str, uri: &str) -> Result<Option<Box<TlsFiles>>, UriError> {
    let mut files = TlsFiles::default();
    for parameter in parameters(rest) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !files.set(name, value) {
            return Err(UriError::InvalidTlsParameter {
                name: name.into(),
                host: uri.split('?').next().unwrap_or_default().into(),
            });
        }
    }
    Ok((!files.is_empty()).then(|| Box::new(files)))
}

fn split_scheme(uri: &str) -> Result<(Scheme, &str), UriError> {
    match uri.split_once("://") {
        // After one of these it is part of the rest, as in `host/?next=http://other`.
        Some((word, after)) if !word.contains(['/', '?', '#']) => Scheme::ALL
            .into_iter()
            .find(|scheme| scheme.as_str().eq_ignore_ascii_case(word))
            .map(|scheme| (scheme, after))
            .ok_or_else(|| UriError::UnknownScheme { scheme: word.into(), uri: uri.into() }),
        _ => Ok((Scheme::Tcp, uri)),
    }
}

/// The host, with its brackets if it has some, and the text after the colon that ends it.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), UriError> {
    if authority.starts_with('[') {
        let invalid = || UriError::InvalidIpv6 { host: authority.into() };
        let end = authority.find(']').ok_or_else(invalid)? + 1;
        let (host, after) = authority.split_at(end);
        return match after.strip_prefix(':') {
            None if !after.is_empty() => Err(invalid()),
            port => Ok((host, port)),
        };
    }
    match authority.split_once(':') {
        // Several colons: a bare IPv6 address, whose last group is not a port.
        Some((_, after)) if after.contains(':') => Ok((authority, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

fn parse_port(port: &str, uri: &str) -> Result<u16, UriError> {
    // A sign would pass as part of a number below.
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UriError::InvalidPort { port: port.into(), uri: uri.into() });
    }
    port.parse().map_err(|_| UriError::PortTooLarge { port: port.into(), uri: uri.into() })
}

fn parse_host(host: &str) -> Result<Host, UriError> {
    if host == "*" {
        return Ok(Host::Any);
    }
    if host.contains([':', '[']) {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        return match address.parse::<Ipv6Addr>() {
            Ok(ip) => Ok(Host::Ip(ip.into())),
            Err(_) if address.contains('%') => Err(invalid_host(
                host,
                "zones of IPv6 addresses are not supported; leave out the % and what follows",
            )),
            Err(_) => Err(UriError::InvalidIpv6 { host: host.into() }),
        };
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    check_name(host).map_err(|reason| invalid_host(host, reason))?;
    Ok(Host::Name(host.to_ascii_lowercase()))
}

fn invalid_host(host: &str, reason: &'static str) -> UriError {
    UriError::InvalidHost { host: host.into(), reason }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > NetUri::NAME_LEN_MAX {
        return Err("a name has at most 253 bytes");
    }
    if name.contains('@') {
        return Err("a user before @ is not supported; leave it out");
    }
    if !name.is_ascii() {
        return Err("write a name with other than ASCII letters in its xn-- form");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Err("a name has letters, digits, '-', '.' and '_' only");
    }
    // A dot at the end marks a name as complete.
    let labels = name.strip_suffix('.').unwrap_or(name);
    if labels.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err("between its dots a name has 1 to 63 bytes");
    }
    // Resolvers read these as IPv4 addresses in old notations: `1.2` as 1.0.0.2, `0x7f000001` as 127.0.0.1.
    let last = labels.rsplit('.').next().unwrap_or(labels);
    if is_number(last) {
        return Err("not an IPv4 address, which is four numbers up to 255; for a port alone write *:port");
    }
    Ok(())
}

fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn unix_host(address: &str, uri: &str) -> Result<Host, UriError> {
    let invalid = |reason| Err(UriError::InvalidUnixAddress { uri: uri.into(), reason });
    let name = address.strip_prefix('@');
    if address.is_empty() || name == Some("") {
        return invalid("it is empty; write unix:///path or unix://@name");
    }
    if name.unwrap_or(address).len() > NetUri::UNIX_LEN_MAX {
        return invalid("the path or name is longer than 107 bytes; use a shorter one");
    }
    if address.contains('\0') {
        return invalid("it contains a zero byte; leave that out");
    }
    match name {
        Some(name) => Ok(Host::UnixAbstract(name.into())),
        None if address.starts_with('/') => Ok(Host::UnixPath(address.into())),
        None => invalid("the path must begin with /, as in unix:///run/app.sock"),
    }
}
