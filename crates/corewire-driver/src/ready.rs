//! Sockets that have something to do.

use std::collections::VecDeque;

use crate::event::Token;

/// What a socket may have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Ready {
    pub(crate) const READABLE: Self = Self { readable: true, writable: false };

    /// What was asked for and is so, which is asked for no more; `None` if there is nothing.
    pub(crate) fn take_from(self, asked: &mut Self) -> Option<Self> {
        let told =
            Self { readable: self.readable && asked.readable, writable: self.writable && asked.writable };
        asked.readable &= !told.readable;
        asked.writable &= !told.writable;
        (told.readable || told.writable).then_some(told)
    }
}

/// A socket's place in the list: what was told of it since it was served last, merged.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    ready: Ready,
    is_listed: bool,
}

impl Pending {
    /// What it has to do, once it was taken from the list.
    pub(crate) fn take(&mut self) -> Ready {
        self.is_listed = false;
        std::mem::take(&mut self.ready)
    }
}

/// Sockets in the order in which they are served, each once however often it was told.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    tokens: VecDeque<Token>,
}

impl ReadyList {
    /// Puts a socket behind the others, or adds to what it has to do if it is listed.
    #[inline]
    pub(crate) fn add(&mut self, token: Token, pending: &mut Pending, ready: Ready) {
        pending.ready.readable |= ready.readable;
        pending.ready.writable |= ready.writable;
        if !std::mem::replace(&mut pending.is_listed, true) {
            self.tokens.push_back(token);
        }
    }

    /// The next one. Its socket may be closed by now.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Token> {
        self.tokens.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_listed_once_with_all_that_was_told_of_it() {
        let (first, second) = (Token { index: 1, generation: 0 }, Token { index: 2, generation: 0 });
        let (mut list, mut one, mut two) = (ReadyList::default(), Pending::default(), Pending::default());
        list.add(first, &mut one, Ready::READABLE);
        list.add(second, &mut two, Ready::READABLE);
        list.add(first, &mut one, Ready { readable: false, writable: true });
        assert_eq!(list.next(), Some(first));
        assert_eq!(one.take(), Ready { readable: true, writable: true });
        list.add(first, &mut one, Ready::READABLE);
        assert_eq!((list.next(), list.next(), list.next()), (Some(second), Some(first), None));
        assert_eq!(one.take(), Ready::READABLE);
    }
}
