mod uri;

use crate::{FileOptions, FileRegistry, LocalRegistry, Registry, RegistryError};
use uri::Uri;

/// Opens a registry by its address.
///
/// | address | registry |
/// |---|---|
/// | `local`, `local:NAME` | the one of that name in this process, as [`LocalRegistry::shared`] |
/// | `file:PATH` | [`FileRegistry`]; settings `poll`, `wait` |
/// | `dns:HOST:PORT`, `dns:_NAME._tcp.DOMAIN` | `DnsRegistry` (feature `dns`); settings `server`, `refresh`, `timeout`, `wait` |
/// | `etcd://HOST:PORT,…/PREFIX` | `EtcdRegistry` (feature `etcd`); user and password before an `@`; settings `ttl`, `timeout`, `grace`, `wait` |
/// | `etcds://…` | the same with TLS (feature `etcd-tls`); also `ca`, `cert`, `key` (PEM files) and `server_name` |
///
/// Settings follow as `?name=value&…`. Times are as `500ms`, `10s` or `5m`; `wait=true` waits for a source that
/// cannot be reached instead of failing. In etcd addresses `%40` and the like stand for characters that would be
/// misread, the port is 2379 and the prefix `corewire` if left out.
///
/// ```
/// # futures_lite::future::block_on(async {
/// let registry = corewire_discovery::connect("local").await?;
/// assert!(registry.discover("Echo").await?.is_empty());
/// # Ok::<(), corewire_discovery::RegistryError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// [`RegistryError::BadUri`] for an address that is not understood, [`RegistryError::NotBuilt`] for a kind this
/// build does not have, and what opening that registry returns.
pub async fn connect(uri: &str) -> Result<Box<dyn Registry>, RegistryError> {
    let mut uri = Uri::parse(uri)?;
    match uri.scheme() {
        "local" => {
            uri.finish()?;
            Ok(Box::new(LocalRegistry::shared(uri.rest())?))
        }
        "file" => Ok(Box::new(open_file(&mut uri)?)),
        "dns" => dns(uri),
        "etcd" | "etcds" => etcd(uri).await,
        _ => Err(uri.bad("the kind before the colon is not known")),
    }
}

fn open_file(uri: &mut Uri) -> Result<FileRegistry, RegistryError> {
    let mut options = FileOptions::default();
    uri.duration("poll", &mut options.poll_interval)?;
    uri.flag("wait", &mut options.wait_for_file)?;
    uri.finish()?;
    FileRegistry::with_options(uri.rest(), options)
}

#[cfg(feature = "dns")]
fn dns(mut uri: Uri) -> Result<Box<dyn Registry>, RegistryError> {
    let mut options = crate::DnsOptions::new(uri.rest());
    if let Some(server) = uri.take("server") {
        options.server = Some(server.parse().map_err(|_| uri.bad("server is not IP:PORT"))?);
    }
    uri.duration("refresh", &mut options.refresh_max)?;
    uri.duration("timeout", &mut options.timeout)?;
    uri.flag("wait", &mut options.wait_for_answer)?;
    uri.finish()?;
    options.refresh_min = options.refresh_min.min(options.refresh_max);
    Ok(Box::new(crate::DnsRegistry::new(options)?))
}

#[cfg(not(feature = "dns"))]
fn dns(_: Uri) -> Result<Box<dyn Registry>, RegistryError> {
    Err(RegistryError::NotBuilt { kind: "dns" })
}

#[cfg(feature = "etcd")]
async fn etcd(mut uri: Uri) -> Result<Box<dyn Registry>, RegistryError> {
    let authority = uri.authority()?;
    let mut options = crate::EtcdOptions::new(authority.members);
    options.user = authority.user;
    if !authority.path.is_empty() {
        options.prefix = authority.path;
    }
    uri.duration("ttl", &mut options.lease_ttl)?;
    uri.duration("timeout", &mut options.request_timeout)?;
    uri.duration("grace", &mut options.absence_grace)?;
    uri.flag("wait", &mut options.wait_for_etcd)?;
    if uri.scheme() == "etcds" {
        let mut tls = crate::EtcdTls { server_name: uri.take("server_name"), ..Default::default() };
        tls.ca_certificate = uri.file("ca")?;
        tls.identity = match (uri.file("cert")?, uri.file("key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(uri.bad("cert and key go together")),
        };
        options.tls = Some(tls);
    }
    uri.finish()?;
    Ok(Box::new(crate::EtcdRegistry::connect(options).await?))
}

#[cfg(not(feature = "etcd"))]
async fn etcd(_: Uri) -> Result<Box<dyn Registry>, RegistryError> {
    Err(RegistryError::NotBuilt { kind: "etcd" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    fn refusal(uri: &str) -> String {
        block_on(connect(uri)).unwrap_err().to_string()
    }

    #[test]
    fn addresses_that_are_not_understood_say_why() {
        for (uri, reason) in [
            ("", "the kind before the colon is not known"),
            ("zookeeper:x", "the kind before the colon is not known"),
            ("file:", "must end in .toml or .json"),
            ("file:x.toml?pol=1s", "there is no setting \"pol\""),
            ("file:x.toml?poll=fast", "poll is not a time"),
            ("file:x.toml?wait=maybe", "wait is neither true nor false"),
            ("local?x=1", "there is no setting \"x\""),
        ] {
            assert!(refusal(uri).contains(reason), "{uri}: {}", refusal(uri));
        }
    }

    #[test]
    fn the_same_local_name_is_the_same_registry() {
        block_on(async {
            let endpoint = crate::Endpoint::new("s", "i", "h:1").unwrap();
            let _lease = LocalRegistry::shared("connect-test").unwrap().register(endpoint).unwrap();
            let again = connect("local:connect-test").await.unwrap();
            assert_eq!(again.discover("s").await.unwrap().len(), 1);
            let other = connect("local").await.unwrap();
            assert!(other.discover("s").await.unwrap().is_empty());
        });
    }

    #[cfg(feature = "dns")]
    #[test]
    fn a_dns_address_is_a_registry() {
        assert!(
            block_on(connect("dns:h.test:70?server=127.0.0.1:53&refresh=5s&timeout=1s&wait=true")).is_ok()
        );
        assert!(refusal("dns:h.test").contains("needs a port"));
        assert!(refusal("dns:h.test:70?server=x").contains("server is not IP:PORT"));
    }

    #[cfg(not(feature = "dns"))]
    #[test]
    fn what_is_not_built_says_so() {
        assert!(refusal("dns:h.test:70").contains("cargo feature `dns`"));
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn an_etcd_that_is_not_there_is_named_without_its_password() {
        let refused = refusal("etcd://root:secret@127.0.0.1:1/p?timeout=1s&ttl=5s&grace=1m");
        assert!(refused.contains("127.0.0.1:1") && !refused.contains("secret"), "{refused}");
        assert!(refusal("etcd://h/p?ttl=0s").contains("out of range"));
        assert!(refusal("etcd:h").contains("begins with //"));
        assert!(refusal("etcds://127.0.0.1:1/?cert=x").contains("x"));
    }
}
