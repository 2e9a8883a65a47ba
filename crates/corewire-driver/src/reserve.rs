//! A descriptor that is kept for when there are no others.

use std::fs::File;

use crate::net;
use crate::socket::Socket;

/// A process without descriptors cannot even close the connections that wait to be accepted: they would hang. Giving this
/// one up makes room to accept one, and to close it.
#[derive(Debug)]
pub(crate) struct Reserve(Option<File>);

impl Reserve {
    /// An empty reserve if there is no descriptor left by now.
    pub(crate) fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Closes at most `max` connections that wait to be accepted, and says how many those were.
    pub(crate) fn refuse(&mut self, listener: &Socket, max: usize) -> usize {
        let mut refused = 0;
        while refused < max {
            drop(self.0.take());
            // Another thread may be quicker than we: then there is no room, and nothing is refused.
            let accepted = net::accept(listener);
            let is_one = matches!(accepted, Ok(Some(_)));
            drop(accepted);
            *self = Self::new();
            if !is_one {
                break;
            }
            refused += 1;
        }
        refused
    }
}
