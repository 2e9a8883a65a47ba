use std::collections::VecDeque;

use super::{CallKey, Matched};

/// Calls whose replies come in the order of the requests.
///
/// A key's ticket is the call's place in the order since the connection began. Only
/// [`withdraw`](Self::withdraw) lets a place be taken twice; the key's number tells the two apart.
#[derive(Debug)]
pub(super) struct FifoTable<T> {
    /// Oldest first.
    calls: VecDeque<Place<T>>,
    /// The ticket of the oldest call.
    front: u64,
    abandoned: usize,
    withdrawn: u32,
    limit: usize,
}

#[derive(Debug)]
struct Place<T> {
    /// How many calls had been withdrawn when this one began.
    stamp: u32,
    /// `None`: abandoned, and its reply is still to come and to be swallowed.
    value: Option<T>,
}

impl<T> FifoTable<T> {
    pub(super) const fn new(limit: usize) -> Self {
        Self { calls: VecDeque::new(), front: 0, abandoned: 0, withdrawn: 0, limit }
    }

    #[inline]
    pub(super) fn begin(&mut self, value: T) -> Result<CallKey, T> {
        if self.calls.len() >= self.limit {
            return Err(value);
        }
        let key = CallKey { ticket: self.front + self.calls.len() as u64, number: self.withdrawn };
        self.calls.push_back(Place { stamp: self.withdrawn, value: Some(value) });
        Ok(key)
    }

    #[inline]
    pub(super) fn complete(&mut self) -> Matched<T> {
        let Some(oldest) = self.calls.pop_front() else { return Matched::Unknown };
        self.front += 1;
        match oldest.value {
            Some(value) => Matched::Call(value),
            None => {
                self.abandoned -= 1;
                Matched::Late
            }
        }
    }

    #[inline]
    pub(super) fn abandon(&mut self, key: CallKey) -> Option<T> {
        let value = self.place_mut(key)?.value.take()?;
        self.abandoned += 1;
        Some(value)
    }

    pub(super) fn abandon_if(&mut self, mut over: impl FnMut(&T) -> bool, mut ended: impl FnMut(T)) {
        for place in &mut self.calls {
            if let Some(value) = place.value.take_if(|value| over(value)) {
                self.abandoned += 1;
                ended(value);
            }
        }
    }

    pub(super) fn withdraw(&mut self, key: CallKey) -> Option<T> {
        let newest = self.front + self.calls.len() as u64;
        if key.ticket + 1 != newest {
            return None;
        }
        let value = self.place_mut(key)?.value.take()?;
        self.calls.pop_back();
        self.withdrawn = self.withdrawn.wrapping_add(1);
        Some(value)
    }

    #[inline]
    pub(super) fn get(&self, key: CallKey) -> Option<&T> {
        let at = usize::try_from(key.ticket.checked_sub(self.front)?).ok()?;
        self.calls.get(at).filter(|place| place.stamp == key.number)?.value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: CallKey) -> Option<&mut T> {
        self.place_mut(key)?.value.as_mut()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (CallKey, &mut T)> {
        (self.front..).zip(&mut self.calls).filter_map(|(ticket, place)| {
            let number = place.stamp;
            Some((CallKey { ticket, number }, place.value.as_mut()?))
        })
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.front += self.calls.len() as u64;
        self.abandoned = 0;
        self.calls.drain(..).filter_map(|place| place.value)
    }

    pub(super) const fn abandoned(&self) -> usize {
        self.abandoned
    }

    pub(super) fn held(&self) -> usize {
        self.calls.len()
    }

    pub(super) const fn capacity(&self) -> usize {
        self.limit
    }

    #[inline]
    fn place_mut(&mut self, key: CallKey) -> Option<&mut Place<T>> {
        let at = usize::try_from(key.ticket.checked_sub(self.front)?).ok()?;
        self.calls.get_mut(at).filter(|place| place.stamp == key.number)
    }
}
