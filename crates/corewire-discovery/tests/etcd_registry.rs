//! The etcd registry against a real etcd that comes and goes.
#![cfg(feature = "etcd")]
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]

mod support;

use corewire_discovery::{
    Change, Endpoint, EtcdOptions, EtcdRegistry, Lease, RegisterOptions, Registry, RegistryError, Watch,
};
use etcd_client::Client;
use futures_lite::future::block_on;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Etcd;

const PATIENCE: Duration = Duration::from_secs(30);

fn options(etcd: &Etcd) -> EtcdOptions {
    let mut options = EtcdOptions::new([etcd.member()]);
    options.prefix = "test".into();
    options.lease_ttl = Duration::from_secs(1);
    options
}

fn connect(etcd: &Etcd) -> EtcdRegistry {
    let mut options = options(etcd);
    // Right after its start etcd listens before it answers.
    options.wait_for_etcd = true;
    block_on(EtcdRegistry::connect(options)).unwrap()
}

fn endpoint(service: &str, instance: &str, weight: u16) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(service, instance, "127.0.0.1:7000").unwrap().with_weight(weight))
}

fn register(registry: &EtcdRegistry, endpoint: Arc<Endpoint>) -> Result<Lease, RegistryError> {
    block_on(registry.register(endpoint, RegisterOptions::new()))
}

fn listed(registry: &EtcdRegistry, service: &str) -> Vec<String> {
    let mut all: Vec<_> = registry
        .catalog()
        .snapshot(service)
        .iter()
        .map(|e| format!("{}*{}", e.instance(), e.weight()))
        .collect();
    all.sort();
    all
}

fn told(watch: &mut Watch) -> String {
    match watch.recv_timeout(PATIENCE).expect("something happens").change {
        Change::Reset(snapshot) => format!("={}", snapshot.len()),
        Change::Added(e) => format!("+{}*{}", e.instance(), e.weight()),
        Change::Updated { after, .. } => format!("~{}*{}", after.instance(), after.weight()),
        Change::Removed(e) => format!("-{}", e.instance()),
        other => panic!("{other:?}"),
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} does not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// Runs with a plain client, as an operator would.
fn with_client<T>(etcd: &Etcd, run: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect([etcd.member()], None).await.unwrap();
        run(&mut client).await.unwrap()
    })
}

fn keys_in(etcd: &Etcd) -> Vec<String> {
    let all = Some(etcd_client::GetOptions::new().with_prefix());
    let response = with_client(etcd, async |client| client.get("/test/", all).await);
    response.kvs().iter().map(|kv| kv.key_str().unwrap().to_owned()).collect()
}

#[test]
fn what_one_process_registers_the_other_finds_and_follows() {
    let Some(etcd) = Etcd::start("what_one_process_registers_the_other_finds_and_follows") else { return };
    let (writer, reader) = (connect(&etcd), connect(&etcd));
    let mut watch = block_on(reader.watch("s")).unwrap();
    assert_eq!(told(&mut watch), "=0");
    let a = register(&writer, endpoint("s", "a", 1)).unwrap();
    assert_eq!(listed(&writer, "s"), ["a*1"], "one's own registration is seen at once");
    assert_eq!(told(&mut watch), "+a*1");
    let newer = register(&writer, endpoint("s", "a", 0)).unwrap();
    assert_eq!(told(&mut watch), "~a*0");
    assert!(matches!(a.renew(), Err(RegistryError::LeaseLost { .. })));
    assert!(matches!(block_on(a.deregister()), Err(RegistryError::LeaseLost { .. })));
    newer.renew().unwrap();
    let b = register(&writer, endpoint("s", "b", 5)).unwrap();
    assert_eq!(told(&mut watch), "+b*5");
    assert_eq!(keys_in(&etcd), ["/test/s/a", "/test/s/b"]);
    block_on(newer.deregister()).unwrap();
    assert_eq!(keys_in(&etcd), ["/test/s/b"]);
    assert_eq!(listed(&writer, "s"), ["b*5"]);
    assert_eq!(told(&mut watch), "-a");
    assert_eq!(block_on(reader.services()).unwrap(), ["s".into()]);
    drop(b);
    assert_eq!(told(&mut watch), "-b");
    assert!(block_on(reader.discover("never")).unwrap().is_empty());
    drop(reader);
    assert!(watch.recv_timeout(PATIENCE).is_none(), "the watch ends with its registry");
}

