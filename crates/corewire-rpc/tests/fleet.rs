//! Servers that are killed, drained and added while a client calls: the example, as a test on two kinds of registry.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "etcd")]
#[path = "../../corewire-discovery/tests/support/mod.rs"]
#[allow(dead_code)]
mod etcd;
#[path = "../examples/discovery_fleet.rs"]
#[allow(dead_code, unreachable_pub)]
mod fleet;

use std::process::Command;

use corewire_rpc::RpcServer;
use corewire_rpc::discover::registry::LocalRegistry;
use corewire_rpc::discover::registry_service;

const REGISTRY: &str = "COREWIRE_FLEET_REGISTRY";
const NAME: &str = "COREWIRE_FLEET_NAME";

/// This very program, as a server.
fn server(registry: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_server_of_the_fleet", "--ignored"]);
    command.env(REGISTRY, registry).env(NAME, name);
    command
}

#[test]
#[ignore = "a process of the other tests"]
fn a_server_of_the_fleet() {
    let (Ok(registry), Ok(name)) = (std::env::var(REGISTRY), std::env::var(NAME)) else { return };
    fleet::run_server(&registry, &name).unwrap();
}

#[test]
fn no_call_fails_with_a_registry_over_rpc() {
    let served = RpcServer::bind("tcp://127.0.0.1:0").service(registry_service(&LocalRegistry::new()));
    let served = served.workers(1).start().unwrap();
    let address = served.uri().replace("tcp:", "rpc:");
    let report = fleet::run_fleet(&address, |name| server(&address, name)).unwrap();
    assert!(report.failed.is_empty() && report.calls > 0, "{report:?}");
}

#[cfg(feature = "etcd")]
mod on_etcd {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use corewire::block_on;
    use corewire_rpc::Channel;
    use corewire_rpc::discover::connect;

    use super::*;

    #[test]
    fn no_call_fails_with_etcd() {
        let Some(etcd) = etcd::Etcd::start("no_call_fails_with_etcd") else { return };
        let address = format!("etcd://{}/fleet?ttl=2s", etcd.member());
        let report = fleet::run_fleet(&address, |name| server(&address, name)).unwrap();
        assert!(report.failed.is_empty() && report.calls > 0, "{report:?}");
    }

    #[test]
    fn no_call_fails_while_etcd_is_away_and_servers_are_registered_again() {
        let Some(mut etcd) = etcd::Etcd::start("no_call_fails_while_etcd_is_away") else { return };
        let address = format!("etcd://{}/away?ttl=1s", etcd.member());
        let _servers = ["one", "two"].map(|name| fleet::Server::start(server(&address, name)).unwrap());
        let channel = block_on(Channel::discover(&address, "Fleet").eager().build()).unwrap();
        fleet::until_answered_by(&channel, &["one", "two"]).unwrap();
        let stop = AtomicBool::new(false);
        let (report, back) = std::thread::scope(|scope| {
            let caller = scope.spawn(|| fleet::call(&channel, &stop));
            // Longer than the lease, and it has forgotten all.
            etcd.wipe();
            std::thread::sleep(Duration::from_secs(3));
            etcd.restart();
            let answers = Instant::now();
            let back = loop {
                let fresh = block_on(connect(&format!("{address}&wait=true"))).unwrap();
                if block_on(fresh.discover("Fleet")).unwrap().len() == 2 {
                    break answers.elapsed();
                }
                assert!(answers.elapsed() < Duration::from_secs(20), "the servers are not registered again");
            };
            fleet::until_answered_by(&channel, &["one", "two"]).unwrap();
            stop.store(true, Ordering::Relaxed);
            (caller.join().unwrap(), back)
        });
        println!("registered again {back:?} after etcd answered");
        assert!(report.failed.is_empty() && report.calls > 0, "{report:?}");
        assert!(back < Duration::from_secs(5), "{back:?}");
    }
}
