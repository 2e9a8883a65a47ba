//! One conversation, datagram by datagram.

use bytes::Bytes;
use corewire_proto::kcp::{
    CloseReason, Command, Config, HEADER_LEN, Header, Kcp, Mode, ReceiveError, SendError, State, fin,
};
use corewire_testkit::kcp_sim::{Simulation, message_latencies_us};
use corewire_testkit::link::LinkConfig;

const CONVERSATION: u32 = 7;

fn kcp(config: Config) -> Kcp {
    Kcp::new(CONVERSATION, config).expect("the settings are valid")
}

fn datagrams(kcp: &mut Kcp, now: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = kcp.poll_transmit(now, &mut out, 64) {
        all.extend(out.chunks(transmit.segment_size).map(<[u8]>::to_vec));
        out.clear();
    }
    all
}

fn headers(datagram: &[u8]) -> Vec<Header> {
    let mut rest = datagram;
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let (header, _, after) = Header::parse(rest).expect("what is sent is well formed");
        headers.push(header);
        rest = after;
    }
    headers
}

fn push(number: u32, fragment: u8, data: &[u8]) -> Vec<u8> {
    let header = Header {
        conversation: CONVERSATION,
        command: Command::Push,
        fragment,
        window: 128,
        timestamp: 1000 + number,
        number,
        unacknowledged: 0,
        len: data.len() as u32,
    };
    [&header.to_bytes()[..], data].concat()
}

fn segment(command: Command, number: u32, unacknowledged: u32, window: u16) -> Vec<u8> {
    let header = Header {
        conversation: CONVERSATION,
        command,
        fragment: 0,
        window,
        timestamp: 0,
        number,
        unacknowledged,
        len: 0,
    };
    header.to_bytes().to_vec()
}

