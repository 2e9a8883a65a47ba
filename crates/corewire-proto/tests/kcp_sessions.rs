//! Many conversations on one port.

use corewire_proto::kcp::{
    CloseReason, Command, Config, Header, Kcp, SessionError, SessionEvent, Sessions, SessionsConfig,
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
fn a_flood_of_forged_addresses_costs_bounded_memory_and_no_proven_session() {
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
    assert_eq!(server.len(), 2049);
    assert!(server.connect(1, 5, 5).is_ok(), "own connections are not refused");

    for now in [1_001, 2_001, 3_001, 4_001] {
        let asks = transmits(&mut server, now);
        assert!(asks.len() >= 2048, "the unproven are asked again");
    }
    client.session(id).unwrap().send(b"still here").unwrap();
    exchange(&mut client, &mut server, 4_500);
    transmits(&mut server, 5_001);
    assert_eq!(server.len(), 2, "the forged ones are gone, the true one stays");
    let unproven = events(&mut server)
        .into_iter()
        .filter(|event| matches!(event, SessionEvent::Closed { reason: CloseReason::Unproven, .. }));
    assert_eq!(unproven.count(), 2048);
}

#[test]
fn in_a_flood_a_new_peer_takes_the_place_of_one_that_had_its_time_to_answer() {
    let mut server = sessions(SessionsConfig { unproven_max: 10, ..turbo() });
    for address in 0..10 {
        server.receive(0, 1_000 + address, &first_push(1)).unwrap();
    }
    let full = Err(SessionError::TooManySessions { name: "unproven_max", limit: 10 });
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
    assert_eq!(client.len(), 1, "who has answered stays");
}

#[test]
fn a_session_that_made_room_is_not_opened_again_and_its_peer_is_told() {
    let mut server = sessions(SessionsConfig { unproven_max: 1, ..turbo() });
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

#[test]
fn who_has_not_answered_makes_its_session_hold_little() {
    let mut server =
        sessions(SessionsConfig { conversation: Config::turbo().windows(1024, 1024), ..turbo() });
    let push = |number: u32, command| {
        let header = Header {
            conversation: 1,
            command,
            fragment: 0,
            window: 128,
            timestamp: 0,
            number,
            unacknowledged: 0,
            len: 1400,
        };
        [&header.to_bytes()[..], &[7; 1400]].concat()
    };
    let id = server.receive(0, 9, &push(0, Command::Push)).unwrap();
    let refused = (2..1024).filter(|number| server.receive(0, 9, &push(*number, Command::Push)).is_err());
    assert!(refused.count() > 700);
    let held = server.peek(id).unwrap().memory();
    assert!((200_000..400_000).contains(&held), "{held}");
    // Its answer is heard all the same, and then its data.
    server.receive(0, 9, &push(0, Command::WindowTell)).unwrap();
    server.receive(0, 9, &push(1023, Command::Push)).unwrap();
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
    assert_eq!(order, [1, 2, 1, 2]);
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

#[test]
fn an_end_repeated_after_the_session_is_over_is_answered() {
    let mut server = sessions(turbo());
    let id = server.connect(0, 1, 5).unwrap();
    server.remove(0, id);
    let end = Header {
        conversation: 5,
        command: Command::Fin,
        fragment: corewire_proto::kcp::fin::END,
        window: 1,
        timestamp: 3,
        number: corewire_proto::kcp::fin::NUMBER,
        unacknowledged: 4,
        len: 0,
    };
    assert!(server.receive(1, 1, &end.to_bytes()).is_err());
    let sent = transmits(&mut server, 1);
    let (answer, _, _) = Header::parse(&sent[0].1).unwrap();
    assert_eq!(
        (sent.len(), answer.command, answer.fragment),
        (1, Command::Fin, corewire_proto::kcp::fin::ACKNOWLEDGE)
    );
}

#[test]
fn ten_thousand_sessions_exchange_messages_and_only_the_busy_ones_are_touched() {
    const COUNT: u32 = 10_000;
    let mut server = sessions(SessionsConfig { unproven_max: COUNT as usize, ..turbo() });
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
    let mut server = sessions(SessionsConfig { sessions_max: 100, unproven_max: 50, ..turbo() });
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
