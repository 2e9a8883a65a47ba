//! The DNS registry against a DNS server on loopback.
#![cfg(feature = "dns")]
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]

mod dns_responder;

use corewire_discovery::{
    Change, DnsOptions, DnsRegistry, Endpoint, RegisterOptions, Registry, RegistryError, Watch,
};
use dns_responder::{Mode, Responder};
use futures_lite::future::block_on;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn options(responder: &Responder, name: &str) -> DnsOptions {
    let mut options = DnsOptions::new(name);
    options.server = Some(responder.address);
    options.refresh_min = Duration::from_millis(20);
    options.timeout = Duration::from_millis(500);
    options
}

fn registry(responder: &Responder, name: &str) -> DnsRegistry {
    DnsRegistry::new(options(responder, name)).unwrap()
}

fn found(registry: &DnsRegistry, service: &str) -> Vec<String> {
    let snapshot = block_on(registry.discover(service)).unwrap();
    let mut all: Vec<_> = snapshot.iter().map(|e| format!("{}*{}", e.address(), e.weight())).collect();
    all.sort();
    all
}

fn told(watch: &mut Watch) -> String {
    match watch.recv_timeout(PATIENCE).expect("something happens").change {
        Change::Reset(snapshot) => format!("={}", snapshot.len()),
        Change::Added(e) => format!("+{}", e.address()),
        Change::Updated { after, .. } => format!("~{}*{}", after.address(), after.weight()),
        Change::Removed(e) => format!("-{}", e.address()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn address_records_of_both_kinds_are_endpoints() {
    let responder = Responder::start(60);
    responder.set_addresses("echo.test", &["10.0.0.1", "10.0.0.2", "fd00::1"]);
    let registry = registry(&responder, "echo.test:7000");
    assert_eq!(found(&registry, "Echo"), ["10.0.0.1:7000*100", "10.0.0.2:7000*100", "[fd00::1]:7000*100"]);
    assert_eq!(block_on(registry.services()).unwrap(), ["Echo".into()]);
    let asked = responder.questions();
    assert_eq!(found(&registry, "Echo").len(), 3);
    assert_eq!(responder.questions(), asked, "what is known is not asked for again");
}

#[test]
fn a_service_has_its_own_name_where_the_pattern_says_so() {
    let responder = Responder::start(60);
    responder.set_addresses("one.svc.test", &["10.0.0.1"]);
    responder.set_addresses("two.svc.test", &["10.0.0.2"]);
    let registry = registry(&responder, "{service}.svc.test:80");
    assert_eq!(found(&registry, "one"), ["10.0.0.1:80*100"]);
    assert_eq!(found(&registry, "two"), ["10.0.0.2:80*100"]);
    assert!(found(&registry, "three").is_empty(), "a name that does not exist is an empty service");
    assert!(matches!(block_on(registry.discover("a/b")), Err(RegistryError::Endpoint(_))));
}

#[test]
fn service_records_give_ports_and_weights_of_the_best_priority() {
    let responder = Responder::start(60);
    responder.set_addresses("a.test", &["10.0.0.1", "10.0.0.11"]);
    responder.set_addresses("b.test", &["10.0.0.2"]);
    responder.set_addresses("c.test", &["10.0.0.3"]);
    responder.set_services(
        "_echo._tcp.test",
        &[(10, 5, 7000, "a.test"), (10, 0, 7001, "b.test"), (20, 9, 7002, "c.test")],
    );
    let registry = registry(&responder, "_{service}._tcp.test");
    assert_eq!(found(&registry, "echo"), ["10.0.0.11:7000*5", "10.0.0.1:7000*5", "10.0.0.2:7001*0"]);
    responder.set_services("_none._tcp.test", &[(0, 0, 0, ".")]);
    assert!(found(&registry, "none").is_empty(), "the root as target: there is no such service");
}

#[test]
fn a_target_that_cannot_be_looked_up_spoils_no_other() {
    let responder = Responder::start(0);
    for (n, target) in ["a.test", "b.test", "c.test"].into_iter().enumerate() {
        responder.set_addresses(target, &[&format!("10.0.0.{n}")]);
    }
    let targets = |weight| [(1, weight, 70, "a.test"), (1, weight, 70, "b.test"), (1, weight, 71, "b.test")];
    responder.set_services("_echo._tcp.test", &targets(5));
    responder.fail("a.test");
    let registry = registry(&responder, "_echo._tcp.test");
    let mut watch = block_on(registry.watch("s")).unwrap();
    assert_eq!(found(&registry, "s"), ["10.0.0.1:70*5", "10.0.0.1:71*5"], "the others serve");
    responder.mend("a.test");
    assert_eq!([told(&mut watch), told(&mut watch)], ["=2", "+10.0.0.0:70"], "it is asked for again");
    // From now on it was known once: it stays as it was, with what the SRV record says now.
    responder.fail("a.test");
    let mut changed = targets(6).to_vec();
    changed.push((1, 6, 72, "c.test"));
    responder.set_services("_echo._tcp.test", &changed);
    let mut all: Vec<_> = (0..4).map(|_| told(&mut watch)).collect();
    all.sort();
    assert_eq!(all, ["+10.0.0.2:72", "~10.0.0.0:70*6", "~10.0.0.1:70*6", "~10.0.0.1:71*6"]);
    // Gone is not failed.
    responder.mend("a.test");
    responder.remove("a.test");
    assert_eq!(told(&mut watch), "-10.0.0.0:70");
    // When none of the targets can be looked up, who asks for the first time is told.
    ["a.test", "b.test", "c.test"].into_iter().for_each(|target| responder.fail(target));
    let strict = DnsRegistry::new(options(&responder, "_echo._tcp.test")).unwrap();
    let error = block_on(strict.discover("s")).unwrap_err();
    assert!(matches!(&error, RegistryError::Unreachable { kind: "dns", .. }), "{error}");
}

#[test]
fn a_target_that_takes_long_keeps_no_other_waiting() {
    let responder = Responder::start(60);
    let mut targets = vec![(1, 1, 70, "slow-0.test"), (1, 1, 70, "slow-1.test"), (1, 1, 70, "slow-2.test")];
    targets.push((1, 1, 70, "fast.test"));
    responder.set_services("_echo._tcp.test", &targets);
    responder.set_addresses("fast.test", &["10.0.0.1"]);
    targets[..3].iter().for_each(|(.., target)| responder.ignore(target));
    let registry = registry(&responder, "_echo._tcp.test");
    let began = std::time::Instant::now();
    assert_eq!(found(&registry, "s"), ["10.0.0.1:70*1"]);
    let took = began.elapsed();
    assert!(took < Duration::from_millis(2_500), "three time-outs of 1 s one after the other: {took:?}");
}

#[test]
fn records_that_run_out_are_asked_for_again_and_changes_told() {
    let responder = Responder::start(0);
    responder.set_addresses("echo.test", &["10.0.0.1", "10.0.0.2"]);
    let registry = registry(&responder, "echo.test:1");
    let mut watch = block_on(registry.watch("s")).unwrap();
    assert_eq!(told(&mut watch), "=2");
    responder.set_addresses("echo.test", &["10.0.0.2", "10.0.0.3"]);
    assert_eq!([told(&mut watch), told(&mut watch)], ["+10.0.0.3:1", "-10.0.0.1:1"]);
    responder.remove("echo.test");
    let mut gone = [told(&mut watch), told(&mut watch)];
    gone.sort();
    assert_eq!(gone, ["-10.0.0.2:1", "-10.0.0.3:1"]);
    drop(registry);
    assert!(watch.recv_timeout(PATIENCE).is_none(), "the watch ends with its registry");
}

#[test]
fn a_server_that_fails_leaves_the_last_known_endpoints() {
    let responder = Responder::start(0);
    responder.set_addresses("echo.test", &["10.0.0.1"]);
    let registry = registry(&responder, "echo.test:1");
    let mut watch = block_on(registry.watch("s")).unwrap();
    assert_eq!(told(&mut watch), "=1");
    for mode in [Mode::Fail, Mode::Garbage] {
        responder.set_mode(mode);
        responder.set_addresses("echo.test", &["10.0.0.9"]);
        let asked = responder.questions();
        while responder.questions() < asked + 6 {
            assert_eq!(found(&registry, "s"), ["10.0.0.1:1*100"]);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    responder.set_mode(Mode::Answer);
    assert_eq!([told(&mut watch), told(&mut watch)], ["+10.0.0.9:1", "-10.0.0.1:1"]);
}

#[test]
fn no_answer_at_the_start_is_an_error_or_waited_for() {
    let responder = Responder::start(0);
    responder.set_mode(Mode::Fail);
    responder.set_addresses("echo.test", &["10.0.0.1"]);
    let strict = registry(&responder, "echo.test:1");
    let error = block_on(strict.discover("s")).unwrap_err();
    assert!(matches!(&error, RegistryError::Unreachable { kind: "dns", .. }), "{error}");
    let patient = DnsOptions { wait_for_answer: true, ..options(&responder, "echo.test:1") };
    let patient = DnsRegistry::new(patient).unwrap();
    let mut watch = block_on(patient.watch("s")).unwrap();
    assert_eq!(told(&mut watch), "=0");
    responder.set_mode(Mode::Answer);
    assert_eq!(told(&mut watch), "+10.0.0.1:1");
    assert_eq!(found(&strict, "s"), ["10.0.0.1:1*100"], "an error is not remembered");
}

#[test]
fn nobody_registers_in_dns() {
    let responder = Responder::start(0);
    let registry = registry(&responder, "echo.test:1");
    let endpoint = Arc::new(Endpoint::new("s", "i", "h:1").unwrap());
    let refused = block_on(registry.register(endpoint, RegisterOptions::new())).unwrap_err();
    assert!(matches!(refused, RegistryError::ReadOnly { kind: "dns" }));
    assert!(DnsRegistry::new(DnsOptions::new("no-port")).is_err());
}
