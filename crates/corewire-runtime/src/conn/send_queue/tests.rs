use super::*;

fn contents(queue: &SendQueue) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let (count, total) = queue.fill(&mut slices, usize::MAX);
    let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(bytes.len(), total);
    bytes
}

#[test]
fn copied_and_shared_pieces_leave_in_order_whatever_the_socket_takes() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    let mut expected = Vec::new();
    for round in 0..3_u8 {
        queue.push_slice(&[round; 100], pool);
        expected.extend([round; 100]);
        queue.push_bytes(Bytes::from(vec![100 + round; SHARED_MIN]), pool);
        expected.extend([100 + round; SHARED_MIN]);
    }
    queue.push_bytes(Bytes::from_static(b"small"), pool);
    expected.extend(b"small");
    let mut step = 1;
    while !queue.is_empty() {
        assert_eq!(contents(&queue), expected);
        let sent = step.min(queue.len());
        queue.advance(sent, pool);
        expected.drain(..sent);
        assert_eq!(queue.len(), expected.len());
        step = step * 3 + 1;
    }
    assert_eq!(contents(&queue), b"");
}

#[test]
fn the_front_can_be_taken_up_to_a_size() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    queue.push_slice(&[1; 100], pool);
    queue.push_bytes(Bytes::from(vec![2; SHARED_MIN]), pool);
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    for (most, count) in [(1, 1), (100, 1), (101, 2), (100 + SHARED_MIN, 2)] {
        assert_eq!(queue.fill(&mut slices, most), (count, most));
    }
    assert_eq!(queue.fill(&mut slices, usize::MAX), (2, 100 + SHARED_MIN));
}

#[test]
fn a_queue_that_is_never_empty_keeps_its_memory_small() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    for round in 0..10_000_u32 {
        queue.push_slice(&round.to_le_bytes().repeat(8), pool);
        if queue.len() > 1000 {
            queue.advance(queue.len() - 53, pool);
        }
    }
    assert!(queue.tail.capacity() <= 2048, "{}", queue.tail.capacity());
    let end = contents(&queue);
    assert_eq!(end[end.len() - 4..], 9_999_u32.to_le_bytes());
}

#[test]
fn a_queue_in_use_again_does_not_allocate() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    queue.push_slice(&[1; 3000], pool);
    queue.advance(3000, pool);
    let kept = pool.kept();
    assert!(kept >= 3000);
    queue.push_slice(&[2; 3000], pool);
    assert_eq!(pool.kept(), 0, "the buffer of before is used");
    queue.advance(3000, pool);
    assert_eq!(pool.kept(), kept);
}

#[test]
fn messages_of_every_small_size_are_copied_whole() {
    let pool = &mut BufferPool::new();
    let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
    for len in 0..200 {
        let message: Vec<u8> = (0..len).map(|at| (len * 7 + at) as u8).collect();
        queue.push_slice(&message, pool);
        expected.extend_from_slice(&message);
    }
    assert_eq!(contents(&queue), expected);
    assert_eq!(queue.len(), expected.len());
}

/// What goes to the kernel with one call: the lengths of the slices.
fn slices_of(queue: &SendQueue, most: usize) -> Vec<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let (count, _) = queue.fill(&mut slices, most);
    slices[..count].iter().map(|slice| slice.len()).collect()
}

#[test]
fn no_append_copies_what_is_queued() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    let message: Vec<u8> = (0..28).collect();
    let messages = (16 << 20) / message.len();
    for _ in 0..messages {
        queue.push_slice(&message, pool);
    }
    assert_eq!(queue.len(), messages * message.len());
    assert!(queue.moved < SEGMENT_BYTES, "{} bytes were moved", queue.moved);
    assert!(queue.held() < queue.len() + SEGMENT_BYTES, "{} bytes hold {}", queue.held(), queue.len());
    let mut left: Vec<u8> = Vec::new();
    while !queue.is_empty() {
        let front = contents(&queue);
        queue.advance(front.len(), pool);
        left.extend(front);
    }
    assert!(left.chunks(message.len()).all(|chunk| chunk == message));
    assert_eq!(left.len(), messages * message.len());
}

#[test]
fn what_is_moved_is_no_more_than_what_is_sent_however_little_the_socket_takes() {
    for step in [1, 7, 300, 1000, 5000, 40_000] {
        let pool = &mut BufferPool::new();
        let mut queue = SendQueue::default();
        queue.push_slice(&[0; 700], pool);
        let mut pushed = 700;
        for _ in 0..5000 {
            queue.push_slice(&vec![1; step], pool);
            queue.advance(step, pool);
            pushed += step;
        }
        assert!(queue.moved <= pushed + SEGMENT_BYTES, "{} of {pushed} at steps of {step}", queue.moved);
        assert_eq!(queue.len(), 700);
    }
}

#[test]
fn each_piece_of_a_flush_lies_in_one_segment() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    for len in [1000, 28, 3, 15_000, 400].into_iter().cycle().take(5000) {
        queue.push_slice(&vec![1; len], pool);
        while queue.len() >= SEGMENT_BYTES {
            assert_eq!(slices_of(&queue, SEGMENT_BYTES), [SEGMENT_BYTES]);
            queue.advance(SEGMENT_BYTES, pool);
        }
    }
    assert_eq!(slices_of(&queue, usize::MAX), [queue.len()]);
    assert!(pool.kept() <= 3 * SEGMENT_BYTES, "the same buffers are used again");
}

#[test]
fn a_little_to_send_holds_little() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    assert_eq!(queue.held(), 0);
    queue.push_slice(&[1; 28], pool);
    assert_eq!(queue.held(), 512);
    queue.push_slice(&[1; 1000], pool);
    assert_eq!(queue.held(), 2048);
    queue.advance(1028, pool);
    assert_eq!((queue.held(), pool.in_use()), (0, 0));
}

#[test]
fn what_is_held_counts_shared_memory_until_all_of_it_is_sent() {
    let pool = &mut BufferPool::new();
    let mut queue = SendQueue::default();
    queue.push_slice(&[1; 28], pool);
    queue.push_bytes(Bytes::from(vec![2; 100_000]), pool);
    queue.advance(28 + 99_999, pool);
    assert_eq!((queue.len(), queue.held(), pool.in_use()), (1, 100_000, 100_000));
    queue.advance(1, pool);
    assert_eq!((queue.held(), pool.in_use()), (0, 0));
    queue.push_bytes(Bytes::from(vec![2; 100_000]), pool);
    queue.push_slice(&[1; 200_000], pool);
    assert_eq!(queue.held(), pool.in_use());
    queue.clear(pool);
    assert_eq!((queue.len(), queue.held(), pool.in_use()), (0, 0, 0));
}
