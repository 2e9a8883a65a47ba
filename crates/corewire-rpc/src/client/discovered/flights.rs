//! Calls in flight, and what their ends say about their endpoints.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use corewire_discovery::Flight;
use corewire_proto::rpc::Code;

use super::member::Member;
use crate::status::Status;

/// Names a call of a channel that balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct FlightId(pub(super) u32);

impl FlightId {
    /// The call is of another channel.
    pub(in crate::client) const NONE: Self = Self(u32::MAX);
}

/// A call in flight.
pub(super) struct InFlight {
    pub(super) member: Rc<Member>,
    pub(super) flight: Flight,
    pub(super) began: Instant,
}

/// What the end of a call says about its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Outcome {
    Good,
    Bad,
    /// Nothing: it was cancelled, or was not processed.
    Unknown,
}

impl Outcome {
    pub(in crate::client) fn of(result: Option<&Result<Bytes, Status>>) -> Self {
        match result {
            None => Self::Unknown,
            Some(Ok(_)) => Self::Good,
            Some(Err(status)) if status.is_unprocessed() => Self::Unknown,
            Some(Err(status)) => match status.code() {
                Code::UNAVAILABLE
                | Code::CONNECTION_CLOSED
                | Code::DEADLINE_EXCEEDED
                | Code::PROTOCOL_ERROR
                | Code::FLOW_CONTROL_ERROR => Self::Bad,
                // Full is not broken: its load tells.
                Code::CANCELLED | Code::RESOURCE_EXHAUSTED => Self::Unknown,
                // It was answered, if not as the caller would wish.
                _ => Self::Good,
            },
        }
    }
}
