use crate::RegistryError;
use std::time::Duration;

/// The address of a registry, taken apart.
#[derive(Debug)]
pub(super) struct Uri {
    /// As given but for the password.
    shown: String,
    scheme: String,
    rest: String,
    settings: Vec<(String, String)>,
}

/// Who and where in an etcd address.
#[derive(Debug, PartialEq, Eq)]
#[cfg(feature = "etcd")]
pub(super) struct Authority {
    pub(super) user: Option<(String, String)>,
    pub(super) members: Vec<String>,
    pub(super) path: String,
}

impl Uri {
    pub(super) fn parse(uri: &str) -> Result<Self, RegistryError> {
        let (before, settings) = uri.split_once('?').unwrap_or((uri, ""));
        let (scheme, rest) = before.split_once(':').unwrap_or((before, ""));
        let mut parsed =
            Self { shown: shown(uri), scheme: scheme.into(), rest: rest.into(), settings: Vec::new() };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| parsed.bad("a setting is name=value"))?;
            parsed.settings.push((name.into(), value.into()));
        }
        Ok(parsed)
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands between the kind and the settings.
    pub(super) fn rest(&self) -> &str {
        &self.rest
    }

    pub(super) fn bad(&self, reason: impl Into<String>) -> RegistryError {
        RegistryError::BadUri { uri: self.shown.clone(), reason: reason.into() }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.settings.iter().position(|(known, _)| known == name)?;
        Some(self.settings.remove(at).1)
    }

    pub(super) fn duration(&mut self, name: &str, into: &mut Duration) -> Result<(), RegistryError> {
        if let Some(value) = self.take(name) {
            let not_a_time = || self.bad(format!("{name} is not a time such as 500ms, 10s or 5m"));
            *into = parse_duration(&value).ok_or_else(not_a_time)?;
        }
        Ok(())
    }

    pub(super) fn flag(&mut self, name: &str, into: &mut bool) -> Result<(), RegistryError> {
        if let Some(value) = self.take(name) {
            *into = value.parse().map_err(|_| self.bad(format!("{name} is neither true nor false")))?;
        }
        Ok(())
    }

    /// The content of a file whose path is a setting.
    #[cfg(feature = "etcd")]
    pub(super) fn file(&mut self, name: &str) -> Result<Option<Vec<u8>>, RegistryError> {
        let Some(path) = self.take(name) else { return Ok(None) };
        let content = std::fs::read(&path).map_err(|error| self.bad(format!("{name} {path}: {error}")))?;
        Ok(Some(content))
    }

    /// Nothing that was said may go unheard.
    pub(super) fn finish(&self) -> Result<(), RegistryError> {
        match self.settings.first() {
            Some((name, _)) => {
                Err(self.bad(format!("there is no setting {name:?}, or it stands there twice")))
            }
            None => Ok(()),
        }
    }

    #[cfg(feature = "etcd")]
    pub(super) fn authority(&self) -> Result<Authority, RegistryError> {
        let rest =
            self.rest.strip_prefix("//").ok_or_else(|| self.bad("what follows the kind begins with //"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let decoded = decode(name).zip(decode(password));
                (Some(decoded.ok_or_else(|| self.bad("a % is not followed by two hex digits"))?), hosts)
            }
            None => (None, authority),
        };
        let members = hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect();
        Ok(Authority { user, members, path: path.trim_end_matches('/').to_owned() })
    }
}

fn parse_duration(value: &str) -> Option<Duration> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    match &value[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

/// The address without its password, for messages.
fn shown(uri: &str) -> String {
    let Some((start, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, _)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{start}://{name}:***{}", &rest[user.len()..])
        }
        None => uri.to_owned(),
    }
}

#[cfg(feature = "etcd")]
fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    if has_port { host.to_owned() } else { format!("{host}:2379") }
}

#[cfg(feature = "etcd")]
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("5m"), Some(Duration::from_secs(300)));
        for bad in ["", "5", "s", "-1s", "1.5s", "1h", "99999999999999999999s", "18446744073709551615m"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(shown("etcd://root:secret@h:1/p"), "etcd://root:***@h:1/p");
        assert_eq!(shown("etcd://root:s@cret@h"), "etcd://root:***@h");
        assert_eq!(shown("etcd://h/p@q"), "etcd://h/p@q");
        assert_eq!(shown("file:x"), "file:x");
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn an_etcd_address_has_members_user_and_prefix() {
        let authority = |uri: &str| Uri::parse(uri).unwrap().authority().unwrap();
        let full = authority("etcd://us%40er:p%3aw@a:1,b,[::1]/x/y/?ttl=1s");
        assert_eq!(full.user, Some(("us@er".into(), "p:w".into())));
        assert_eq!(
            (full.members, full.path),
            (vec!["a:1".into(), "b:2379".into(), "[::1]:2379".into()], "x/y".into())
        );
        assert_eq!(
            authority("etcd://h"),
            Authority { user: None, members: vec!["h:2379".into()], path: String::new() }
        );
        assert!(Uri::parse("etcd://a%4:b@h").unwrap().authority().is_err());
    }
}
