//! Replies find their calls, and only theirs.

use corewire_proto::codec::{FrameHead, FrameKind, Matching};
use corewire_proto::matching::{CallTable, Matched};
use proptest::collection::vec;
use proptest::prelude::*;

const SRMP: Matching = Matching::Sequence { modulus: 256 };

fn reply(sequence: u32) -> FrameHead {
    FrameHead { kind: FrameKind::Reply, sequence, tag: 0 }
}

fn message() -> FrameHead {
    FrameHead::default()
}

#[test]
fn numbers_run_from_1_to_255_then_0_then_1() {
    let mut calls = CallTable::new(SRMP, 256);
    for turn in 0..600u32 {
        let key = calls.begin(turn).unwrap();
        let number = calls.sequence_of(key);
        assert_eq!(number, (turn + 1) % 256);
        assert_eq!(calls.complete(&reply(number)), Matched::Call(turn));
    }
}

#[test]
fn a_number_in_flight_is_never_given_again() {
    let mut calls = CallTable::new(SRMP, 256);
    let slow = calls.begin(u32::MAX).unwrap();
    for turn in 0..1000 {
        let key = calls.begin(turn).unwrap();
        assert_ne!(calls.sequence_of(key), calls.sequence_of(slow));
        assert_eq!(calls.complete(&reply(calls.sequence_of(key))), Matched::Call(turn));
    }
    assert_eq!(calls.complete(&reply(1)), Matched::Call(u32::MAX));
}

#[test]
fn the_call_after_the_last_free_number_waits_and_gets_the_one_that_comes_free() {
    let mut calls = CallTable::new(SRMP, 1000);
    for call in 0..256u32 {
        assert!(calls.can_begin());
        calls.begin(call).unwrap();
    }
    assert_eq!((calls.in_flight(), calls.can_begin(), calls.is_exhausted()), (256, false, false));
    assert_eq!(calls.begin(256), Err(256));
    assert_eq!(calls.complete(&reply(77)), Matched::Call(76));
    let key = calls.begin(256).unwrap();
    assert_eq!(calls.sequence_of(key), 77);
}

#[test]
fn a_limit_below_the_modulus_holds() {
    let mut calls = CallTable::new(SRMP, 2);
    calls.begin('a').unwrap();
    calls.begin('b').unwrap();
    assert_eq!(calls.begin('c'), Err('c'));
    assert_eq!(CallTable::<()>::new(Matching::Fifo, 0).capacity(), 1);
}

#[test]
fn replies_in_any_order_find_their_calls() {
    let mut calls = CallTable::new(SRMP, 256);
    let keys: Vec<_> = (0..256u32).map(|call| calls.begin(call).unwrap()).collect();
    for (call, key) in keys.iter().enumerate().rev() {
        let error_reply = FrameHead { kind: FrameKind::ErrorReply, ..reply(calls.sequence_of(*key)) };
        assert_eq!(calls.complete(&error_reply), Matched::Call(call as u32));
    }
    assert_eq!(calls.in_flight(), 0);
}

#[test]
fn a_late_reply_never_completes_another_call() {
    let mut calls = CallTable::new(SRMP, 256);
    let timed_out = calls.begin(0u32).unwrap();
    assert_eq!(calls.abandon(timed_out), Some(0));
    assert_eq!((calls.in_flight(), calls.abandoned()), (0, 1));
    // The number goes round, but not to another call while the reply may still come.
    for call in 1..=255u32 {
        let key = calls.begin(call).unwrap();
        assert_ne!(calls.sequence_of(key), 1);
    }
    assert_eq!(calls.begin(256), Err(256));
    assert_eq!(calls.complete(&reply(1)), Matched::Late);
    assert_eq!((calls.in_flight(), calls.abandoned()), (255, 0));
    let key = calls.begin(256).unwrap();
    assert_eq!(calls.sequence_of(key), 1);
    assert_eq!(calls.complete(&reply(1)), Matched::Call(256));
    assert_eq!(calls.complete(&reply(1)), Matched::Unknown);
}

