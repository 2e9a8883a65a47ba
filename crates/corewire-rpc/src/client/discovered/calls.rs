//! What the endpoints are told of calls.

use corewire_discovery::Flight;

use super::flights::{FlightId, InFlight, Outcome};
use super::following::Discovered;
use super::pick::Picked;

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
