//! Many conversations on one port.

use corewire_proto::kcp::{
    CloseReason, Command, Config, Header, Kcp, SessionError, SessionEvent, Sessions, SessionsConfig,
    challenge, fin,
};
use corewire_testkit::rng::Rng;

type Address = u64;

fn sessions(config: SessionsConfig) -> Sessions<Address> {
    Sessions::new(config).expect("the settings are valid")
}

fn turbo() -> SessionsConfig {
    SessionsConfig { conversation: Config::turbo(), ..SessionsConfig::default() }
}

fn transmits(sessions: &mut Sessions<Address>, now: u64) -> Vec<(Address, Vec<u8>)> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some((to, transmit)) = sessions.poll_transmit(now, &mut out, 64) {
        all.extend(out.chunks(transmit.segment_size).map(|datagram| (to, datagram.to_vec())));
        out.clear();
    }
    all
}

/// Carries datagrams between two ports, `a` at address 1 and `b` at address 2, until both are quiet.
fn exchange(a: &mut Sessions<Address>, b: &mut Sessions<Address>, now: u64) {
    loop {
        let (from_a, from_b) = (transmits(a, now), transmits(b, now));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.iter().for_each(|(_, datagram)| drop(b.receive(now, 1, datagram)));
        from_b.iter().for_each(|(_, datagram)| drop(a.receive(now, 2, datagram)));
    }
}

fn events(sessions: &mut Sessions<Address>) -> Vec<SessionEvent<Address>> {
    std::iter::from_fn(|| sessions.poll_event()).collect()
}

fn first_push(conversation: u32) -> Vec<u8> {
    let mut kcp = Kcp::new(conversation, Config::default()).expect("the settings are valid");
    kcp.send(b"hello").expect("the queue is empty");
    let mut out = Vec::new();
    kcp.poll_transmit(0, &mut out, 1);
    out
}

/// The token of the challenge in these datagrams.
fn challenge_in(datagrams: &[(Address, Vec<u8>)]) -> Option<u32> {
    datagrams.iter().flat_map(|(_, datagram)| segments(datagram)).find_map(|header| {
        (header.command == Command::Push && header.number == challenge::NUMBER).then_some(header.timestamp)
    })
}

fn segments(mut datagram: &[u8]) -> Vec<Header> {
    let mut headers = Vec::new();
    while let Ok((header, _, rest)) = Header::parse(datagram) {
        headers.push(header);
        datagram = rest;
    }
    headers
}

fn bare(conversation: u32, command: Command, number: u32, timestamp: u32, unacknowledged: u32) -> Vec<u8> {
    Header { conversation, command, fragment: 0, window: 128, timestamp, number, unacknowledged, len: 0 }
        .to_bytes()
        .to_vec()
}

/// What every KCP answers to a challenge.
fn echo(conversation: u32, token: u32) -> Vec<u8> {
    bare(conversation, Command::Ack, challenge::NUMBER, token, 0)
}

fn bytes(datagrams: &[(Address, Vec<u8>)]) -> usize {
    datagrams.iter().map(|(_, datagram)| datagram.len()).sum()
}

#[test]
fn an_address_that_is_not_validated_gets_three_times_what_it_has_sent_at_the_most() {
    for spoofed in [
        vec![first_push(1)],
        vec![first_push(1), bare(1, Command::WindowAsk, 0, 0, 0)],
        vec![first_push(1), bare(1, Command::WindowTell, 0, 0, 0)],
        vec![[first_push(1), bare(1, Command::WindowTell, 0, 0, 0)].concat()],
        vec![first_push(1), bare(1, Command::Ack, 0, 0, 1), bare(1, Command::Ack, challenge::NUMBER, 0, 0)],
    ] {
        let mut server = sessions(SessionsConfig {
            conversation: Config::turbo().mode(corewire_proto::kcp::Mode::Stream),
            ..SessionsConfig::default()
        });
        let (mut heard, mut told) = (0, 0);
        for (now, datagram) in (0..).step_by(50).zip(&spoofed) {
            heard += datagram.len();
            let id = server.receive(now, 9, datagram).unwrap();
            let _ = server.session(id).unwrap().write(&[7; 1_400_000]);
            told += bytes(&transmits(&mut server, now));
        }
        let mut now = 1_000;
        while let Some(after) = server.next_timeout(now) {
            now += after.max(1);
            told += bytes(&transmits(&mut server, now));
            assert!(now < 3_600_000 * 24, "it sleeps in between");
        }
        assert!(told > 0 && told <= 3 * heard, "{told} bytes for {heard}");
        assert_eq!(server.len(), 0, "it was not taken for validated");
    }
}

