//! Calls in flight, and what their ends say about their endpoints.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use corewire_discovery::Flight;
use corewire_proto::rpc::Code;

use super::Discovered;
use super::member::Member;
use super::pick::Picked;
use crate::status::Status;

/// Names a call of a channel that balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct FlightId(u32);

impl FlightId {
    /// The call is of another channel.
    pub(in crate::client) const NONE: Self = Self(u32::MAX);
}

/// A call in flight.
pub(super) struct InFlight {
    member: Rc<Member>,
    flight: Flight,
    began: Instant,
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

impl Discovered {
    /// Counts a call as in flight.
    pub(in crate::client) fn begin(&self, picked: Picked) -> FlightId {
        let Picked { member, flight, began, .. } = picked;
        let mut calls = self.calls.borrow_mut();
        let index = calls.insert(InFlight { member, flight, began });
        match u32::try_from(index) {
            Ok(id) if id != FlightId::NONE.0 => FlightId(id),
            _ => {
                calls.remove(index);
                FlightId::NONE
            }
        }
    }

    /// A call is over.
    pub(in crate::client) fn end(&self, id: FlightId, outcome: Outcome) {
        let Some(InFlight { member, flight, began }) = self.calls.borrow_mut().try_remove(id.0 as usize)
        else {
            return;
        };
        let now = corewire_driver::clock::now();
        let latency = now.saturating_duration_since(began);
        match outcome {
            Outcome::Good => flight.succeeded(latency),
            Outcome::Bad => flight.failed(latency),
            Outcome::Unknown => return,
        }
        if outcome == Outcome::Good && !member.has_failed.get() && !self.is_panicking.get() {
            return;
        }
        let (began, now) = (self.since_origin(began), self.since_origin(now));
        let state = &mut *self.state.borrow_mut();
        if outcome == Outcome::Good
            && let Some(panic) = &mut state.panic
        {
            panic.succeeded(&member.instance, now);
        }
        let Some(outliers) = &mut state.outliers else { return };
        if outcome == Outcome::Good {
            return outliers.succeeded(&member.instance, began, now);
        }
        member.has_failed.set(true);
        if outliers.failed(&member.instance, began, now) {
            tracing::info!(service = %self.service, instance = %member.instance, "endpoint out of use for a time");
        }
    }

    /// The call is counted by who holds this from now on.
    pub(in crate::client) fn take(&self, id: FlightId) -> Option<Flight> {
        self.calls.borrow_mut().try_remove(id.0 as usize).map(|call| call.flight)
    }
}