#[test]
fn a_number_given_up_is_free_again_after_a_safe_time_and_not_before() {
    let mut calls = CallTable::new(SRMP, 256);
    let keys: Vec<_> = (0..256u32).map(|call| calls.begin(call).unwrap()).collect();
    calls.abandon(keys[0]);
    assert_eq!(calls.age(), 0, "given up just now");
    calls.abandon(keys[1]);
    assert_eq!(calls.begin(999), Err(999));
    assert_eq!(calls.age(), 1);
    // The number of the first; those that wait, and the one given up later, keep theirs.
    let key = calls.begin(256).unwrap();
    assert_eq!(calls.sequence_of(key), calls.sequence_of(keys[0]));
    assert_eq!((calls.in_flight(), calls.abandoned(), calls.can_begin()), (255, 1, false));
    assert_eq!(calls.complete(&reply(2)), Matched::Late);
    assert_eq!((calls.age(), calls.age()), (0, 0));
    assert_eq!(calls.get(keys[0]), None);
    assert_eq!(calls.complete(&reply(1)), Matched::Call(256));
    assert_eq!(CallTable::<()>::new(Matching::Fifo, 5).age(), 0);
}

#[test]
fn in_order_the_oldest_call_is_completed_first() {
    let mut calls = CallTable::new(Matching::Fifo, 10);
    for call in ['a', 'b', 'c'] {
        let key = calls.begin(call).unwrap();
        assert_eq!(calls.sequence_of(key), 0);
    }
    for call in ['a', 'b', 'c'] {
        assert_eq!(calls.complete(&message()), Matched::Call(call));
    }
    assert_eq!(calls.complete(&message()), Matched::Unknown);
}

#[test]
fn in_order_an_abandoned_call_swallows_its_own_reply() {
    let mut calls = CallTable::new(Matching::Fifo, 3);
    let keys = ['a', 'b', 'c'].map(|call| calls.begin(call).unwrap());
    assert_eq!(calls.abandon(keys[1]), Some('b'));
    assert_eq!(calls.abandon(keys[1]), None);
    assert_eq!(calls.begin('d'), Err('d'));
    assert_eq!(calls.complete(&message()), Matched::Call('a'));
    assert_eq!(calls.complete(&message()), Matched::Late);
    assert_eq!(calls.complete(&message()), Matched::Call('c'));
}

#[test]
fn a_connection_whose_numbers_are_all_abandoned_is_exhausted() {
    for (matching, limit) in [(SRMP, 256), (Matching::Fifo, 5)] {
        let mut calls = CallTable::new(matching, limit);
        for call in 0..limit {
            let key = calls.begin(call).unwrap();
            assert!(!calls.is_exhausted());
            calls.abandon(key);
        }
        assert!(calls.is_exhausted());
        let head = FrameHead { kind: FrameKind::Reply, sequence: 9, tag: 0 };
        assert_eq!(calls.complete(&head), Matched::Late);
        assert!(!calls.is_exhausted());
    }
}

#[test]
fn an_old_key_never_touches_a_newer_call_under_its_number() {
    let mut calls = CallTable::new(Matching::Sequence { modulus: 1 }, 1);
    let old = calls.begin("old").unwrap();
    assert_eq!(calls.complete(&reply(0)), Matched::Call("old"));
    let new = calls.begin("new").unwrap();
    assert_eq!(calls.sequence_of(new), calls.sequence_of(old));
    assert_eq!(calls.get(old), None);
    assert_eq!(calls.get_mut(old), None);
    assert_eq!((calls.abandon(old), calls.withdraw(old)), (None, None));
    assert_eq!(calls.get(new), Some(&"new"));
}

#[test]
fn a_call_that_was_never_sent_gives_its_number_back() {
    let mut calls = CallTable::new(SRMP, 1);
    let key = calls.begin('a').unwrap();
    assert_eq!(calls.withdraw(key), Some('a'));
    assert!(calls.begin('b').is_ok());
    assert_eq!(calls.complete(&reply(1)), Matched::Unknown);
}

#[test]
fn in_order_only_the_newest_call_can_be_withdrawn() {
    let mut calls = CallTable::new(Matching::Fifo, 10);
    let first = calls.begin('a').unwrap();
    let second = calls.begin('b').unwrap();
    assert_eq!(calls.withdraw(first), None);
    assert_eq!(calls.withdraw(second), Some('b'));
    let third = calls.begin('c').unwrap();
    assert_eq!(calls.get(second), None);
    assert_eq!(calls.abandon(second), None);
    assert_eq!(calls.get(third), Some(&'c'));
    // Sent and given up: its reply is still to come.
    calls.abandon(third);
    assert_eq!(calls.withdraw(third), None);
}

#[test]
fn a_reply_that_nobody_waits_for_is_unknown() {
    let mut calls = CallTable::new(SRMP, 256);
    assert_eq!(calls.complete(&reply(1)), Matched::Unknown);
    calls.begin('a').unwrap();
    for head in [reply(2), reply(256 + 1), reply(u32::MAX), message()] {
        assert_eq!(calls.complete(&head), Matched::Unknown);
    }
    for kind in [FrameKind::Request, FrameKind::OneWay] {
        assert_eq!(calls.complete(&FrameHead { kind, ..reply(1) }), Matched::Unknown);
    }
    assert_eq!(calls.complete(&reply(1)), Matched::Call('a'));
}

