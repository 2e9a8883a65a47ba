//! A channel whose endpoints come from a registry: connections follow it, and a balancer chooses for each call.

mod calls;
mod flights;
mod following;
mod member;
mod opened;
mod pick;
mod serving;

pub(super) use self::flights::{FlightId, Outcome};
pub(super) use self::following::Discovered;
pub(crate) use self::following::Discovery;
pub(crate) use self::serving::{Serving, WatchHealth};
