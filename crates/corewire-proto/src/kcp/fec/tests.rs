use super::*;

const TEN_THREE: Shards = Shards { data: 10, parity: 3 };

fn encoded(encoder: &mut Encoder, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut shards = Vec::new();
    for datagram in datagrams {
        encoder.encode(1, datagram, true, &mut |parts| shards.push(parts.concat()));
    }
    shards
}

fn datagrams(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|index| (0..24 + index * 7).map(|at| (at * 31 + index) as u8).collect()).collect()
}

#[test]
fn as_many_lost_datagrams_as_there_is_parity_are_made_up() {
    let sent = datagrams(10);
    let shards = encoded(&mut Encoder::new(TEN_THREE), &sent);
    assert_eq!(shards.len(), 13);
    for lost in [[0, 1, 2], [7, 8, 9], [0, 5, 11], [3, 10, 12], [9, 11, 12]] {
        let mut decoder = Decoder::new(TEN_THREE);
        let mut made_up = Vec::new();
        for (_, shard) in shards.iter().enumerate().filter(|(index, _)| !lost.contains(index)) {
            made_up.extend(decoder.take(Shard::parse(shard).unwrap()));
        }
        let expected: Vec<_> = lost.iter().filter_map(|index| sent.get(*index)).cloned().collect();
        assert_eq!(made_up, expected, "{lost:?}");
    }
}

#[test]
fn a_group_that_came_slowly_or_to_an_unknown_address_has_no_parity_but_its_numbers() {
    let mut encoder = Encoder::new(Shards { data: 2, parity: 1 });
    let mut sequences = Vec::new();
    for (now, may_repair) in [(1, true), (2, true), (3, true), (600, true), (601, false), (602, false)] {
        encoder.encode(now, b"x", may_repair, &mut |parts| {
            let datagram = parts.concat();
            sequences.push(match Shard::parse(&datagram).unwrap() {
                Shard::Data { sequence, .. } => (sequence, 'd'),
                Shard::Parity { sequence, .. } => (sequence, 'p'),
            });
        });
    }
    assert_eq!(sequences, [(0, 'd'), (1, 'd'), (2, 'p'), (3, 'd'), (4, 'd'), (6, 'd'), (7, 'd')]);
}

#[test]
fn numbers_wrap_around_at_a_whole_group_and_old_groups_are_dropped() {
    let shards = Shards { data: 2, parity: 1 };
    assert_eq!(shards.sequence_end() % 3, 0);
    let mut decoder = Decoder::new(shards);
    let last = shards.sequence_end() - 3;
    let shard = |sequence| Shard::Data { sequence, bytes: b"\x03\x00x" };
    let parity = |sequence| Shard::Parity { sequence, bytes: b"\x03\x00x" };
    assert!(decoder.take(shard(last)).is_empty());
    assert!(decoder.take(shard(0)).is_empty());
    assert!(decoder.take(shard(last - 3)).is_empty());
    assert!(decoder.take(parity(last - 1)).is_empty(), "its group came too late to be kept");
    assert_eq!(decoder.take(parity(last + 2)).len(), 1);
    assert_eq!(decoder.take(parity(2)).len(), 1);
    assert!(decoder.take(parity(2)).is_empty() && decoder.take(shard(1)).is_empty(), "once only");
}

#[test]
fn what_makes_no_sense_makes_nothing_up() {
    let mut decoder = Decoder::new(TEN_THREE);
    assert_eq!(Shard::parse(b"\0\0\0\0\xf1\0\x02"), None);
    assert_eq!(Shard::parse(b"\0\0\0\0\xf3\0\x02\0"), None);
    for sequence in [0, 10, u32::MAX] {
        for bytes in [&b""[..], b"\xff\xff", &[0; 4000]] {
            assert!(decoder.take(Shard::Data { sequence, bytes }).is_empty());
            assert!(decoder.take(Shard::Parity { sequence, bytes }).is_empty());
        }
    }
    // Ten shards of which the sizes are nonsense.
    (0..7).for_each(|sequence| drop(decoder.take(Shard::Data { sequence, bytes: b"\xff\xff" })));
    let made_up =
        (10..13).flat_map(|sequence| decoder.take(Shard::Parity { sequence, bytes: b"\xff\xff\xff" }));
    assert!(made_up.count() <= 3);
}

/// Two groups that a session of kcp-go 5.6.24 has sent with 10 + 3 shards, one datagram in each line.
fn of_kcp_go() -> Vec<Vec<u8>> {
    let byte = |line: &str, at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal digits");
    let datagram = |line: &str| (0..line.len()).step_by(2).map(|at| byte(line, at)).collect();
    include_str!("kcp-go.txt").lines().map(datagram).collect()
}

#[test]
fn the_shards_are_those_of_kcp_go_byte_for_byte() {
    let theirs = of_kcp_go();
    let plain: Vec<_> =
        theirs.iter().filter_map(|shard| Some(Shard::parse(shard)?.datagram()?.to_vec())).collect();
    assert_eq!(plain.len(), 20);
    assert_eq!(encoded(&mut Encoder::new(TEN_THREE), &plain), theirs);
}

#[test]
fn lost_datagrams_of_kcp_go_are_made_up() {
    let theirs = of_kcp_go();
    let lost = [0, 4, 9, 13, 22, 23];
    let mut decoder = Decoder::new(TEN_THREE);
    let mut made_up = Vec::new();
    for (_, shard) in theirs.iter().enumerate().filter(|(index, _)| !lost.contains(index)) {
        made_up.extend(decoder.take(Shard::parse(shard).expect("a shard")));
    }
    let expected: Vec<_> =
        lost.iter().filter_map(|index| Some(Shard::parse(&theirs[*index])?.datagram()?.to_vec())).collect();
    assert_eq!(made_up, expected);
}