#[test]
fn malformed_entries_are_left_out_and_the_others_serve() {
    let Some(etcd) = Etcd::start("malformed_entries_are_left_out_and_the_others_serve") else { return };
    let early = connect(&etcd);
    with_client(&etcd, async |client| {
        for (key, value) in [
            ("/test/s/text", "not json"),
            ("/test/s/port", r#"{"address": "h:0"}"#),
            ("/test/s/heavy", r#"{"address": "h:1", "weight": 65536}"#),
            ("/test/s", r#"{"address": "h:1"}"#),
            ("/test/s/i/x", r#"{"address": "h:1"}"#),
            ("/test/s/good", r#"{"address": "h:1", "weight": 3, "later": true}"#),
            ("/tester/s/other", r#"{"address": "h:1"}"#),
        ] {
            client.put(key, value, None).await?;
        }
        client.put(b"/test/s/\xff".to_vec(), r#"{"address": "h:1"}"#, None).await
    });
    wait_for("the good one", || listed(&early, "s") == ["good*3"]);
    let late = connect(&etcd);
    assert_eq!(listed(&late, "s"), ["good*3"]);
    with_client(&etcd, async |client| client.put("/test/s/next", r#"{"address": "h:1"}"#, None).await);
    wait_for("the next one", || listed(&early, "s") == ["good*3", "next*100"]);
}

#[test]
fn an_entry_that_becomes_malformed_is_left_out_by_all_and_its_owner_registers_again() {
    let test = "an_entry_that_becomes_malformed_is_left_out_by_all_and_its_owner_registers_again";
    let Some(etcd) = Etcd::start(test) else { return };
    let (early, owner) = (connect(&etcd), connect(&etcd));
    let held = register(&owner, endpoint("s", "held", 1)).unwrap();
    let put = |key: &str, value: &str| drop(with_client(&etcd, async |c| c.put(key, value, None).await));
    put("/test/s/good", r#"{"address": "h:1", "weight": 3}"#);
    wait_for("both", || listed(&early, "s") == ["good*3", "held*1"]);
    put("/test/s/good", "spoilt");
    wait_for("the spoilt one to go", || listed(&early, "s") == ["held*1"]);
    assert_eq!(listed(&connect(&etcd), "s"), ["held*1"], "those who come later see the same");
    // Whoever wrote it took the instance over, as with any other value.
    put("/test/s/held", "spoilt");
    wait_for("it to go everywhere", || listed(&early, "s").is_empty() && listed(&owner, "s").is_empty());
    assert!(matches!(held.renew(), Err(RegistryError::LeaseLost { .. })));
    let _again = register(&owner, endpoint("s", "held", 2)).unwrap();
    wait_for("it to be back", || listed(&early, "s") == ["held*2"]);
    // Under the lease of its owner it is still the owner's: it is put again.
    with_client(&etcd, async |client| {
        let lease = client.get("/test/s/held", None).await?.kvs()[0].lease();
        client.put("/test/s/held", "spoilt", Some(etcd_client::PutOptions::new().with_lease(lease))).await
    });
    wait_for("it to be put again", || {
        let value = with_client(&etcd, async |client| client.get("/test/s/held", None).await);
        value.kvs()[0].value() != b"spoilt" && listed(&early, "s") == ["held*2"]
    });
}

#[test]
fn a_process_that_takes_an_instance_over_holds_it() {
    let Some(etcd) = Etcd::start("a_process_that_takes_an_instance_over_holds_it") else { return };
    let (old, new) = (connect(&etcd), connect(&etcd));
    let first = register(&old, endpoint("s", "a", 1)).unwrap();
    let second = register(&new, endpoint("s", "a", 2)).unwrap();
    wait_for("the loss", || first.renew().is_err());
    drop(first);
    drop(old);
    second.renew().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(listed(&new, "s"), ["a*2"]);
    assert_eq!(keys_in(&etcd), ["/test/s/a"]);
}

#[test]
fn an_entry_deleted_by_hand_is_put_again() {
    let Some(etcd) = Etcd::start("an_entry_deleted_by_hand_is_put_again") else { return };
    let registry = connect(&etcd);
    let _lease = register(&registry, endpoint("s", "a", 1)).unwrap();
    with_client(&etcd, async |client| client.delete("/test/s/a", None).await);
    wait_for("the entry", || keys_in(&etcd) == ["/test/s/a"]);
    assert_eq!(listed(&registry, "s"), ["a*1"]);
}

#[test]
fn a_lease_revoked_by_hand_is_granted_again() {
    let Some(etcd) = Etcd::start("a_lease_revoked_by_hand_is_granted_again") else { return };
    let registry = connect(&etcd);
    let _a = register(&registry, endpoint("s", "a", 1)).unwrap();
    let _b = register(&registry, endpoint("s", "b", 1)).unwrap();
    with_client(&etcd, async |client| {
        let lease = client.get("/test/s/a", None).await?.kvs()[0].lease();
        client.lease_revoke(lease).await
    });
    wait_for("both entries", || keys_in(&etcd) == ["/test/s/a", "/test/s/b"]);
    assert_eq!(listed(&registry, "s"), ["a*1", "b*1"]);
}

#[test]
fn a_deletion_costs_one_transaction_however_many_leases_there_were() {
    let Some(etcd) = Etcd::start("a_deletion_costs_one_transaction_however_many_leases_there_were") else {
        return;
    };
    let registry = connect(&etcd);
    let short = register(&registry, endpoint("s", "short", 1)).unwrap();
    let long = RegisterOptions::new().with_ttl(Duration::from_secs(60));
    let long = block_on(registry.register(endpoint("s", "long", 1), long)).unwrap();
    for _ in 0..5 {
        with_client(&etcd, async |client| {
            let lease = client.get("/test/s/short", None).await?.kvs()[0].lease();
            client.lease_revoke(lease).await
        });
        wait_for("the entries", || keys_in(&etcd) == ["/test/s/long", "/test/s/short"]);
    }
    let transactions = || etcd.metric(r#"grpc_server_handled_total{grpc_code="OK",grpc_method="Txn""#);
    let before = transactions();
    block_on(short.deregister()).unwrap();
    assert_eq!((keys_in(&etcd), transactions() - before), (vec!["/test/s/long".into()], 1));
    block_on(long.deregister()).unwrap();
    assert_eq!((keys_in(&etcd), transactions() - before), (vec![], 2));
}

#[test]
fn an_entry_registered_again_with_another_time_to_live_is_deleted_whatever_it_is_under() {
    let test = "an_entry_registered_again_with_another_time_to_live_is_deleted_whatever_it_is_under";
    let Some(etcd) = Etcd::start(test) else { return };
    let registry = connect(&etcd);
    let again = |seconds| {
        let options = RegisterOptions::new().with_ttl(Duration::from_secs(seconds));
        block_on(registry.register(endpoint("s", "a", seconds as u16), options)).unwrap()
    };
    let mut lease = again(60);
    for seconds in [50, 60, 1, 40] {
        let before = std::mem::replace(&mut lease, again(seconds));
        assert!(matches!(before.renew(), Err(RegistryError::LeaseLost { .. })));
        drop(before);
        assert_eq!(keys_in(&etcd), ["/test/s/a"]);
    }
    block_on(lease.deregister()).unwrap();
    assert!(keys_in(&etcd).is_empty());
}

/// Kills etcd for longer than the lease and checks that nobody notices; says how long it took to register again
/// once it answered.
fn outage(etcd: &mut Etcd, wiped: bool) -> Duration {
    let (writer, reader) = (connect(etcd), connect(etcd));
    let _lease = register(&writer, endpoint("s", "a", 1)).unwrap();
    let mut watch = block_on(reader.watch("s")).unwrap();
    wait_for("the endpoint", || listed(&reader, "s") == ["a*1"]);
    while watch.try_next().is_some() {}
    if wiped {
        etcd.wipe()
    } else {
        etcd.kill()
    }
    let back_at = Instant::now() + Duration::from_millis(2500);
    wait_for("the end of the outage", || {
        assert_eq!((listed(&reader, "s"), listed(&writer, "s")), (vec!["a*1".into()], vec!["a*1".into()]));
        Instant::now() > back_at
    });
    etcd.restart();
    wait_for("an answer of etcd", || with_client(etcd, async |c| Ok(c.get("/test/s/a", None).await.is_ok())));
    let again = wait_for("the registration", || {
        assert_eq!(listed(&reader, "s"), ["a*1"]);
        keys_in(etcd) == ["/test/s/a"]
    });
    // Past the lease and the grace: it is alive, not just left over.
    let until = Instant::now() + Duration::from_millis(6500);
    wait_for("the end of all grace", || {
        assert_eq!(listed(&reader, "s"), ["a*1"]);
        Instant::now() > until
    });
    let _b = register(&writer, endpoint("s", "b", 2)).unwrap();
    assert_eq!(told(&mut watch), "+b*2", "the watch goes on, and there was nothing else to tell");
    again
}

#[test]
fn an_etcd_that_was_away_longer_than_the_lease_is_caught_up_with() {
    let Some(mut etcd) = Etcd::start("an_etcd_that_was_away_longer_than_the_lease_is_caught_up_with") else {
        return;
    };
    let again = outage(&mut etcd, false);
    eprintln!("registered again {again:?} after etcd answered");
    assert!(again < Duration::from_secs(2), "{again:?}");
}

#[test]
fn an_etcd_that_lost_everything_is_filled_again() {
    let Some(mut etcd) = Etcd::start("an_etcd_that_lost_everything_is_filled_again") else { return };
    let again = outage(&mut etcd, true);
    eprintln!("registered again {again:?} after an empty etcd answered");
    assert!(again < Duration::from_secs(2), "{again:?}");
}

#[test]
fn what_changed_while_away_is_told_even_after_a_compaction() {
    let Some(mut etcd) = Etcd::start("what_changed_while_away_is_told_even_after_a_compaction") else {
        return;
    };
    let put = |etcd: &Etcd, key: &str, weight: u16| {
        let value = format!(r#"{{"address": "h:1", "weight": {weight}}}"#);
        with_client(etcd, async |client| client.put(key, value, None).await);
    };
    let mut quick = options(&etcd);
    quick.wait_for_etcd = true;
    quick.absence_grace = Duration::from_millis(100);
    wait_for("an answer", || with_client(&etcd, async |c| Ok(c.get("x", None).await.is_ok())));
    ["/test/s/a", "/test/s/b", "/test/s/c"].iter().for_each(|key| put(&etcd, key, 1));
    let registry = block_on(EtcdRegistry::connect(quick)).unwrap();
    let mut watch = block_on(registry.watch("s")).unwrap();
    assert_eq!(told(&mut watch), "=3");
    etcd.kill();
    etcd.restart();
    with_client(&etcd, async |client| {
        client.delete("/test/s/b", None).await?;
        client.put("/test/s/c", r#"{"address": "h:1", "weight": 9}"#, None).await?;
        let revision =
            client.put("/test/s/d", r#"{"address": "h:1"}"#, None).await?.header().unwrap().revision();
        client.compact(revision, None).await
    });
    let mut all: Vec<_> = (0..3).map(|_| told(&mut watch)).collect();
    all.sort();
    assert_eq!(all, ["+d*100", "-b", "~c*9"]);
}

#[test]
fn registrations_wait_for_etcd_or_are_withdrawn() {
    let Some(mut etcd) = Etcd::start("registrations_wait_for_etcd_or_are_withdrawn") else { return };
    let mut impatient = options(&etcd);
    impatient.wait_for_etcd = true;
    impatient.request_timeout = Duration::from_millis(700);
    let impatient = block_on(EtcdRegistry::connect(impatient)).unwrap();
    let patient = connect(&etcd);
    let held = register(&impatient, endpoint("s", "held", 1)).unwrap();
    etcd.kill();
    let late = register(&impatient, endpoint("s", "late", 1)).unwrap_err();
    assert!(matches!(late, RegistryError::Timeout { kind: "etcd", .. }), "{late}");
    let told = block_on(held.deregister()).unwrap_err();
    assert!(matches!(told, RegistryError::Timeout { .. }), "{told}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| register(&patient, endpoint("s", "patient", 1)));
        std::thread::sleep(Duration::from_millis(300));
        etcd.restart();
        let _lease = waiting.join().unwrap().unwrap();
        wait_for("what was given back to be gone", || keys_in(&etcd) == ["/test/s/patient"]);
    });
}

#[test]
fn an_etcd_that_is_not_there_is_an_error_or_is_waited_for() {
    let Some(mut etcd) = Etcd::start("an_etcd_that_is_not_there_is_an_error_or_is_waited_for") else {
        return;
    };
    etcd.kill();
    let start = Instant::now();
    let error = block_on(EtcdRegistry::connect(options(&etcd))).unwrap_err();
    assert!(matches!(&error, RegistryError::Unreachable { kind: "etcd", .. }), "{error}");
    assert!(error.to_string().contains(&etcd.member()) && start.elapsed() < Duration::from_secs(2));
    let member = etcd.member();
    // Not a scoped thread: it would wait for ever if the test failed meanwhile.
    let waiting = std::thread::spawn(move || connect_later(&member));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished());
    etcd.restart();
    wait_for("the connection", || waiting.is_finished());
    assert!(waiting.join().unwrap().is_ok());
}

fn connect_later(member: &str) -> Result<EtcdRegistry, RegistryError> {
    let mut options = EtcdOptions::new([member]);
    options.wait_for_etcd = true;
    block_on(EtcdRegistry::connect(options))
}

#[test]
fn options_that_cannot_be_are_refused_at_once() {
    let connect = |change: fn(&mut EtcdOptions)| {
        let mut options = EtcdOptions::new(["127.0.0.1:1"]);
        change(&mut options);
        block_on(EtcdRegistry::connect(options)).unwrap_err()
    };
    assert!(matches!(connect(|o| o.members.clear()), RegistryError::BadUri { .. }));
    assert!(matches!(connect(|o| o.members[0] = "http://h:1".into()), RegistryError::BadUri { .. }));
    assert!(matches!(connect(|o| o.prefix = "/a".into()), RegistryError::Endpoint(_)));
    assert!(matches!(connect(|o| o.lease_ttl = Duration::from_millis(999)), RegistryError::BadTtl { .. }));
}

#[test]
fn leases_of_a_second_hold_under_load() {
    let Some(etcd) = Etcd::start("leases_of_a_second_hold_under_load") else { return };
    let (writer, reader) = (connect(&etcd), connect(&etcd));
    let kept: Vec<_> =
        (0..50).map(|n| register(&writer, endpoint("kept", &n.to_string(), 1)).unwrap()).collect();
    wait_for("all kept ones", || listed(&reader, "kept").len() == 50);
    let until = Instant::now() + Duration::from_secs(4);
    let mut rounds = 0;
    while Instant::now() < until {
        let lease = register(&writer, endpoint("churn", &(rounds % 7).to_string(), rounds)).unwrap();
        assert_eq!(listed(&reader, "kept").len(), 50);
        drop(lease);
        rounds += 1;
    }
    assert!(rounds > 20, "{rounds}");
    kept.iter().for_each(|lease| lease.renew().unwrap());
    drop((kept, writer));
    wait_for("all to be given back", || keys_in(&etcd).is_empty());
}

#[test]
fn ten_thousand_endpoints_are_listed_and_a_hundred_watchers_told() {
    let Some(etcd) = Etcd::start("ten_thousand_endpoints_are_listed_and_a_hundred_watchers_told") else {
        return;
    };
    let mut slow = options(&etcd);
    slow.wait_for_etcd = true;
    slow.lease_ttl = Duration::from_secs(60);
    slow.request_timeout = PATIENCE;
    let writer = block_on(EtcdRegistry::connect(slow)).unwrap();
    let start = Instant::now();
    let pending: Vec<_> = (0..10_000)
        .map(|n| endpoint(&format!("s{}", n % 100), &n.to_string(), 1))
        .map(|endpoint| writer.register(endpoint, RegisterOptions::new()))
        .collect();
    let _leases: Vec<_> = block_on(all(pending)).into_iter().map(Result::unwrap).collect();
    eprintln!("10,000 endpoints registered in {:?}", start.elapsed());
    let start = Instant::now();
    let reader = connect(&etcd);
    let listed_in = start.elapsed();
    eprintln!("10,000 endpoints listed in {listed_in:?}");
    let count: usize = (0..100).map(|n| reader.catalog().snapshot(&format!("s{n}")).len()).sum();
    assert_eq!(count, 10_000);
    let mut watches: Vec<_> = (0..100).map(|_| block_on(reader.watch("s0")).unwrap()).collect();
    watches.iter_mut().for_each(|watch| assert_eq!(told(watch), "=100"));
    let start = Instant::now();
    let _new = register(&writer, endpoint("s0", "new", 1)).unwrap();
    watches.iter_mut().for_each(|watch| assert_eq!(told(watch), "+new*1"));
    eprintln!("a change told to 100 watchers in {:?}", start.elapsed());
}

/// Polls all futures until all are done.
async fn all<T>(futures: Vec<impl Future<Output = T> + Unpin>) -> Vec<T> {
    let mut pending: Vec<_> = futures.into_iter().map(Some).collect();
    let mut done: Vec<Option<T>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (future, done) in pending.iter_mut().zip(&mut done) {
            if let Some(running) = future
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(running).poll(cx)
            {
                (*done, *future) = (Some(value), None);
            }
        }
        if pending.iter().all(Option::is_none) {
            std::task::Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
        } else {
            std::task::Poll::Pending
        }
    })
    .await
}
