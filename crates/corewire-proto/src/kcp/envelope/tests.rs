use super::*;
use crate::kcp::Transmit;

const HERE: u8 = 9;

fn keys() -> Keys {
    Keys::new(&[1; 32])
}

fn one(len: usize) -> Transmit {
    Transmit { segment_size: len, datagrams: 1, len }
}

fn server(id: u8) -> ServerEnvelope<u8> {
    ServerEnvelope::new(keys(), [id; 16])
}

fn sealed(client: &mut ClientEnvelope, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    client.seal(0, plain, one(plain.len()), &mut out).unwrap();
    out
}

fn answer(opened: Result<Opened<'_>, OpenError>) -> Vec<u8> {
    match opened {
        Ok(Opened::Answer(answer)) => answer.to_vec(),
        other => panic!("no answer: {other:?}"),
    }
}

/// What crosses between a client and its server until it can send.
struct Greeting {
    hello: Vec<u8>,
    challenge: Vec<u8>,
    echo: Vec<u8>,
    first: Vec<u8>,
}

fn greet(client: &mut ClientEnvelope, server: &mut ServerEnvelope<u8>, plain: &[u8]) -> Greeting {
    let hello = sealed(client, plain);
    let challenge = answer(server.open(0, HERE, &mut hello.clone()));
    let echo = answer(client.open(&mut challenge.clone()));
    assert_eq!(server.open(0, HERE, &mut echo.clone()), Ok(Opened::Nothing));
    let mut first = Vec::new();
    client.poll_waiting(&mut first).unwrap().expect("it has waited");
    assert_eq!(server.open(0, HERE, &mut first.clone()), Ok(Opened::Data(&mut plain.to_vec())));
    Greeting { hello, challenge, echo, first }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_client_is_heard_after_it_has_echoed_the_servers_time() {
    let (mut client, mut server) = (ClientEnvelope::new(keys(), [2; 16]), server(3));
    let seen = greet(&mut client, &mut server, b"first");
    assert!(seen.challenge.len() <= seen.hello.len());
    let mut out = Vec::new();
    let batch = Transmit { segment_size: 4, datagrams: 3, len: 10 };
    let batch = server.seal(HERE, b"aaaabbbbcc", batch, &mut out).unwrap();
    assert_eq!((batch.segment_size, batch.datagrams, batch.len), (52, 3, 10 + 3 * 48));
    let plain: Vec<Vec<u8>> = out
        .chunks_mut(52)
        .map(|datagram| match client.open(datagram) {
            Ok(Opened::Data(data)) => data.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(plain, [&b"aaaa"[..], b"bbbb", b"cc"]);
    assert_eq!(server.seal(1, b"x", one(1), &mut out), Err(SealError::UnknownClient));
}

#[test]
fn a_first_flight_played_back_opens_nothing_anywhere() {
    let (mut client, mut first) = (ClientEnvelope::new(keys(), [2; 16]), server(3));
    let Greeting { hello, challenge, echo, first: data } =
        greet(&mut client, &mut first, b"pay 1,000 to the bearer");
    let replayed = |counter| Err(OpenError::Replayed { counter });
    assert_eq!(first.open(1, HERE, &mut echo.clone()), replayed(1));
    assert_eq!(first.open(1, HERE, &mut data.clone()), replayed(2));
    // Another server with the same key, or this one after it was started anew: challenges, and takes nothing.
    let mut second = server(4);
    for datagram in [&hello, &echo, &data] {
        answer(second.open(1, HERE, &mut datagram.clone()));
    }
    assert_eq!(second.seal(HERE, b"x", one(1), &mut Vec::new()), Err(SealError::UnknownClient));
    // Its first bytes changed so that it seems to be meant.
    let mut aimed = data.clone();
    aimed[1..4].fill(4);
    assert_eq!(second.open(1, HERE, &mut aimed), Err(OpenError::Forged));
    // A server that has forgotten the client, later.
    let mut forgetful = server(3).clients_max(1);
    let mut again = ClientEnvelope::new(keys(), [2; 16]);
    let Greeting { echo, first: data, .. } = greet(&mut again, &mut forgetful, b"pay 1,000 to the bearer");
    greet(&mut ClientEnvelope::new(keys(), [5; 16]), &mut forgetful, b"x");
    assert_eq!(forgetful.open(10_001, HERE, &mut echo.clone()), Err(OpenError::Stale));
    answer(forgetful.open(10_001, HERE, &mut data.clone()));
    // To the client, its own and old ones.
    for mut own in [hello, echo, data] {
        assert_eq!(client.open(&mut own), Err(OpenError::Forged));
    }
    assert_eq!(client.open(&mut challenge.clone()), replayed(0));
}

#[test]
fn what_a_worker_has_sealed_opens_no_session_at_another() {
    let (mut client, mut one_worker, mut other) =
        (ClientEnvelope::new(keys(), [2; 16]), server(3), server(4));
    greet(&mut client, &mut one_worker, b"x");
    let mut out = Vec::new();
    one_worker.seal(HERE, b"reply of 24 bytes or so.", one(24), &mut out).unwrap();
    // It is for somebody else as far as either can tell; what comes of that is a challenge, which nobody echoes.
    answer(other.open(0, HERE, &mut out.clone()));
    for id in [3, 4] {
        let mut aimed = out.clone();
        aimed[1..4].fill(id);
        assert_eq!(other.open(0, HERE, &mut aimed.clone()).is_ok(), id != 4);
        assert_eq!(one_worker.open(0, HERE, &mut aimed).is_ok(), id != 3);
    }
    let mut another = ClientEnvelope::new(keys(), [6; 16]);
    assert_eq!(another.open(&mut out.clone()), Err(OpenError::Forged), "it was sealed for one client");
}

#[test]
fn every_changed_bit_is_noticed_and_moves_no_window() {
    let (mut client, mut server) = (ClientEnvelope::new(keys(), [2; 16]), server(3));
    greet(&mut client, &mut server, b"x");
    let good = sealed(&mut client, b"hello");
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(server.open(0, HERE, &mut bad), Ok(Opened::Data(_))), "bit {bit}");
    }
    assert_eq!(server.open(0, HERE, &mut good.clone()), Ok(Opened::Data(&mut b"hello".to_vec())));
    for len in 0..ENVELOPE_OVERHEAD {
        assert_eq!(server.open(0, HERE, &mut good.clone()[..len]), Err(OpenError::Malformed { len }));
        assert_eq!(client.open(&mut good.clone()[..len]), Err(OpenError::Malformed { len }));
    }
}

#[test]
fn a_server_that_was_started_anew_is_found_by_the_next_datagram() {
    let (mut client, mut old) = (ClientEnvelope::new(keys(), [2; 16]), server(3));
    greet(&mut client, &mut old, b"x");
    let mut new = server(4);
    let challenge = answer(new.open(5, HERE, &mut sealed(&mut client, b"24 bytes, as KCP has...")));
    let echo = answer(client.open(&mut challenge.clone()));
    assert_eq!(new.open(5, HERE, &mut echo.clone()), Ok(Opened::Nothing));
    let data = sealed(&mut client, b"again");
    assert_eq!(new.open(5, HERE, &mut data.clone()), Ok(Opened::Data(&mut b"again".to_vec())));
    // Challenges without proof are few.
    let strange = sealed(&mut client, b"a datagram that is longer than a challenge");
    let answered = (0..1000).filter(|_| old.open(5, HERE, &mut strange.clone()).is_ok()).count();
    assert_eq!(answered, 256);
}

#[test]
fn an_old_challenge_is_not_echoed() {
    let (mut client, mut server) = (ClientEnvelope::new(keys(), [2; 16]), server(3));
    let late = answer(server.open(0, HERE, &mut sealed(&mut client, b"x")));
    greet_by(&mut client, &mut server);
    for _ in 0..1024 {
        sealed(&mut client, b"y");
    }
    assert_eq!(client.open(&mut late.clone()), Err(OpenError::Stale));
}

/// A second hello, since the answer to the first is on its way for long.
fn greet_by(client: &mut ClientEnvelope, server: &mut ServerEnvelope<u8>) {
    let mut hello = Vec::new();
    client.seal(100, b"z", one(1), &mut hello).unwrap();
    let challenge = answer(server.open(100, HERE, &mut hello));
    let echo = answer(client.open(&mut challenge.clone()));
    assert_eq!(server.open(100, HERE, &mut echo.clone()), Ok(Opened::Nothing));
}

#[test]
fn a_client_that_moves_is_answered_at_its_new_address() {
    let (mut client, mut server) = (ClientEnvelope::new(keys(), [2; 16]), server(3));
    greet(&mut client, &mut server, b"x");
    server.open(0, 77, &mut sealed(&mut client, b"y")).unwrap();
    let mut out = Vec::new();
    assert_eq!(server.seal(HERE, b"z", one(1), &mut out), Err(SealError::UnknownClient));
    server.seal(77, b"z", one(1), &mut out).unwrap();
    assert_eq!(client.open(&mut out), Ok(Opened::Data(&mut b"z".to_vec())));
}

#[test]
fn keys_are_changed_without_an_outage() {
    let (old, new) = ([1; 32], [8; 32]);
    let mut server: ServerEnvelope<u8> = ServerEnvelope::new(Keys::new(&old).and(&new), [3; 16]);
    for (id, key) in [(2, old), (4, new)] {
        let mut client = ClientEnvelope::new(Keys::new(&key), [id; 16]);
        greet(&mut client, &mut server, b"x");
        let mut out = Vec::new();
        server.seal(HERE, b"y", one(1), &mut out).unwrap();
        assert_eq!(out[4..8], Keys::id(&key));
        assert_eq!(client.open(&mut out), Ok(Opened::Data(&mut b"y".to_vec())));
    }
    let mut server: ServerEnvelope<u8> = ServerEnvelope::new(Keys::new(&new), [3; 16]);
    let mut client = ClientEnvelope::new(Keys::new(&old), [2; 16]);
    let unknown = Err(OpenError::UnknownKey { id: Keys::id(&old) });
    assert_eq!(server.open(0, HERE, &mut sealed(&mut client, b"x")), unknown);
}

#[test]
fn the_bytes_are_as_documented() {
    let mut client = ClientEnvelope::new(Keys::new(&[0x11; 32]), [0xc1; 16]);
    let mut server: ServerEnvelope<u8> = ServerEnvelope::new(Keys::new(&[0x11; 32]), [0x5e; 16]);
    let Greeting { hello, challenge, echo, first } = greet(&mut client, &mut server, b"hi");
    let page = include_str!("../../../../../docs/reliable-udp.md");
    for (name, datagram) in [("hello", hello), ("challenge", challenge), ("echo", echo), ("data", first)] {
        let parts = [&datagram[..4], &datagram[4..8], &datagram[8..24], &datagram[24..32], &datagram[32..]];
        let text = parts.map(hex_of).join(" ");
        assert!(page.contains(&text), "{name} is not documented: {text}");
    }
}

#[test]
fn what_waits_for_the_server_is_bounded() {
    let mut client = ClientEnvelope::new(keys(), [2; 16]);
    let mut hellos = 0;
    for now in 0..1000 {
        let mut out = Vec::new();
        hellos += usize::from(client.seal(now, &[0; 1400], one(1400), &mut out).unwrap().is_some());
    }
    assert_eq!(hellos, 10);
    let mut server = server(3);
    let mut hello = Vec::new();
    client.seal(5_000, b"x", one(1), &mut hello).unwrap();
    let challenge = answer(server.open(0, HERE, &mut hello));
    answer(client.open(&mut challenge.clone()));
    let waiting = std::iter::from_fn(|| client.poll_waiting(&mut Vec::new()).unwrap()).count();
    assert_eq!(waiting, 128 * 1024 / 1400 + 1, "and the short one at the end");
}

#[test]
fn no_key_is_shown() {
    let shown = format!("{:?} {:?}", ClientEnvelope::new(keys(), [2; 16]), server(3));
    assert!(shown.contains("Keys(..)") && !shown.contains("cipher"), "{shown}");
}
