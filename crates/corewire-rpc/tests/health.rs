//! Health, and what a server tells of its services.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corewire::{ServerHandle, block_on};
use corewire_rpc::discover::Registration;
use corewire_rpc::discover::registry::{LocalRegistry, RoundRobin};
use corewire_rpc::health::{Health, HealthClient, HealthStatus};
use corewire_rpc::{Bytes, Channel, Code, Context, RpcServer, Service, Status, Version, listing};
use support::{VERSIONS, channel, eventually, gauged, server, settles};

/// Version 1 has no word for it.
fn not_found(version: Version) -> Code {
    if version == Version::V1 { Code::UNKNOWN } else { Code::NOT_FOUND }
}

#[test]
fn a_check_tells_the_status_of_each_service_in_both_versions() {
    let health = Health::new();
    health.set("Busy", HealthStatus::NotServing);
    let server = server(|server| server.health(&health));
    for version in VERSIONS {
        let client = HealthClient::new(channel(&server, version));
        for service in ["", "EchoService", "StreamBenchService", "grpc.health.v1.Health"] {
            assert_eq!(block_on(client.check(service)).unwrap(), HealthStatus::Serving, "{service}");
        }
        assert_eq!(block_on(client.check("Busy")).unwrap(), HealthStatus::NotServing);
        assert_eq!(block_on(client.check("Nobody")).unwrap_err().code(), not_found(version));
        let long = block_on(client.check("x".repeat(128))).unwrap_err();
        assert!(long.message().contains("128"), "{long}");
        // The bytes are those of gRPC's messages.
        let raw = channel(&server, version);
        let path = "grpc.health.v1.Health/Check";
        assert_eq!(block_on(raw.unary(path, &b"\x0a\x04Busy"[..])).unwrap(), &b"\x08\x02"[..]);
        assert_eq!(
            block_on(raw.unary(path, &b"\x0a\x09Busy"[..])).unwrap_err().code(),
            Code::DESERIALIZATION
        );
    }
}

#[test]
fn a_watch_tells_each_change_and_the_shutdown() {
    let health = Health::new();
    let (server, gauges) = gauged(|server| server.health(&health));
    let client = HealthClient::new(channel(&server, Version::V2));
    block_on(async {
        let mut late = client.watch("Late").await?;
        assert_eq!(late.next().await.transpose()?, Some(HealthStatus::ServiceUnknown));
        health.set("Late", HealthStatus::Serving);
        assert_eq!(late.next().await.transpose()?, Some(HealthStatus::Serving));
        health.set("Other", HealthStatus::Serving);
        health.remove("Late");
        assert_eq!(late.next().await.transpose()?, Some(HealthStatus::ServiceUnknown));
        Ok::<(), Status>(())
    })
    .unwrap();
    settles(&gauges, 1);
    let mut echo = block_on(client.watch("EchoService")).unwrap();
    assert_eq!(block_on(echo.next()).unwrap().unwrap(), HealthStatus::Serving);
    let watch = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while let Some(Ok(status)) = block_on(echo.next()) {
            seen.push(status);
        }
        seen
    });
    let report = server.shutdown(Duration::from_secs(10));
    assert_eq!(watch.join().unwrap(), [HealthStatus::NotServing]);
    assert_eq!(report.cut, 0, "a watch keeps no server from its end");
    assert_eq!(health.status("EchoService"), Some(HealthStatus::NotServing));
}

fn named(registry: &LocalRegistry, name: &'static str, health: Option<&Health>) -> ServerHandle {
    let who =
        Service::new("Who").unary("name", move |_: Bytes, _: Context| async move { Ok(Bytes::from(name)) });
    let registration = Registration::new(registry).instance(name);
    let server = RpcServer::bind("tcp://127.0.0.1:0").service(who).register_as(registration).workers(1);
    let server = if let Some(health) = health { server.health(health) } else { server };
    server.start().unwrap()
}

#[test]
fn endpoints_get_calls_only_while_they_say_that_they_are_serving() {
    let registry = LocalRegistry::new();
    let (sick, well) = (Health::new(), Health::new());
    sick.set("Who", HealthStatus::NotServing);
    let _servers = [
        named(&registry, "sick", Some(&sick)),
        named(&registry, "well", Some(&well)),
        named(&registry, "mute", None),
    ];
    let builder = Channel::discover(&registry, "Who").balancer(RoundRobin::new()).health_service();
    let channel = block_on(builder.build()).unwrap();
    let name = || String::from_utf8(block_on(channel.unary("Who/name", "")).unwrap().to_vec()).unwrap();
    let seen = |count| (0..count).map(|_| name()).collect::<std::collections::BTreeSet<_>>();
    eventually("the two others are used", || seen(8).iter().eq(["mute", "well"]));
    sick.set("Who", HealthStatus::Serving);
    eventually("it is used when it is well", || seen(9).len() == 3);
    well.set("Who", HealthStatus::NotServing);
    eventually("the other one is not used any more", || seen(8).iter().eq(["mute", "sick"]));
}

#[test]
fn a_call_that_does_not_wait_says_that_no_endpoint_is_serving() {
    let registry = LocalRegistry::new();
    let sick = Health::new();
    sick.set("Who", HealthStatus::NotServing);
    let _server = named(&registry, "sick", Some(&sick));
    let channel = block_on(Channel::discover(&registry, "Who").health_service().build()).unwrap();
    let call = || {
        block_on(channel.unary("Who/name", "").fail_fast().timeout(Duration::from_millis(100))).unwrap_err()
    };
    eventually("it says so", || {
        let status = call();
        status.code() == Code::UNAVAILABLE && status.message().contains("sick of Who is not serving")
    });
    // A call that waits is placed as soon as it may be.
    let waiting = std::thread::spawn({
        let call = channel.unary("Who/name", "");
        move || block_on(call)
    });
    sick.set("Who", HealthStatus::Serving);
    assert_eq!(waiting.join().unwrap().unwrap(), "sick");
}

#[test]
fn a_server_lists_its_services_only_if_it_is_told_to() {
    let quiet = server(|server| server);
    let open = server(|server| server.listing());
    for version in VERSIONS {
        let refused = block_on(listing::list(&channel(&quiet, version))).unwrap_err();
        assert_eq!(refused.code(), Code::SERVICE_NOT_FOUND);
        let channel = channel(&open, version);
        let services = block_on(listing::list(&channel)).unwrap();
        let names: Vec<_> = services.iter().map(|service| &*service.name).collect();
        assert_eq!(names, ["EchoService", "StreamBenchService", "corewire.Listing"]);
        let echo = block_on(listing::describe(&channel, "EchoService")).unwrap();
        assert_eq!(echo, services[0]);
        let modes: Vec<_> = echo.methods.iter().map(|method| &*method.mode).collect();
        assert_eq!(modes, ["bidi", "client-stream", "server-stream", "unary"]);
        assert_eq!(services[1].methods[0].mode, "stream");
        assert_eq!(block_on(listing::describe(&channel, "Nobody")).unwrap_err().code(), not_found(version));
    }
}