#[test]
fn a_message_and_its_acknowledgement_are_these_bytes() {
    let (mut a, mut b) = (kcp(Config::default()), kcp(Config::default()));
    a.send(b"hi").unwrap();
    let sent = datagrams(&mut a, 0x0102_0304);
    let expected = [7, 0, 0, 0, 81, 0, 128, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'h', b'i'];
    assert_eq!(sent, [expected]);
    b.receive(50, &sent[0]).unwrap();
    let answer = datagrams(&mut b, 50);
    let expected = [7, 0, 0, 0, 82, 0, 127, 0, 4, 3, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(answer, [expected]);
    a.receive(0x0102_0304 + 30, &answer[0]).unwrap();
    assert_eq!((a.waiting_send(), a.round_trip_ms()), (0, Some(30)));
    assert_eq!(b.recv().as_deref(), Some(&b"hi"[..]));
}

#[test]
fn a_long_message_travels_in_fragments_that_count_down_and_arrives_whole() {
    let (mut a, mut b) = (kcp(Config::turbo()), kcp(Config::turbo()));
    let message: Vec<u8> = (0..3000u32).map(|at| at as u8).collect();
    a.send(&message).unwrap();
    let sent = datagrams(&mut a, 0);
    let fragments: Vec<u8> = sent.iter().flat_map(|datagram| headers(datagram)).map(|h| h.fragment).collect();
    assert_eq!(fragments, [2, 1, 0]);
    b.receive(0, &sent[0]).unwrap();
    b.receive(0, &sent[2]).unwrap();
    assert_eq!((b.peek_size(), b.recv()), (None, None));
    b.receive(0, &sent[1]).unwrap();
    assert_eq!(b.peek_size(), Some(3000));
    assert_eq!(b.recv().unwrap(), message);
}

#[test]
fn full_segments_are_laid_out_back_to_back_and_small_ones_share_a_datagram() {
    let mut a = kcp(Config::turbo());
    a.send(&[1; 10 * 1376 + 5]).unwrap();
    let mut out = Vec::new();
    let transmit = a.poll_transmit(0, &mut out, 64).unwrap();
    assert_eq!((transmit.segment_size, transmit.datagrams, transmit.len), (1400, 11, 14_000 + 29));
    assert_eq!(a.poll_transmit(0, &mut out, 64), None);

    let mut a = kcp(Config::turbo());
    (0..20).for_each(|_| a.send(&[2; 100]).unwrap());
    let sizes: Vec<usize> = datagrams(&mut a, 0).iter().map(Vec::len).collect();
    assert_eq!(sizes, [11 * 124, 9 * 124]);
}

#[test]
fn no_more_datagrams_than_asked_for_are_written_at_once() {
    let mut a = kcp(Config::turbo());
    a.send(&[1; 10 * 1376]).unwrap();
    let mut out = Vec::new();
    let counts: Vec<usize> =
        std::iter::from_fn(|| a.poll_transmit(0, &mut out, 4)).map(|transmit| transmit.datagrams).collect();
    assert_eq!(counts, [4, 4, 2]);
}

#[test]
fn what_the_cumulative_number_says_is_acknowledged_once() {
    let mut b = kcp(Config::turbo());
    (0..10).for_each(|number| b.receive(0, &push(number, 0, b"x")).unwrap());
    b.receive(0, &push(12, 0, b"x")).unwrap();
    b.receive(0, &push(14, 0, b"x")).unwrap();
    let sent = datagrams(&mut b, 0);
    let acks: Vec<(u32, u32, u32)> =
        headers(&sent[0]).iter().map(|h| (h.number, h.timestamp, h.unacknowledged)).collect();
    assert_eq!((sent.len(), acks), (1, vec![(14, 1014, 10), (12, 1012, 10), (9, 1009, 10)]));
}

#[test]
fn an_acknowledgement_may_wait_for_data_to_travel_with() {
    let mut b = kcp(Config::turbo().ack_delay_ms(20));
    b.receive(100, &push(0, 0, b"x")).unwrap();
    assert_eq!((datagrams(&mut b, 100).len(), b.next_timeout(100)), (0, Some(20)));
    b.send(b"reply").unwrap();
    let sent = datagrams(&mut b, 105);
    let commands: Vec<Command> = headers(&sent[0]).iter().map(|header| header.command).collect();
    assert_eq!(commands, [Command::Push, Command::Ack]);
    b.receive(106, &push(2, 0, b"x")).unwrap();
    assert_eq!(datagrams(&mut b, 106).len(), 1, "a gap is told at once");
}

#[test]
fn a_segment_is_sent_again_when_its_time_is_up_and_later_each_time() {
    let mut a = kcp(Config::turbo());
    a.send(b"x").unwrap();
    let mut times = Vec::new();
    let mut now = 0;
    while times.len() < 4 {
        if !datagrams(&mut a, now).is_empty() {
            times.push(now);
        }
        now += a.next_timeout(now).unwrap().max(1);
    }
    assert_eq!(times, [0, 200, 500, 950]);
    assert_eq!(a.stats().timeout_resends, 3);
}

#[test]
fn in_a_thin_stream_a_timed_out_segment_is_sent_twice() {
    let mut a = kcp(Config::turbo());
    a.send(b"x").unwrap();
    datagrams(&mut a, 0);
    a.receive(30, &segment(Command::Ack, 0, 0, 128)).unwrap();
    a.send(b"y").unwrap();
    let mut times = Vec::new();
    let mut now = 30;
    while times.len() < 5 {
        if !datagrams(&mut a, now).is_empty() {
            times.push(now - 30);
        }
        now += a.next_timeout(now).unwrap().max(1);
    }
    assert_eq!(times, [0, 90, 100, 302, 605], "the time-out of 90 ms grows by half as ever");
}

#[test]
fn two_later_acknowledgements_bring_a_lost_segment_at_once() {
    let mut a = kcp(Config::turbo());
    (0..6).for_each(|_| a.send(&[1; 1376]).unwrap());
    assert_eq!(datagrams(&mut a, 0).len(), 6);
    a.receive(10, &segment(Command::Ack, 1, 0, 128)).unwrap();
    assert_eq!(datagrams(&mut a, 10).len(), 0);
    a.receive(11, &segment(Command::Ack, 2, 0, 128)).unwrap();
    let sent = datagrams(&mut a, 11);
    assert_eq!((sent.len(), headers(&sent[0])[0].number), (1, 0));
    (3..6).for_each(|number| a.receive(12, &segment(Command::Ack, number, 0, 128)).unwrap());
    assert_eq!(datagrams(&mut a, 12).len(), 0, "what was sent before the repetition says nothing about it");
    assert_eq!(a.stats().fast_resends, 1);
}

#[test]
fn a_peer_that_vanishes_is_found_dead() {
    let mut a = kcp(Config::turbo().dead_link(5));
    a.send(b"x").unwrap();
    let mut now = 0;
    let mut count = 0;
    while a.state() == State::Open {
        count += datagrams(&mut a, now).len();
        now += a.next_timeout(now).unwrap_or(0).max(1);
    }
    assert_eq!((count, a.state()), (5, State::Closed(CloseReason::DeadLink { transmissions: 5 })));
    assert_eq!(a.send(b"y"), Err(SendError::Closed));
    assert_eq!(a.next_timeout(now), None);
}

#[test]
fn the_windows_limit_what_is_in_flight() {
    let mut a = kcp(Config::turbo().windows(20, 128));
    (0..50).for_each(|_| a.send(&[1; 1376]).unwrap());
    assert_eq!(datagrams(&mut a, 0).len(), 20);
    a.receive(1, &segment(Command::Ack, 0, 1, 30)).unwrap();
    assert_eq!(datagrams(&mut a, 1).len(), 1, "one acknowledged, one more");
    a.receive(2, &segment(Command::Ack, 20, 21, 5)).unwrap();
    assert_eq!(datagrams(&mut a, 2).len(), 5, "the peer's window is the smaller one");
}

#[test]
fn a_closed_window_is_asked_after_and_told_when_it_opens() {
    let (mut a, mut b) = (kcp(Config::turbo().windows(256, 128)), kcp(Config::turbo()));
    (0..200).for_each(|_| a.send(&[1; 1376]).unwrap());
    datagrams(&mut a, 0).iter().for_each(|datagram| b.receive(0, datagram).unwrap());
    datagrams(&mut b, 0).iter().for_each(|datagram| a.receive(0, datagram).unwrap());
    assert_eq!((a.waiting_send(), datagrams(&mut a, 1).len()), (72, 0));
    assert_eq!(a.next_timeout(1), Some(500));
    let question = datagrams(&mut a, 501);
    assert_eq!(headers(&question[0])[0].command, Command::WindowAsk);
    b.receive(501, &question[0]).unwrap();
    let answer = datagrams(&mut b, 501);
    assert_eq!((headers(&answer[0])[0].command, headers(&answer[0])[0].window), (Command::WindowTell, 0));
    a.receive(502, &answer[0]).unwrap();

    (0..10).for_each(|_| drop(b.recv().unwrap()));
    let news = datagrams(&mut b, 600);
    assert_eq!((headers(&news[0])[0].command, headers(&news[0])[0].window), (Command::WindowTell, 10));
    a.receive(601, &news[0]).unwrap();
    assert_eq!(datagrams(&mut a, 601).len(), 10);
}

#[test]
fn an_overtaken_datagram_does_not_bring_back_an_old_window() {
    let mut a = kcp(Config::turbo());
    (0..3).for_each(|_| a.send(b"x").unwrap());
    datagrams(&mut a, 0);
    a.receive(1, &segment(Command::Ack, 2, 3, 100)).unwrap();
    a.receive(2, &segment(Command::Ack, 0, 1, 0)).unwrap();
    a.send(b"y").unwrap();
    assert_eq!(datagrams(&mut a, 3).len(), 1);
}

#[test]
fn nothing_is_taken_after_the_end_that_the_peer_has_told() {
    let mut b = kcp(Config::turbo());
    b.receive(0, &push(0, 0, b"all")).unwrap();
    let mut end = segment(Command::Fin, fin::NUMBER, 0, 128);
    end[5] = fin::END;
    end[8] = 1;
    b.receive(0, &end).unwrap();
    b.receive(0, &push(1, 0, b"more")).unwrap();
    assert_eq!((b.recv().as_deref(), b.recv()), (Some(&b"all"[..]), None));
    assert!(b.is_at_end());
}

#[test]
fn a_full_queue_takes_a_message_whole_or_not_at_all() {
    let mut a = kcp(Config::default().max_fragments(10).send_queue(32));
    assert_eq!(a.send(&[0; 13_761]), Err(SendError::TooLong { len: 13_761, limit: 13_760 }));
    (0..3).for_each(|_| a.send(&[0; 13_760]).unwrap());
    assert_eq!(a.send(&[0; 2753]), Err(SendError::WouldBlock { needed: 3, free: 2 }));
    assert_eq!(a.send_bytes(Bytes::from(vec![0; 2753])), Err(SendError::WouldBlock { needed: 3, free: 2 }));
    assert_eq!((a.waiting_send(), a.send(&[0; 2752])), (30, Ok(())));
}

#[test]
fn an_empty_message_arrives_as_one() {
    let (mut a, mut b) = (kcp(Config::default()), kcp(Config::default()));
    a.send(b"").unwrap();
    datagrams(&mut a, 0).iter().for_each(|datagram| b.receive(0, datagram).unwrap());
    assert_eq!((b.peek_size(), b.recv().as_deref()), (Some(0), Some(&b""[..])));
    assert_eq!(kcp(Config::default().mode(Mode::Stream)).send(b""), Err(SendError::Empty));
}

#[test]
fn a_stream_fills_segments_and_is_read_across_them() {
    let config = Config::turbo().mode(Mode::Stream).send_queue(128);
    let (mut a, mut b) = (kcp(config.clone()), kcp(config));
    let bytes: Vec<u8> = (0..5000u32).map(|at| (at * 7) as u8).collect();
    let (copied, shared) = bytes.split_at(2000);
    copied.chunks(100).for_each(|piece| a.send(piece).unwrap());
    shared.chunks(100).for_each(|piece| a.send_bytes(Bytes::copy_from_slice(piece)).unwrap());
    assert_eq!(a.waiting_send(), 4);
    let room = 128 * 1376 - 5000;
    assert_eq!(a.write(&vec![9; 1 << 20]), Ok(room));
    assert_eq!(a.write(b"x"), Err(SendError::WouldBlock { needed: 1, free: 0 }));
    datagrams(&mut a, 0).iter().for_each(|datagram| b.receive(0, datagram).unwrap());
    let mut seen = vec![0; 5000];
    let (first, second) = seen.split_at_mut(1999);
    assert_eq!((b.read(first), b.read(second)), (1999, 3001));
    assert_eq!(seen, bytes);
    assert_eq!(b.read(&mut vec![0; 1 << 20]), room);
}

#[test]
fn shared_bytes_and_the_direct_handler_carry_the_same_messages() {
    let (mut a, mut b) = (kcp(Config::turbo()), kcp(Config::turbo()));
    let messages: Vec<Vec<u8>> = [10, 3000, 1376, 0, 5000].map(|len: usize| vec![len as u8; len]).into();
    messages.iter().for_each(|message| a.send_bytes(Bytes::from(message.clone())).unwrap());
    let mut sent = datagrams(&mut a, 0);
    sent.swap(0, 2);
    let mut seen = Vec::new();
    sent.iter().for_each(|datagram| b.receive_each(0, datagram, |m| seen.push(m.to_vec())).unwrap());
    assert_eq!(seen, messages);
    assert_eq!(headers(&datagrams(&mut b, 0)[0]).last().unwrap().window, 128, "nothing waits to be read");
}

#[test]
fn replayed_and_far_off_segments_change_nothing() {
    let mut b = kcp(Config::default());
    b.receive(0, &push(0, 0, b"once")).unwrap();
    b.receive(0, &push(0, 0, b"twice")).unwrap();
    for number in [128 + 1, 1 << 20, 1 << 31, u32::MAX - 70_000] {
        b.receive(0, &push(number, 0, b"far")).unwrap();
    }
    assert_eq!((b.recv().as_deref(), b.recv()), (Some(&b"once"[..]), None));
    assert_eq!((b.stats().duplicates, b.stats().outside_window), (1, 4));

    let mut a = kcp(Config::default());
    a.send(b"x").unwrap();
    datagrams(&mut a, 0);
    for number in [1, 2, 1 << 31, u32::MAX - 70_000] {
        a.receive(0, &segment(Command::Ack, number, number, 0)).unwrap();
    }
    // The cumulative number 1 of the first was true; what followed was not.
    assert_eq!(a.waiting_send(), 0);
    let mut a = kcp(Config::default());
    a.send(b"x").unwrap();
    datagrams(&mut a, 0);
    for number in [2, 1 << 31, u32::MAX - 70_000] {
        a.receive(0, &segment(Command::Ack, number, number, 0)).unwrap();
    }
    assert_eq!(a.waiting_send(), 1);
}

#[test]
fn each_bad_datagram_has_its_error_and_the_conversation_goes_on() {
    let mut b = kcp(Config::default());
    assert_eq!(b.receive(0, b""), Err(ReceiveError::TooShort { len: 0 }));
    let mut wrong = push(0, 0, b"x");
    wrong[0] = 8;
    assert_eq!(b.receive(0, &wrong), Err(ReceiveError::WrongConversation { expected: 7, found: 8 }));
    let mut unknown = push(0, 0, b"x");
    unknown[4] = 99;
    assert_eq!(b.receive(0, &unknown), Err(ReceiveError::UnknownCommand { command: 99 }));
    let long = push(0, 0, &[0; 1477]);
    assert_eq!(b.receive(0, &long), Err(ReceiveError::SegmentTooLong { len: 1477, limit: 1476 }));
    let half = [push(0, 0, b"good"), wrong].concat();
    assert!(b.receive(0, &half).is_err());
    assert_eq!(b.recv().as_deref(), Some(&b"good"[..]));
    b.receive(0, &[push(1, 0, b"padded"), vec![0; 10]].concat()).unwrap();
    assert_eq!(b.recv().as_deref(), Some(&b"padded"[..]));
}

#[test]
fn a_message_that_never_ends_closes_the_conversation() {
    let mut b = kcp(Config::default());
    let outcome = (0..200).try_for_each(|number| b.receive(0, &push(number, 3, b"x")));
    assert_eq!(outcome, Err(ReceiveError::MessageTooLong { limit: 128 }));
    assert_eq!(b.state(), State::Closed(CloseReason::MessageTooLong));
}

#[test]
fn memory_stays_within_the_windows_under_a_flood() {
    let mut b = kcp(Config::default());
    for number in 0..100_000 {
        let _ = b.receive(0, &push(number % 300, 0, &[0; 1476]));
    }
    assert!(b.memory() < 2 * 128 * 1500 + 64 * 1024, "{} bytes", b.memory());
    (0..128).for_each(|_| drop(b.recv().unwrap()));
}

#[test]
fn both_ends_close_and_know_it() {
    let (mut a, mut b) = (kcp(Config::turbo()), kcp(Config::turbo()));
    b.send(b"reply").unwrap();
    a.send(b"last words").unwrap();
    a.close(0);
    assert_eq!((a.state(), a.send(b"x")), (State::Closing, Err(SendError::Closed)));
    let link = LinkConfig::lossy(0.3, 30_000);
    let mut simulation = Simulation::new(a, b, link, 5);
    simulation.run_until(2_000_000);
    assert!(!simulation.b.is_at_end(), "there is something to read first");
    assert_eq!(simulation.b.recv().as_deref(), Some(&b"last words"[..]));
    assert!(simulation.b.is_at_end());
    assert_eq!(simulation.a.recv().as_deref(), Some(&b"reply"[..]));
    simulation.b.close(2_000);
    simulation.run_until(4_000_000);
    assert_eq!(simulation.a.state(), State::Closed(CloseReason::Finished));
    assert_eq!(simulation.b.state(), State::Closed(CloseReason::Finished));
    assert_eq!((simulation.a.next_timeout(4_000), simulation.b.next_timeout(4_000)), (None, None));
}

#[test]
fn an_end_travels_alone_and_a_peer_that_does_not_know_it_is_left_in_the_end() {
    let mut a = kcp(Config::turbo());
    a.send(b"x").unwrap();
    datagrams(&mut a, 0);
    a.receive(10, &segment(Command::Ack, 0, 1, 128)).unwrap();
    a.receive(10, &push(0, 0, b"y")).unwrap();
    a.close(10);
    let sent = datagrams(&mut a, 10);
    assert_eq!(sent.iter().map(|datagram| headers(datagram).len()).collect::<Vec<_>>(), [1, 1]);
    let end = headers(&sent[1])[0];
    assert_eq!(
        (end.command, end.fragment, end.timestamp, end.number),
        (Command::Fin, fin::END, 1, fin::NUMBER)
    );
    assert_eq!(sent[1].len(), HEADER_LEN);

    let mut old = kcp::Kcp::new(CONVERSATION, Vec::<u8>::new());
    old.input(&push(0, 0, b"before")).unwrap();
    assert!(matches!(old.input(&sent[1]), Err(kcp::Error::UnsupportedCmd(85))));
    old.input(&push(1, 0, b"after")).unwrap();
    let mut buffer = [0; 10];
    assert_eq!((old.recv(&mut buffer).unwrap(), old.recv(&mut buffer).unwrap()), (6, 5));

    let mut now = 10;
    let mut ends = 1;
    while let Some(wait) = a.next_timeout(now) {
        now += wait.max(1);
        ends += datagrams(&mut a, now).len();
    }
    assert_eq!((ends, a.state()), (5, State::Closed(CloseReason::Unanswered)));
}

#[test]
fn an_abort_is_told_to_the_peer() {
    let (mut a, mut b) = (kcp(Config::turbo()), kcp(Config::turbo()));
    a.send(b"x").unwrap();
    datagrams(&mut a, 0).iter().for_each(|datagram| b.receive(0, datagram).unwrap());
    a.abort();
    datagrams(&mut a, 1).iter().for_each(|datagram| b.receive(1, datagram).unwrap());
    assert_eq!(a.state(), State::Closed(CloseReason::Aborted));
    assert_eq!(b.state(), State::Closed(CloseReason::Reset));
    assert_eq!(b.recv().as_deref(), Some(&b"x"[..]), "what arrived before can be read");
    assert_eq!(b.next_timeout(1), None);
}

#[test]
fn lingering_has_an_end() {
    let mut a = kcp(Config::turbo().linger_ms(1_000));
    a.send(b"x").unwrap();
    a.close(0);
    let mut now = 0;
    while a.state() == State::Closing {
        datagrams(&mut a, now);
        now += a.next_timeout(now).unwrap_or(1).max(1);
    }
    assert_eq!(a.state(), State::Closed(CloseReason::LingerExpired));
    assert!(now <= 1_001, "{now}");
}

#[test]
fn a_close_waits_as_long_as_the_peer_takes_what_was_sent() {
    let slow =
        LinkConfig { bandwidth_bps: Some(1_000_000), queue_bytes: 1 << 20, ..LinkConfig::lossy(0.0, 30_000) };
    let config = Config::turbo().mode(Mode::Stream).linger_ms(3_000);
    let mut simulation = Simulation::new(kcp(config.clone()), kcp(config), slow, 1);
    let bytes = vec![7; 1_000_000];
    assert_eq!(simulation.a.write(&bytes).unwrap(), bytes.len());
    simulation.a.close(0);
    let mut read = 0;
    while simulation.step(60_000_000) {
        while let Some(data) = simulation.b.recv() {
            read += data.len();
        }
        if simulation.b.is_at_end() {
            simulation.b.close(simulation.clock.now_ms());
        }
    }
    assert_eq!(
        read,
        bytes.len(),
        "it takes 8 s and more, and never are there three without an acknowledgement"
    );
    assert_eq!(simulation.a.state(), State::Closed(CloseReason::Finished));
}

#[test]
fn who_has_ended_its_side_waits_for_an_answer_as_long_as_it_takes() {
    let (mut a, mut b) = (kcp(Config::turbo()), kcp(Config::turbo()));
    a.send(b"question").unwrap();
    a.close(0);
    let carry = |a: &mut Kcp, b: &mut Kcp, now| {
        for _ in 0..4 {
            datagrams(a, now).iter().for_each(|datagram| drop(b.receive(now, datagram)));
            datagrams(b, now).iter().for_each(|datagram| drop(a.receive(now, datagram)));
        }
    };
    carry(&mut a, &mut b, 0);
    assert!(a.is_delivered() && a.next_timeout(0).is_none(), "it sleeps");
    assert_eq!(b.recv().as_deref(), Some(&b"question"[..]));
    b.send(b"answer").unwrap();
    b.close(600_000);
    carry(&mut a, &mut b, 600_000);
    assert_eq!(a.recv().as_deref(), Some(&b"answer"[..]));
    carry(&mut a, &mut b, 600_001);
    assert_eq!([a.state(), b.state()], [State::Closed(CloseReason::Finished); 2]);
}

#[test]
fn at_10_percent_loss_and_30_ms_turbo_delivers_99_percent_within_4_round_trips() {
    for seed in 0..5 {
        let link = LinkConfig::lossy(0.1, 30_000);
        let mut simulation = Simulation::new(kcp(Config::turbo()), kcp(Config::turbo()), link, seed);
        let latencies = message_latencies_us(&mut simulation, 3_000, 1024, 10_000);
        let p99 = latencies[latencies.len() * 99 / 100];
        assert!(p99 <= 4 * 30_000, "seed {seed}: p99 is {p99} µs");
    }
}

#[test]
fn the_segments_of_our_own_are_as_documented() {
    let documented = [
        (Command::Fin, 1, 3, u32::MAX, 2, "44332211 55 01 8000 03000000 ffffffff 02000000 00000000"),
        (Command::Fin, 2, 5, u32::MAX, 3, "44332211 55 02 8000 05000000 ffffffff 03000000 00000000"),
        (Command::Fin, 4, 9, u32::MAX, 0, "44332211 55 04 8000 09000000 ffffffff 00000000 00000000"),
        (
            Command::Cookie,
            0,
            0xa4a3_a2a1,
            0xb4b3_b2b1,
            0,
            "44332211 56 00 8000 a1a2a3a4 b1b2b3b4 00000000 00000000",
        ),
        (
            Command::Cookie,
            1,
            0xa4a3_a2a1,
            0xb4b3_b2b1,
            0,
            "44332211 56 01 8000 a1a2a3a4 b1b2b3b4 00000000 00000000",
        ),
        (
            Command::Push,
            0,
            0xc4c3_c2c1,
            u32::MAX,
            1,
            "44332211 51 00 8000 c1c2c3c4 ffffffff 01000000 00000000",
        ),
    ];
    let page = include_str!("../../../docs/reliable-udp.md");
    for (command, fragment, timestamp, number, unacknowledged, text) in documented {
        let header = Header {
            conversation: 0x1122_3344,
            command,
            fragment,
            window: 128,
            timestamp,
            number,
            unacknowledged,
            len: 0,
        };
        let digits: String = header.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, text.replace(' ', ""));
        assert!(page.contains(text), "{text} is not documented");
    }
}
