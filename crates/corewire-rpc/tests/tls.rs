//! RPC over TLS, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod support;

use std::time::Duration;

use corewire::tls::TlsFiles;
use corewire::{NetUri, ServerHandle, block_on};
use corewire_rpc::discover::connect;
use corewire_rpc::discover::registry::LocalRegistry;
use corewire_rpc::discover::registry_service;
use corewire_rpc::{Bytes, Channel, Code, Context, RpcServer, Service, Status};
use corewire_testkit::certificates::Files;
use support::{VERSIONS, echo_all, echo_service, eventually, every_mode};

fn server(files: &Files, more: &str) -> ServerHandle {
    RpcServer::bind(format!("tls://127.0.0.1:0?{}{more}", files.of_server()))
        .service(echo_service("EchoService"))
        .service(who_asks())
        .stream_route("StreamBenchService", "echo", echo_all)
        .workers(2)
        .start()
        .unwrap()
}

/// Answers with the number of certificates that the client has shown, and the name that it asked for.
fn who_asks() -> Service {
    Service::new("Who").unary("asks", |_: Bytes, context: Context| async move {
        let tls = context.tls().ok_or_else(|| Status::new(Code::INTERNAL, "no TLS"))?;
        Ok(Bytes::from(format!("{} {:?}", tls.peer_certificates.len(), tls.server_name)))
    })
}

fn uri(server: &ServerHandle, query: &str) -> String {
    let port = server.local_addrs()[0].port();
    format!("tls://localhost:{port}?{query}")
}

#[test]
fn every_mode_works_in_both_versions_and_the_handler_knows_its_client() {
    let files = Files::new("rpc-modes");
    let server = server(&files, &format!("&client-ca={}", files.shown("ca.pem")));
    for version in VERSIONS {
        let uri = uri(&server, &format!("{}&{}", files.ca(), files.of_client()));
        let channel = Channel::to(uri).protocol(version).build().unwrap();
        block_on(every_mode(&channel, 300_000)).unwrap();
        assert_eq!(block_on(channel.unary("Who/asks", "")).unwrap(), "1 Some(\"localhost\")");
    }
    let stranger = Channel::to(uri(&server, &files.ca())).fail_fast().build().unwrap();
    let status = block_on(stranger.unary("EchoService/echo", "?")).unwrap_err();
    assert_eq!(status.code(), Code::CONNECTION_CLOSED, "{status}");
}

#[test]
fn a_channel_that_trusts_another_authority_fails_with_what_to_do() {
    let (files, other) = (Files::new("rpc-trust"), Files::new("rpc-distrust"));
    let server = server(&files, "");
    let channel = Channel::to(uri(&server, &other.ca())).fail_fast().build().unwrap();
    let status = block_on(channel.unary("EchoService/echo", "?")).unwrap_err();
    assert!(status.message().contains("issued by nobody that this side trusts"), "{status}");
    let missing = Channel::to(uri(&server, "ca=/nowhere/ca.pem")).build().unwrap_err();
    assert!(missing.to_string().contains("cannot read ca=/nowhere/ca.pem"), "{missing}");
}

#[test]
fn endpoints_on_tls_are_found_in_a_registry_that_is_served_over_tls() {
    let files = Files::new("rpc-registry");
    let kept = LocalRegistry::new();
    let registry_server = RpcServer::bind(format!(
        "tls://127.0.0.1:0?{}&client-ca={}",
        files.of_server(),
        files.shown("ca.pem")
    ))
    .service(registry_service(&kept))
    .workers(1)
    .start()
    .unwrap();
    let address = uri(&registry_server, &format!("ttl=5s&{}&{}", files.ca(), files.of_client()));
    let registry = block_on(connect(&address)).unwrap();
    let servers: Vec<_> = (0..2)
        .map(|_| {
            RpcServer::bind(format!("tls://127.0.0.1:0?{}", files.of_server()))
                .service(echo_service("EchoService"))
                .workers(1)
                .register(&registry)
                .start()
                .unwrap()
        })
        .collect();
    let trusts = NetUri::parse(&format!("tls://h:1?{}", files.ca())).unwrap();
    let tls = trusts.tls_files().map(TlsFiles::client).unwrap().unwrap();
    let build = Channel::discover(address.as_str(), "EchoService")
        .channel(|channel| channel.net(|net| net.tls(tls)))
        .build();
    let channel = block_on(build).unwrap();
    for call in 0..20 {
        let said = format!("call {call}");
        assert_eq!(block_on(channel.unary("EchoService/echo", said.clone())).unwrap(), said);
    }
    eventually("both are called", || servers.iter().all(|server| server.stats().workers.tls_handshakes > 0));
    for server in servers {
        let report = server.shutdown(Duration::from_secs(10));
        assert_eq!(report.cut, 0, "{report}");
    }
    let refused = block_on(connect(&uri(&registry_server, &files.ca()))).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("tls://localhost"), "{refused}");
}