#[test]
fn a_closed_connection_ends_each_waiting_call_once() {
    for matching in [SRMP, Matching::Fifo] {
        let mut calls = CallTable::new(matching, 256);
        let keys = ['a', 'b', 'c'].map(|call| calls.begin(call).unwrap());
        calls.abandon(keys[1]);
        assert_eq!(calls.drain().collect::<Vec<_>>(), ['a', 'c']);
        assert_eq!(calls.drain().count(), 0);
        assert_eq!((calls.in_flight(), calls.abandoned()), (0, 0));
        // The next connection begins anew, and old keys stay without effect.
        let key = calls.begin('d').unwrap();
        assert_eq!(calls.sequence_of(key), u32::from(matching == SRMP));
        assert_eq!(keys.map(|key| calls.abandon(key)), [None; 3]);
        assert_eq!(calls.get(key), Some(&'d'));
    }
}

#[test]
fn a_sweep_abandons_the_calls_whose_time_is_over() {
    for matching in [SRMP, Matching::Fifo] {
        let mut calls = CallTable::new(matching, 256);
        for deadline in [30, 10, 20] {
            calls.begin(deadline).unwrap();
        }
        let mut over = Vec::new();
        calls.abandon_if(|deadline| *deadline <= 20, |deadline| over.push(deadline));
        assert_eq!(over, [10, 20]);
        assert_eq!((calls.in_flight(), calls.abandoned()), (1, 2));
        let heads = if matching == SRMP { [1, 2, 3].map(reply) } else { [message(); 3] };
        let matched = heads.map(|head| calls.complete(&head));
        assert_eq!(matched, [Matched::Call(30), Matched::Late, Matched::Late]);
    }
}

#[test]
fn the_end_of_one_connection_leaves_the_calls_of_another() {
    let mut closing = CallTable::new(SRMP, 256);
    let mut other = CallTable::new(SRMP, 256);
    let key = closing.begin('a').unwrap();
    assert_eq!(other.begin('b'), Ok(key), "the same number on both");
    assert_eq!(closing.drain().collect::<Vec<_>>(), ['a']);
    assert_eq!(other.complete(&reply(1)), Matched::Call('b'));
}

#[test]
fn every_waiting_call_is_seen_with_its_key() {
    for matching in [SRMP, Matching::Fifo] {
        let mut calls = CallTable::new(matching, 256);
        let keys = [1, 2, 3].map(|deadline| calls.begin(deadline).unwrap());
        calls.abandon(keys[0]);
        for (_, deadline) in calls.iter_mut() {
            *deadline += 10;
        }
        let seen: Vec<_> = calls.iter_mut().map(|(key, deadline)| (key, *deadline)).collect();
        assert_eq!(seen, [(keys[1], 12), (keys[2], 13)]);
    }
}

#[test]
fn a_codec_without_requests_begins_no_call() {
    let mut calls = CallTable::new(Matching::None, 10);
    assert_eq!(calls.begin('a'), Err('a'));
    assert_eq!((calls.can_begin(), calls.is_exhausted()), (false, false));
    assert_eq!(calls.complete(&message()), Matched::Unknown);
}

#[test]
fn numbers_of_32_bits_wrap_and_stay_within_the_limit() {
    let modulus = 100_000;
    let mut calls = CallTable::new(Matching::Sequence { modulus }, 100);
    let held = calls.begin(u32::MAX).unwrap();
    let mut last = calls.sequence_of(held);
    let mut wrapped = 0;
    for turn in 0..250_000 {
        let key = calls.begin(turn).unwrap();
        let number = calls.sequence_of(key);
        assert!(number < modulus && number != 1);
        wrapped += u32::from(number < last);
        last = number;
        assert_eq!(calls.complete(&reply(number)), Matched::Call(turn));
    }
    assert_eq!(wrapped, 2);
    assert_eq!(calls.complete(&reply(1)), Matched::Call(u32::MAX));
}

proptest! {
    /// Begin, complete, abandon, withdraw, drain and strays in any order, against a plain list of calls.
    #[test]
    fn any_operations_do_what_a_plain_list_does(operations in vec(any::<u8>(), 2..600)) {
        corewire_testkit::fuzz::call_table(&operations);
    }
}
