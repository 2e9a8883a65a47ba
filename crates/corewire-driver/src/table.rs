//! A slab whose keys go out of date.

use crate::event::Token;

/// Values by [`Token`]: a slot is used again under another generation, so an old token finds nothing.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Token {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Token { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 sockets fit a process");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Token { index, generation: 0 }
    }

    /// What the slot holds now, with its token.
    #[inline]
    pub(crate) fn at_index(&mut self, index: usize) -> Option<(Token, &mut T)> {
        let slot = self.slots.get_mut(index)?;
        let token = Token { index: u32::try_from(index).ok()?, generation: slot.generation };
        slot.value.as_mut().map(|value| (token, value))
    }

    #[inline]
    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let slot = self.slots.get(token.index as usize)?;
        if slot.generation == token.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & Token::GENERATION_MASK;
        self.free.push(token.index);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_finds_nothing_in_a_slot_used_again() {
        let mut table = Table::new();
        let first = table.insert("first");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(second.index, first.index, "the slot is used again");
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"second"));
        assert_eq!(table.at_index(0), Some((second, &mut "second")));
        assert_eq!(table.at_index(1), None);
        assert_eq!(table.len(), 1);
    }
}