#[test]
fn who_echoes_the_challenge_gets_all_of_it() {
    let mut server = sessions(turbo());
    let mut client = sessions(turbo());
    let here = client.connect(0, 2, 77).unwrap();
    client.session(here).unwrap().send(b"?").unwrap();
    for (_, datagram) in transmits(&mut client, 0) {
        server.receive(15, 1, &datagram).unwrap();
    }
    let Some(SessionEvent::Opened(there)) = server.poll_event() else { panic!() };
    server.session(there).unwrap().send(&[7; 100_000]).unwrap();
    assert!(!server.peek(there).unwrap().is_validated());
    assert!(bytes(&transmits(&mut server, 15)) < 200);
    assert_eq!(
        server.next_timeout(15),
        Some(100),
        "nothing but another challenge leaves until something is received"
    );
    let mut server = sessions(turbo());
    let mut now = 20;
    let id = client.connect(now, 2, 78).unwrap();
    client.session(id).unwrap().send(b"?").unwrap();
    let mut reply = None;
    while reply.is_none() && now < 200 {
        exchange(&mut client, &mut server, now);
        if let Some(SessionEvent::Opened(there)) = server.poll_event() {
            server.session(there).unwrap().send(&[7; 100_000]).unwrap();
            assert!(server.peek(there).unwrap().is_validated());
        }
        reply = client.session(id).unwrap().recv();
        now += 10;
    }
    assert_eq!(reply.map(|reply| reply.len()), Some(100_000));
}

