//! The numbers that stand for methods, once their names have been sent (version 2).

use std::collections::HashMap;

use crate::rpc::error::ConnectionError;
use crate::rpc::path::MethodPath;

/// Methods that may have numbers on one connection: 1 to 1,024.
pub const METHODS_MAX: u16 = 1_024;

/// Bytes that the names of all methods with numbers may take, with their lengths as they are on the wire.
pub const METHOD_NAMES_MAX: usize = 64 * 1024;

/// How a call is to say its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// By a number that the server knows.
    Known(u16),
    /// By its names, which the number stands for from now on; 0: for this call alone.
    Named(u16),
}

/// The numbers that a client has given, or a server was told.
#[derive(Debug, Default)]
pub(super) struct Methods {
    /// The one with number 1 is the first.
    paths: Vec<MethodPath>,
    /// What all names take, in bytes.
    len: usize,
    /// The client's way from a path to its number.
    numbers: HashMap<MethodPath, u16>,
    /// The number of the call before: most connections call one method over and over.
    last: u16,
}

impl Methods {
    /// How to say `path`. One that is new has its number only after [`add`](Self::add).
    #[inline]
    pub(super) fn tag(&mut self, path: &MethodPath) -> Tag {
        match self.get(self.last) {
            // The same path most often, or one that was made of the same names.
            Some(last) if last.is_same(path) || last == path => Tag::Known(self.last),
            _ => self.tag_other(path),
        }
    }

    fn tag_other(&mut self, path: &MethodPath) -> Tag {
        if let Some(&number) = self.numbers.get(path) {
            self.last = number;
            // The next call is by this one, and told by its address.
            if let Some(known) = self.paths.get_mut(usize::from(number).wrapping_sub(1)) {
                known.clone_from(path);
            }
            return Tag::Known(number);
        }
        let is_full = self.paths.len() >= usize::from(METHODS_MAX);
        let has_room = !is_full && self.len + path.wire().len() <= METHOD_NAMES_MAX;
        Tag::Named(if has_room { self.paths.len() as u16 + 1 } else { 0 })
    }

    /// The names have been sent with the next number.
    #[cold]
    pub(super) fn add(&mut self, path: &MethodPath) {
        self.push(path.clone());
        self.last = self.paths.len() as u16;
        self.numbers.insert(path.clone(), self.last);
    }

    /// The client gives a number to these names.
    #[cold]
    pub(super) fn define(
        &mut self,
        number: u16,
        service: &[u8],
        method: &[u8],
    ) -> Result<(), ConnectionError> {
        if self.paths.len() >= usize::from(METHODS_MAX) {
            return Err(ConnectionError::TooManyMethods { limit: METHODS_MAX });
        }
        let expected = self.paths.len() as u16 + 1;
        if number != expected {
            return Err(ConnectionError::MethodOutOfOrder { number, expected });
        }
        let len = self.len + 4 + service.len() + method.len();
        if len > METHOD_NAMES_MAX {
            return Err(ConnectionError::MethodNamesTooLong { len, limit: METHOD_NAMES_MAX });
        }
        self.push(MethodPath::received(service, method));
        Ok(())
    }

    fn push(&mut self, path: MethodPath) {
        self.len += path.wire().len();
        self.paths.push(path);
    }

    /// The names that a number stands for.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&MethodPath> {
        self.paths.get(usize::from(number).wrapping_sub(1))
    }

    /// Memory that is held for it, in bytes: the names, and what each of them takes beside.
    pub(super) const fn bytes(&self) -> usize {
        self.len + self.paths.len() * size_of::<MethodPath>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(method: &str) -> MethodPath {
        MethodPath::new("S", method).unwrap()
    }

    #[test]
    fn names_are_sent_once_whichever_path_says_them() {
        let mut methods = Methods::default();
        let (one, two) = (path("one"), path("two"));
        assert_eq!(methods.tag(&one), Tag::Named(1));
        assert_eq!(methods.tag(&one), Tag::Named(1), "as long as nothing was written");
        methods.add(&one);
        assert_eq!(methods.tag(&two), Tag::Named(2));
        methods.add(&two);
        for (name, number) in [("one", 1), ("one", 1), ("two", 2), ("one", 1)] {
            assert_eq!(methods.tag(&path(name)), Tag::Known(number));
        }
        assert_eq!(methods.tag(&two.clone()), Tag::Known(2));
    }

    #[test]
    fn what_finds_no_room_in_the_table_is_named_each_time() {
        let mut methods = Methods::default();
        for number in 1..=METHODS_MAX {
            let path = path(&number.to_string());
            assert_eq!(methods.tag(&path), Tag::Named(number));
            methods.add(&path);
        }
        assert_eq!(methods.tag(&path("more")), Tag::Named(0));
        assert_eq!(methods.tag(&path("7")), Tag::Known(7));

        let mut methods = Methods::default();
        let long = path(&"x".repeat(40_000));
        methods.add(&long);
        assert_eq!(methods.tag(&path(&"y".repeat(40_000))), Tag::Named(0));
        assert_eq!(methods.tag(&path("short")), Tag::Named(2));
    }

    #[test]
    fn a_server_remembers_so_many_names_and_each_number_once() {
        let mut methods = Methods::default();
        let out_of_order = |number, expected| Err(ConnectionError::MethodOutOfOrder { number, expected });
        assert_eq!(methods.define(2, b"S", b"m"), out_of_order(2, 1));
        assert_eq!(methods.define(1, b"S", b"m"), Ok(()));
        assert_eq!(methods.define(1, b"S", b"n"), out_of_order(1, 2));
        assert_eq!(methods.get(1), Some(&path("m")));
        assert_eq!((methods.get(0), methods.get(2)), (None, None));
        let len = 6 + 4 + 1 + 65_535;
        let too_long = ConnectionError::MethodNamesTooLong { len, limit: METHOD_NAMES_MAX };
        assert_eq!(methods.define(2, b"S", &[b'x'; 65_535]), Err(too_long));
        for number in 2..=METHODS_MAX {
            methods.define(number, b"S", b"m").unwrap();
        }
        let too_many = ConnectionError::TooManyMethods { limit: METHODS_MAX };
        assert_eq!(methods.define(METHODS_MAX + 1, b"S", b"m"), Err(too_many));
    }
}
