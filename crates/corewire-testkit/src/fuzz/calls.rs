use corewire_proto::codec::{FrameHead, FrameKind, Matching};
use corewire_proto::matching::{CallKey, CallTable, Matched};

/// Every byte pair is one operation on a call table, done on a plain model too. The first two bytes are the
/// settings.
pub fn call_table(data: &[u8]) {
    let Some((&[kind, limit], operations)) = data.split_first_chunk::<2>() else { return };
    let matching = match kind % 4 {
        0 => Matching::Fifo,
        1 => Matching::Sequence { modulus: 256 },
        2 => Matching::Sequence { modulus: u32::from(limit) },
        _ => Matching::Sequence { modulus: u32::MAX - u32::from(limit) },
    };
    let mut pair = Pair::new(matching, usize::from(limit));
    for (turn, operation) in operations.chunks_exact(2).enumerate() {
        pair.step(operation[0], operation[1]);
        pair.compare_counts();
        if turn % 8 == 7 {
            pair.compare_calls();
        }
    }
    pair.compare_calls();
    pair.drain();
}

/// The table under test and the model beside it.
struct Pair {
    table: CallTable<u32>,
    matching: Matching,
    /// Oldest first.
    model: Vec<ModelCall>,
    /// Every key that was ever given, with the value it was given for.
    keys: Vec<(CallKey, u32)>,
    next_value: u32,
}

struct ModelCall {
    key: CallKey,
    number: u32,
    /// `None`: abandoned.
    value: Option<u32>,
}

impl Pair {
    fn new(matching: Matching, limit: usize) -> Self {
        Self {
            table: CallTable::new(matching, limit),
            matching,
            model: Vec::new(),
            keys: Vec::new(),
            next_value: 0,
        }
    }

    fn step(&mut self, operation: u8, choice: u8) {
        match operation % 8 {
            0..=2 => self.begin(),
            3 | 4 => self.complete(choice),
            5 => self.abandon(choice),
            6 => self.withdraw(choice),
            _ if choice == 0 => self.drain(),
            _ if choice.is_multiple_of(5) => self.abandon_if(u32::from(choice)),
            _ => self.stray(choice),
        }
    }

    fn begin(&mut self) {
        let value = self.next_value;
        let room = self.model.len() < self.table.capacity();
        assert_eq!(self.table.can_begin(), room);
        match self.table.begin(value) {
            Ok(key) => {
                assert!(room);
                let number = self.table.sequence_of(key);
                if let Matching::Sequence { modulus } = self.matching {
                    assert!(number < modulus);
                    assert!(self.model.iter().all(|call| call.number != number), "{number} is held");
                }
                self.model.push(ModelCall { key, number, value: Some(value) });
                self.keys.push((key, value));
                self.next_value += 1;
            }
            Err(back) => {
                assert_eq!(back, value);
                assert!(!room);
            }
        }
    }

    fn complete(&mut self, choice: u8) {
        if self.model.is_empty() {
            return;
        }
        let (at, head) = match self.matching {
            Matching::Fifo => (0, FrameHead::default()),
            _ => {
                let at = usize::from(choice) % self.model.len();
                let kind = if choice & 1 == 0 { FrameKind::Reply } else { FrameKind::ErrorReply };
                (at, FrameHead { kind, sequence: self.model[at].number, tag: choice })
            }
        };
        let expected = match self.model.remove(at).value {
            Some(value) => Matched::Call(value),
            None => Matched::Late,
        };
        assert_eq!(self.table.complete(&head), expected);
    }

    fn abandon(&mut self, choice: u8) {
        let Some((key, value)) = self.any_key(choice) else { return };
        let call = self.model.iter_mut().find(|call| call.key == key);
        let expected = call.and_then(|call| call.value.take());
        assert!(expected.is_none_or(|expected| expected == value));
        assert_eq!(self.table.abandon(key), expected);
    }

    fn abandon_if(&mut self, divisor: u32) {
        let mut ended = Vec::new();
        self.table.abandon_if(|value| value % divisor == 0, |value| ended.push(value));
        ended.sort_unstable();
        let calls = self.model.iter_mut();
        let over = calls.filter_map(|call| call.value.take_if(|value| *value % divisor == 0));
        assert_eq!(ended, over.collect::<Vec<_>>());
    }

    fn withdraw(&mut self, choice: u8) {
        let Some((key, value)) = self.any_key(choice) else { return };
        let at = self.model.iter().position(|call| call.key == key && call.value.is_some());
        let newest = self.model.len().wrapping_sub(1);
        let at = at.filter(|at| self.matching != Matching::Fifo || *at == newest);
        if let Some(at) = at {
            self.model.remove(at);
        }
        assert_eq!(self.table.withdraw(key), at.map(|_| value));
    }

    /// Frames that complete nothing.
    fn stray(&mut self, choice: u8) {
        let request = FrameHead { kind: FrameKind::Request, sequence: u32::from(choice), tag: 0 };
        assert_eq!(self.table.complete(&request), Matched::Unknown);
        if let Matching::Sequence { modulus } = self.matching {
            let far = modulus.wrapping_sub(u32::from(choice));
            let sequence = if choice & 1 == 0 { u32::from(choice) } else { far };
            if self.model.iter().all(|call| call.number != sequence) {
                let reply = FrameHead { kind: FrameKind::Reply, sequence, tag: 0 };
                assert_eq!(self.table.complete(&reply), Matched::Unknown);
            }
        }
    }

    fn drain(&mut self) {
        let mut drained: Vec<u32> = self.table.drain().collect();
        drained.sort_unstable();
        let mut waiting: Vec<u32> = self.model.drain(..).filter_map(|call| call.value).collect();
        waiting.sort_unstable();
        assert_eq!(drained, waiting);
    }

    fn compare_counts(&self) {
        let abandoned = self.model.iter().filter(|call| call.value.is_none()).count();
        assert_eq!(self.table.abandoned(), abandoned);
        assert_eq!(self.table.in_flight(), self.model.len() - abandoned);
        let exhausted = self.table.capacity() > 0 && abandoned == self.table.capacity();
        assert_eq!(self.table.is_exhausted(), exhausted);
    }

    fn compare_calls(&mut self) {
        let mut waiting: Vec<(u32, CallKey)> =
            self.table.iter_mut().map(|(key, value)| (*value, key)).collect();
        waiting.sort_unstable_by_key(|(value, _)| *value);
        let model = self.model.iter().filter_map(|call| Some((call.value?, call.key)));
        assert_eq!(waiting, model.collect::<Vec<_>>());
        // Keys of calls that have ended find nothing; the others find their own.
        for (key, value) in self.keys.iter().rev().take(8) {
            let waits = self.model.iter().any(|call| call.key == *key && call.value.is_some());
            assert_eq!(self.table.get(*key), waits.then_some(value));
        }
    }

    fn any_key(&self, choice: u8) -> Option<(CallKey, u32)> {
        let recent = self.keys.len().saturating_sub(256);
        let recent = &self.keys[recent..];
        recent.get(usize::from(choice) % recent.len().max(1)).copied()
    }
}