#[test]
fn the_kcp_crate_passes_the_challenge_without_knowing_it() {
    #[derive(Clone, Default)]
    struct Outbox(std::rc::Rc<std::cell::RefCell<Vec<Vec<u8>>>>);
    impl std::io::Write for Outbox {
        fn write(&mut self, datagram: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().push(datagram.to_vec());
            Ok(datagram.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let outbox = Outbox::default();
    let mut other = kcp::Kcp::new(5, outbox.clone());
    other.set_nodelay(true, 10, 2, true);
    let mut server = sessions(turbo());
    other.send(b"hello").unwrap();
    let mut opened = None;
    for now in (0..100).step_by(10) {
        other.update(now as u32).unwrap();
        let sent: Vec<_> = outbox.0.borrow_mut().drain(..).collect();
        for datagram in sent {
            opened = Some(server.receive(now, 1, &datagram).unwrap());
        }
        for (_, datagram) in transmits(&mut server, now) {
            other.input(&datagram).unwrap();
        }
    }
    let kcp = server.session(opened.unwrap()).unwrap();
    assert!(kcp.is_validated());
    assert_eq!(kcp.recv().as_deref(), Some(&b"hello"[..]));
    assert!(other.peeksize().is_err(), "the challenge is no message");
}

#[test]
fn data_of_a_conversation_that_nobody_knows_is_answered_by_a_reset() {
    let mut client = sessions(turbo());
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(b"ping").unwrap();
    let mut server = sessions(turbo());
    exchange(&mut client, &mut server, 0);
    let Some(SessionEvent::Opened(there)) = server.poll_event() else { panic!() };
    server.session(there).unwrap().send(b"pong").unwrap();
    exchange(&mut client, &mut server, 1);
    assert_eq!(client.session(id).unwrap().recv().as_deref(), Some(&b"pong"[..]));
    // The server starts anew.
    let mut server = sessions(turbo());
    client.session(id).unwrap().send(b"still there?").unwrap();
    exchange(&mut client, &mut server, 50);
    let reason = CloseReason::Reset;
    let ends = events(&mut client);
    assert!(
        matches!(ends[..], [.., SessionEvent::Closed { reason: found, .. }] if found == reason),
        "{ends:?}"
    );
}

#[test]
fn resets_are_no_longer_than_what_they_answer_and_few() {
    let mut server = sessions(turbo());
    let data = bare(5, Command::Push, 3, 0, 9);
    assert!((0..10_000).all(|from| server.receive(0, from, &data).is_err()));
    let sent = transmits(&mut server, 0);
    assert_eq!(sent.len(), 256);
    let (header, _, _) = Header::parse(&sent[0].1).unwrap();
    assert_eq!((header.command, header.fragment, header.timestamp), (Command::Fin, fin::RESET, 9));
    assert!(sent.iter().all(|(_, datagram)| datagram.len() <= data.len()));
    assert!(server.receive(1_000, 1, &data).is_err());
    assert_eq!(transmits(&mut server, 1_000).len(), 1);
    // Nothing that could be an answer itself is answered, nor what may have overtaken its first segment.
    for quiet in [
        bare(5, Command::Ack, 3, 0, 9),
        bare(5, Command::WindowTell, 0, 0, 9),
        bare(5, Command::Fin, fin::NUMBER, 0, 9),
        bare(5, Command::Cookie, 1, 1, 9),
        bare(5, Command::Push, 3, 0, 0),
    ] {
        assert!(server.receive(2_000, 1, &quiet).is_err());
        assert_eq!(transmits(&mut server, 2_000), []);
    }
    let far_on = bare(5, Command::Push, 128, 0, 0);
    assert!(server.receive(3_000, 1, &far_on).is_err());
    assert_eq!(transmits(&mut server, 3_000).len(), 1, "a peer that only sends was answered by somebody");
}

#[test]
fn a_full_table_offers_a_cookie_and_who_echoes_it_is_in_at_once() {
    let mut server = sessions(SessionsConfig { unvalidated_max: 10, ..turbo() });
    assert!((0..10).all(|address| server.receive(0, 1_000 + address, &first_push(1)).is_ok()));
    transmits(&mut server, 0);
    let mut client = sessions(turbo());
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(b"ping").unwrap();
    exchange(&mut client, &mut server, 5);
    assert_eq!(server.len(), 11);
    let told = events(&mut server);
    let Some(SessionEvent::Readable(there)) = told.last() else { panic!("{told:?}") };
    let kcp = server.session(*there).unwrap();
    assert!(kcp.is_validated());
    assert_eq!(kcp.recv().as_deref(), Some(&b"ping"[..]));
    assert_eq!(client.peek(id).unwrap().stats().timeout_resends, 1, "sent again as soon as the cookie came");
}

#[test]
fn a_cookie_is_of_one_address_conversation_and_time() {
    let mut server = sessions(SessionsConfig { unvalidated_max: 0, ..turbo() });
    let offer = |server: &mut Sessions<Address>, now| {
        assert!(server.receive(now, 1, &first_push(7)).is_err());
        let mut offer = Header::parse(&transmits(server, now)[0].1).unwrap().0;
        assert_eq!((offer.command, offer.fragment), (Command::Cookie, challenge::COOKIE_OFFER));
        offer.fragment = challenge::COOKIE_ECHO;
        offer
    };
    let echo = offer(&mut server, 5_000);
    let other = Header { conversation: 8, ..echo };
    assert!(server.receive(5_000, 2, &echo.to_bytes()).is_err());
    assert!(server.receive(5_000, 1, &other.to_bytes()).is_err());
    assert!(server.receive(25_000, 1, &echo.to_bytes()).is_err());
    assert!(server.receive(15_000, 1, &echo.to_bytes()).is_ok());
    let mut another = sessions(SessionsConfig { unvalidated_max: 0, ..turbo() });
    assert!(another.receive(5_000, 1, &echo.to_bytes()).is_err(), "a cookie of another server");
}

#[test]
fn a_first_segment_opens_a_session_and_both_sides_talk_and_close() {
    let (mut client, mut server) = (sessions(turbo()), sessions(turbo()));
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(b"ping").unwrap();
    exchange(&mut client, &mut server, 0);
    let told = events(&mut server);
    let &[SessionEvent::Opened(there), SessionEvent::Readable(_)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((server.address(there), server.peek(there).unwrap().conversation()), (Some(1), 77));
    let kcp = server.session(there).unwrap();
    assert_eq!(kcp.recv().as_deref(), Some(&b"ping"[..]));
    kcp.send(b"pong").unwrap();
    exchange(&mut client, &mut server, 5);
    assert_eq!(events(&mut client), [SessionEvent::Readable(id)]);
    assert_eq!(client.session(id).unwrap().recv().as_deref(), Some(&b"pong"[..]));

    client.session(id).unwrap().close(10);
    exchange(&mut client, &mut server, 10);
    assert_eq!(events(&mut server), [SessionEvent::Readable(there)], "the end is told as something to read");
    assert!(server.peek(there).unwrap().is_at_end());
    server.session(there).unwrap().close(11);
    exchange(&mut client, &mut server, 11);
    let reason = CloseReason::Finished;
    let closed = SessionEvent::Closed { id, address: 2, conversation: 77, reason };
    assert_eq!(events(&mut client), [SessionEvent::Readable(id), closed]);
    assert_eq!(
        events(&mut server),
        [SessionEvent::Closed { id: there, address: 1, conversation: 77, reason }]
    );
    assert_eq!((client.len(), server.len()), (0, 0));
    assert_eq!(client.connect(12, 2, 77), Err(SessionError::Ended { conversation: 77 }));
    assert!(client.connect(20_000, 2, 77).is_ok());
}

#[test]
fn only_the_first_segment_of_a_conversation_opens_a_session() {
    let mut server = sessions(turbo());
    let mut later = first_push(5);
    later[12] = 1;
    assert_eq!(server.receive(0, 1, &later), Err(SessionError::Unknown { conversation: 5 }));
    let mut ack = first_push(5);
    ack[4] = Command::Ack as u8;
    assert_eq!(server.receive(0, 1, &ack), Err(SessionError::Unknown { conversation: 5 }));
    assert!(server.receive(0, 1, &first_push(5)[..23]).is_err());
    assert!(server.receive(0, 1, b"").is_err());
    let mut closed = sessions(SessionsConfig { accept: false, ..turbo() });
    assert_eq!(closed.receive(0, 1, &first_push(5)), Err(SessionError::Unknown { conversation: 5 }));
    assert_eq!((server.len(), closed.len(), server.next_timeout(0)), (0, 0, None));
}

#[test]
fn one_address_may_hold_several_conversations() {
    let mut server = sessions(turbo());
    let ids = [1, 2].map(|conversation| server.receive(0, 9, &first_push(conversation)).unwrap());
    assert_ne!(ids[0], ids[1]);
    assert_eq!(server.receive(0, 9, &first_push(1)), Ok(ids[0]));
    assert_eq!(server.len(), 2);
}

#[test]
fn a_late_repetition_of_the_first_segment_opens_no_second_session() {
    let mut server = sessions(turbo());
    let id = server.connect(0, 1, 5).unwrap();
    server.remove(0, id);
    assert_eq!(server.receive(100, 1, &first_push(5)), Err(SessionError::Ended { conversation: 5 }));
    assert!(server.session(id).is_none());
    assert!(server.receive(10_001, 1, &first_push(5)).is_ok());
}

#[test]
fn a_flood_of_forged_addresses_costs_bounded_memory_and_no_validated_session() {
    let mut server = sessions(turbo());
    let mut client = sessions(turbo());
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(b"ping").unwrap();
    exchange(&mut client, &mut server, 0);
    let forged = first_push(1);
    for address in 0..100_000 {
        let outcome = server.receive(1, 1_000 + address, &forged);
        assert_eq!(outcome.is_ok(), address < 2048, "{outcome:?}");
        if address % 1_000 == 0 {
            transmits(&mut server, 1);
        }
    }
    transmits(&mut server, 1);
    assert_eq!(server.len(), 2049);
    assert!(server.connect(1, 5, 5).is_ok(), "own connections are not refused");

    assert!(transmits(&mut server, 1_001).len() >= 2048, "those that are not validated are asked again");
    [2_001, 3_001, 4_001].into_iter().for_each(|now| drop(transmits(&mut server, now)));
    client.session(id).unwrap().send(b"still here").unwrap();
    exchange(&mut client, &mut server, 4_500);
    transmits(&mut server, 5_001);
    assert_eq!(server.len(), 2, "the forged ones are gone, the true one stays");
    let unvalidated = events(&mut server)
        .into_iter()
        .filter(|event| matches!(event, SessionEvent::Closed { reason: CloseReason::Unvalidated, .. }));
    assert_eq!(unvalidated.count(), 2048);
}

#[test]
fn in_a_flood_a_new_peer_takes_the_place_of_one_that_had_its_time_to_answer() {
    let mut server = sessions(SessionsConfig { unvalidated_max: 10, ..turbo() });
    for address in 0..10 {
        server.receive(0, 1_000 + address, &first_push(1)).unwrap();
    }
    let full = Err(SessionError::TooManySessions { name: "unvalidated_max", limit: 10 });
    assert_eq!(server.receive(999, 2_000, &first_push(1)), full);
    let mut client = sessions(turbo());
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(b"ping").unwrap();
    exchange(&mut client, &mut server, 1_000);
    for address in 0..50 {
        assert_eq!(server.receive(1_001, 3_000 + address, &first_push(1)).is_ok(), address < 10);
    }
    assert_eq!(server.len(), 11);
    client.session(id).unwrap().send(b"still here").unwrap();
    exchange(&mut client, &mut server, 1_500);
    assert_eq!(client.len(), 1, "who is validated stays");
}

#[test]
fn a_session_that_made_room_is_not_opened_again_and_its_peer_is_told() {
    let mut server = sessions(SessionsConfig { unvalidated_max: 1, ..turbo() });
    let mut client = sessions(turbo());
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(b"once").unwrap();
    let first = transmits(&mut client, 0).remove(0).1;
    server.receive(0, 1, &first).unwrap();
    // All that the server says is lost, and another peer comes.
    transmits(&mut server, 0);
    server.receive(1_000, 5, &first_push(1)).unwrap();
    assert_eq!(server.receive(1_100, 1, &first), Err(SessionError::Ended { conversation: 77 }));
    for (to, datagram) in transmits(&mut server, 1_100) {
        if to == 1 {
            client.receive(1_100, 2, &datagram).unwrap();
        }
    }
    transmits(&mut client, 1_100);
    let ends = events(&mut client);
    assert!(
        matches!(ends[..], [.., SessionEvent::Closed { reason: CloseReason::Reset, .. }]),
        "rather than going on with a session that knows nothing of it: {ends:?}"
    );
}

/// Data of conversation 1 that fills a datagram.
fn push(number: u32) -> Vec<u8> {
    let header = Header {
        conversation: 1,
        command: Command::Push,
        fragment: 0,
        window: 128,
        timestamp: 0,
        number,
        unacknowledged: 0,
        len: 1400,
    };
    [&header.to_bytes()[..], &[7; 1400]].concat()
}

/// A port whose conversations have windows that an unvalidated peer may not fill.
fn wide() -> Sessions<Address> {
    sessions(SessionsConfig { conversation: Config::turbo().windows(1024, 1024), ..turbo() })
}

#[test]
fn who_is_not_validated_makes_its_session_hold_little() {
    let mut server = wide();
    let id = server.receive(0, 9, &push(0)).unwrap();
    let refused = (2..1024).filter(|number| server.receive(0, 9, &push(*number)).is_err());
    assert!(refused.count() > 700);
    let held = server.peek(id).unwrap().memory();
    assert!((200_000..400_000).contains(&held), "{held}");
    // Its answer is heard all the same, and then its data.
    let token = challenge_in(&transmits(&mut server, 0)).expect("a challenge was sent");
    server.receive(0, 9, &echo(1, token)).unwrap();
    server.receive(0, 9, &push(1023)).unwrap();
}

#[test]
fn who_is_not_validated_makes_its_session_hold_little_with_any_windows_and_sizes() {
    let conversation = Config::turbo().windows(128, 32_768);
    let mut server = sessions(SessionsConfig { conversation, ..turbo() });
    let id = server.receive(0, 9, &push(0)).unwrap();
    assert!(server.receive(0, 9, &push(32_767)).is_err(), "a ring up to there is much by itself");
    let mut number = 0;
    let mut next = |server: &mut Sessions<Address>, len: usize| {
        number += 1;
        let _ = server.receive(0, 9, &push(number)[..24 + len]);
        let mut short = push(number)[..24 + len].to_vec();
        short[20..24].copy_from_slice(&(len as u32).to_le_bytes());
        let _ = server.receive(0, 9, &short);
    };
    for _ in 0..20 {
        // Little data in large memory that is used again, and then much.
        (0..150).for_each(|_| next(&mut server, 1));
        (0..150).for_each(|_| next(&mut server, 1400));
        while server.session(id).unwrap().recv().is_some() {}
    }
    let held = server.peek(id).unwrap().memory();
    assert!(held < 600_000, "{held}");
}

#[test]
fn what_was_read_of_who_is_not_validated_does_not_count() {
    let mut server = wide();
    let (mut number, mut id) = (0, None);
    for _ in 0..10 {
        while let Ok(to) = server.receive(0, 9, &push(number)) {
            (number, id) = (number + 1, Some(to));
            assert!(number < 10_000, "nothing is refused");
        }
        while server.session(id.unwrap()).unwrap().recv().is_some() {}
    }
    assert!(number > 1000, "{number}");
}

#[test]
fn an_echo_is_heard_also_behind_data_that_is_refused() {
    let mut server = wide();
    let id = server.receive(0, 9, &push(0)).unwrap();
    let token = challenge_in(&transmits(&mut server, 0)).expect("a challenge was sent");
    (1..1024).for_each(|number| drop(server.receive(0, 9, &push(number))));
    let _ = server.receive(0, 9, &[push(1000), echo(1, token)].concat());
    assert!(server.peek(id).unwrap().is_validated());
    server.receive(0, 9, &push(1000)).unwrap();
}

#[test]
fn a_challenge_is_echoed_before_data() {
    let (mut client, mut server) = (wide(), wide());
    let id = client.connect(0, 2, 1).unwrap();
    let fill = |client: &mut Sessions<Address>| while client.session(id).unwrap().send(&[7; 1376]).is_ok() {};
    fill(&mut client);
    for (_, datagram) in transmits(&mut client, 0) {
        server.receive(10, 1, &datagram).unwrap();
    }
    let Some(SessionEvent::Opened(there)) = server.poll_event() else { panic!() };
    for (_, datagram) in transmits(&mut server, 10) {
        client.receive(20, 2, &datagram).unwrap();
    }
    fill(&mut client);
    let second = transmits(&mut client, 20);
    assert!(second.len() > 500, "its window is known now");
    server.receive(30, 1, &second[0].1).unwrap();
    assert!(server.peek(there).unwrap().is_validated());
    for (_, datagram) in &second[1..] {
        server.receive(30, 1, datagram).unwrap();
    }
}

#[test]
fn who_does_not_echo_is_asked_again_soon_and_then_less_often() {
    let mut server = sessions(turbo());
    server.receive(0, 9, &first_push(1)).unwrap();
    // It may be sent something for what it sends.
    (1..20).for_each(|_| drop(server.receive(0, 9, &first_push(1))));
    let mut asked = Vec::new();
    for now in 0..5_000 {
        if challenge_in(&transmits(&mut server, now)).is_some() {
            asked.push(now);
        }
    }
    assert_eq!(asked, [0, 100, 300, 700, 1500, 2500, 3500, 4500]);
}

#[test]
fn a_silent_session_ends_and_its_memory_goes_before() {
    let mut server = sessions(SessionsConfig { idle_timeout_ms: 60_000, ..turbo() });
    let mut client = sessions(turbo());
    let here = client.connect(0, 2, 1).unwrap();
    client.session(here).unwrap().send(&[1; 10_000]).unwrap();
    exchange(&mut client, &mut server, 0);
    let Some(SessionEvent::Opened(id)) = server.poll_event() else { panic!() };
    server.session(id).unwrap().recv().unwrap();
    transmits(&mut server, 1);
    assert!(server.peek(id).unwrap().memory() > 10_000);
    transmits(&mut server, 10_000);
    assert!(server.peek(id).unwrap().memory() < 200, "{}", server.peek(id).unwrap().memory());
    transmits(&mut server, 60_000);
    let last = events(&mut server).pop();
    let reason = CloseReason::Idle;
    assert_eq!(last, Some(SessionEvent::Closed { id, address: 1, conversation: 1, reason }));
    assert_eq!(server.next_timeout(60_000), None);
}

#[test]
fn sessions_take_turns_in_sending() {
    let mut port = sessions(turbo());
    for address in [1, 2] {
        let id = port.connect(0, address, 1).unwrap();
        port.session(id).unwrap().send(&[0; 10 * 1376]).unwrap();
    }
    let mut out = Vec::new();
    let order: Vec<Address> =
        std::iter::from_fn(|| port.poll_transmit(0, &mut out, 5)).map(|(address, _)| address).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 2], "two of data each, and one that asks for the window");
}

#[test]
fn the_limit_on_sessions_holds() {
    let mut server = sessions(SessionsConfig { sessions_max: 3, ..turbo() });
    assert!((0..3).all(|address| server.connect(0, address, 1).is_ok()));
    let refused = SessionError::TooManySessions { name: "sessions_max", limit: 3 };
    assert_eq!(server.connect(0, 9, 1), Err(refused.clone()));
    assert_eq!(server.receive(0, 9, &first_push(1)), Err(refused));
    assert_eq!(server.connect(0, 1, 1), Err(SessionError::InUse { conversation: 1 }));
}

/// Opens a session from an address that has shown that it receives there.
fn open_validated(server: &mut Sessions<Address>, now: u64, address: Address) {
    server.receive(now, address, &first_push(1)).expect("there is room");
    let token = challenge_in(&transmits(server, now)).expect("a challenge was sent");
    server.receive(now, address, &echo(1, token)).expect("its session is there");
}

fn is_open(server: &mut Sessions<Address>, now: u64, address: Address) -> bool {
    server.receive(now, address, &bare(1, Command::WindowTell, 0, 0, 0)).is_ok()
}

#[test]
fn in_a_full_table_who_has_said_little_makes_room_and_who_talks_stays() {
    const PLACES: u64 = 80;
    let mut server = sessions(SessionsConfig { sessions_max: PLACES as usize, ..turbo() });
    (0..PLACES).for_each(|address| open_validated(&mut server, 0, address));
    for now in 1..=5 {
        assert!((0..40).all(|talker| is_open(&mut server, now, talker)));
        // Twice and three times is as easy as once.
        assert!(now > 2 || (40..PLACES).all(|other| is_open(&mut server, now, other)));
    }
    // A peer that is real, whatever it says, and then a flood of others like it.
    for address in 1000..2000 {
        open_validated(&mut server, 10, address);
        assert!(is_open(&mut server, 11, address), "a new peer gets in at once");
        assert_eq!(server.len(), PLACES as usize);
        let evicted = events(&mut server).into_iter().find_map(|event| match event {
            SessionEvent::Closed { address, reason: CloseReason::Evicted, .. } => Some(address),
            _ => None,
        });
        assert!(evicted.is_some_and(|address| address >= 40), "{evicted:?}");
    }
    assert!((0..40).all(|talker| is_open(&mut server, 12, talker)));
}

#[test]
fn forged_addresses_take_a_part_of_a_full_table_at_the_most() {
    const PLACES: u64 = 80;
    let mut server = sessions(SessionsConfig { sessions_max: PLACES as usize, ..turbo() });
    (0..PLACES).for_each(|address| open_validated(&mut server, 0, address));
    for n in 0..50_000 {
        let now = 1 + n / 10;
        let _ = server.receive(now, 1_000_000 + n, &first_push(1));
        transmits(&mut server, now);
        events(&mut server);
    }
    let open = (0..PLACES).filter(|address| is_open(&mut server, 5_001, *address)).count() as u64;
    assert_eq!(open, PLACES - PLACES / 8);
}

#[test]
fn an_end_repeated_after_the_session_is_over_is_answered() {
    let mut server = sessions(turbo());
    let id = server.connect(0, 1, 5).unwrap();
    server.remove(0, id);
    let end = Header {
        conversation: 5,
        command: Command::Fin,
        fragment: fin::END,
        window: 1,
        timestamp: 3,
        number: fin::NUMBER,
        unacknowledged: 4,
        len: 0,
    };
    assert!(server.receive(1, 1, &end.to_bytes()).is_err());
    let sent = transmits(&mut server, 1);
    let (answer, _, _) = Header::parse(&sent[0].1).unwrap();
    assert_eq!((sent.len(), answer.command, answer.fragment), (1, Command::Fin, fin::ACKNOWLEDGE));
}

#[test]
fn ten_thousand_sessions_exchange_messages_and_only_the_busy_ones_are_touched() {
    const COUNT: u32 = 10_000;
    let mut server = sessions(SessionsConfig { unvalidated_max: COUNT as usize, ..turbo() });
    let mut client = sessions(turbo());
    let ids: Vec<_> = (0..COUNT).map(|conversation| client.connect(0, 2, conversation).unwrap()).collect();
    for id in &ids {
        client.session(*id).unwrap().send(b"hello").unwrap();
    }
    exchange(&mut client, &mut server, 0);
    assert_eq!((server.len(), transmits(&mut server, 1).len()), (COUNT as usize, 0));
    while let Some(event) = server.poll_event() {
        if let SessionEvent::Readable(id) = event {
            let kcp = server.session(id).unwrap();
            let message = kcp.recv().unwrap();
            kcp.send(&message).unwrap();
        }
    }
    exchange(&mut client, &mut server, 2);
    assert_eq!(events(&mut client).len(), COUNT as usize);
    assert_eq!((transmits(&mut client, 3).len(), transmits(&mut server, 3).len()), (0, 0));
    assert!(server.next_timeout(3).unwrap() > 5_000, "nothing to do until sessions are trimmed");
}

#[test]
fn random_datagrams_from_random_addresses_break_nothing() {
    let mut rng = Rng::new(1);
    let mut server = sessions(SessionsConfig { sessions_max: 100, unvalidated_max: 50, ..turbo() });
    for now in 0..20_000 {
        let mut datagram = vec![0; rng.below(100) as usize];
        rng.fill(&mut datagram);
        if let Some(head) = datagram.first_chunk_mut::<24>() {
            // Near enough to the truth to get past the first checks now and then.
            let command = 81 + (head[4] % 5);
            *head = Header {
                conversation: u32::from(head[0] % 4),
                command: Header::parse(&[[0, 0, 0, 0, command].as_slice(), &[0; 19]].concat())
                    .unwrap()
                    .0
                    .command,
                fragment: head[5] % 3,
                window: 128,
                timestamp: 0,
                number: u32::from(head[12] % 4),
                unacknowledged: u32::from(head[16] % 4),
                len: 0,
            }
            .to_bytes();
        }
        let _ = server.receive(now, rng.below(60), &datagram);
        if now % 16 == 0 {
            transmits(&mut server, now);
            events(&mut server);
        }
        assert!(server.len() <= 100);
    }
    transmits(&mut server, 10_000_000);
    assert_eq!((server.len(), server.next_timeout(10_000_000)), (0, None));
}

/// Two ports at addresses 1 and 2 that know each other, and all that one sends to the other.
fn with_fec(data: u8, parity: u8) -> (Sessions<Address>, Sessions<Address>) {
    let config =
        SessionsConfig { conversation: Config::turbo().fec(data, parity), ..SessionsConfig::default() };
    (sessions(config.clone()), sessions(config))
}

#[test]
fn with_forward_error_correction_a_lost_datagram_needs_no_round_trip() {
    let (mut client, mut server) = with_fec(4, 2);
    let id = client.connect(0, 2, 77).unwrap();
    let mut got = Vec::new();
    for number in 0..40u8 {
        client.session(id).unwrap().send(&[number; 100]).unwrap();
        for (at, (_, datagram)) in (0..).zip(transmits(&mut client, number.into())) {
            // Every fifth is lost; what the server says is lost altogether.
            if (number as usize + at) % 5 != 4 {
                server.receive_each(number.into(), 1, &datagram, |_, message| got.push(message[0])).unwrap();
            }
        }
    }
    assert_eq!(got, (0..40).collect::<Vec<_>>());
    assert_eq!(client.peek(id).unwrap().stats().timeout_resends, 0);
}

#[test]
fn with_forward_error_correction_datagrams_keep_to_the_mtu_and_runs_to_one_size() {
    let (mut client, _) = with_fec(10, 3);
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(&[7; 60_000]).unwrap();
    let (mut out, mut count) = (Vec::new(), 0);
    while let Some((_, transmit)) = client.poll_transmit(0, &mut out, 64) {
        assert!(transmit.segment_size <= 1400);
        assert_eq!(out.len(), transmit.len);
        assert_eq!(out.len().div_ceil(transmit.segment_size), transmit.datagrams);
        count += transmit.datagrams;
        out.clear();
    }
    // Segments of 1,368 bytes at the most.
    assert_eq!(count, 44 + 4 * 3);
}

#[test]
fn forward_error_correction_is_spent_on_nobody_who_is_not_validated() {
    let (mut client, mut server) = with_fec(1, 3);
    let id = client.connect(0, 2, 77).unwrap();
    client.session(id).unwrap().send(&[7; 1000]).unwrap();
    let first = transmits(&mut client, 0).remove(0).1;
    let there = server.receive(0, 9, &first).unwrap();
    server.session(there).unwrap().send(&[7; 100_000]).unwrap();
    let told = bytes(&transmits(&mut server, 0));
    assert!((1000..=3 * first.len()).contains(&told), "{told} for {}", first.len());
}

#[test]
fn a_peer_without_forward_error_correction_is_understood() {
    let (mut client, _) = with_fec(10, 3);
    let mut server = sessions(turbo());
    let id = server.connect(0, 1, 5).unwrap();
    server.session(id).unwrap().send(b"plain").unwrap();
    let mut got = Vec::new();
    for (_, datagram) in transmits(&mut server, 0) {
        client.receive_each(0, 2, &datagram, |_, message| got.extend_from_slice(message)).unwrap();
    }
    assert_eq!(got, b"plain");
}
