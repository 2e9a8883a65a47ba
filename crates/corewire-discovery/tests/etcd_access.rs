//! The etcd registry where etcd asks who is there.
#![cfg(feature = "etcd")]
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]
#![allow(dead_code, reason = "the support module has more than each test file needs")]

mod support;

use corewire_discovery::{Endpoint, EtcdOptions, EtcdRegistry, RegisterOptions, Registry, RegistryError};
use etcd_client::{Client, Permission};
use futures_lite::future::block_on;
use std::sync::Arc;
use std::time::Duration;
use support::Etcd;

fn endpoint(instance: &str) -> Arc<Endpoint> {
    Arc::new(Endpoint::new("s", instance, "127.0.0.1:7000").unwrap())
}

/// Users `writer` and `reader` with passwords like their names, for the prefix `/test/`.
async fn enable_users(member: &str) -> Result<(), etcd_client::Error> {
    let mut client = Client::connect([member], None).await?;
    client.user_add("root", "root", None).await?;
    client.role_add("root").await?;
    client.user_grant_role("root", "root").await?;
    for (user, permission) in
        [("writer", Permission::read_write("/test/")), ("reader", Permission::read("/test/"))]
    {
        client.user_add(user, user, None).await?;
        client.role_add(user).await?;
        client.role_grant_permission(user, permission.with_prefix()).await?;
        client.user_grant_role(user, user).await?;
    }
    client.auth_enable().await?;
    Ok(())
}

#[test]
fn users_may_do_what_their_role_allows() {
    let Some(etcd) = Etcd::start("users_may_do_what_their_role_allows") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(enable_users(&etcd.member())).unwrap();
    let connect = |user: Option<(&str, &str)>| {
        let mut options = EtcdOptions::new([etcd.member()]);
        options.prefix = "test".into();
        options.user = user.map(|(name, password)| (name.into(), password.into()));
        block_on(EtcdRegistry::connect(options))
    };
    let writer = connect(Some(("writer", "writer"))).unwrap();
    let reader = connect(Some(("reader", "reader"))).unwrap();
    let _lease = block_on(writer.register(endpoint("a"), RegisterOptions::new())).unwrap();
    let mut watch = block_on(reader.watch("s")).unwrap();
    while reader.catalog().snapshot("s").is_empty() {
        assert!(watch.recv_timeout(Duration::from_secs(30)).is_some());
    }
    let refused = block_on(reader.register(endpoint("b"), RegisterOptions::new())).unwrap_err();
    assert!(matches!(refused, RegistryError::Refused { kind: "etcd", .. }), "{refused}");
    assert_eq!(reader.catalog().snapshot("s").len(), 1, "a refusal breaks nothing else");
    for user in [Some(("writer", "wrong")), None] {
        let error = connect(user).unwrap_err();
        assert!(matches!(error, RegistryError::Unreachable { kind: "etcd", .. }), "{error}");
    }
}

#[cfg(feature = "etcd-tls")]
#[test]
fn tls_is_spoken_with_those_whose_certificate_is_trusted() {
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// A certificate for 127.0.0.1 that is its own authority.
    fn certificate(dir: &Path) -> bool {
        let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let made = Command::new("openssl")
            .args(request)
            .args(["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(dir)
            .stderr(Stdio::null())
            .status();
        made.is_ok_and(|status| status.success())
    }

    let test = "tls_is_spoken_with_those_whose_certificate_is_trusted";
    let dir = std::env::temp_dir().join(format!("corewire-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    if !certificate(&dir) {
        assert!(std::env::var("CI").is_err(), "there is no openssl on this machine, and in CI there must be");
        eprintln!("SKIPPED {test}: there is no openssl on this machine");
        return;
    }
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let Some(etcd) = Etcd::start_with(test, Some((certificate.clone(), key))) else { return };
    let uri = |settings: &str| format!("etcds://{}/test?{settings}", etcd.member());
    let trusting = uri(&format!("wait=true&ca={}", certificate.display()));
    let registry = block_on(corewire_discovery::connect(&trusting)).unwrap();
    let lease = block_on(registry.register(endpoint("a"), RegisterOptions::new())).unwrap();
    assert_eq!(registry.catalog().snapshot("s").len(), 1);
    block_on(lease.deregister()).unwrap();
    let wary = block_on(corewire_discovery::connect(&uri("timeout=3s"))).unwrap_err();
    assert!(matches!(wary, RegistryError::Unreachable { kind: "etcd", .. }), "{wary}");
    let _ = std::fs::remove_dir_all(dir);
}
