//! Metadata that a handler sends with its responses.

use bytes::Bytes;
use corewire_proto::rpc::{CallKey, Failure, Options, Payload, SendError};

use super::{Slot, State};
use crate::metadata::{Metadata, MetadataError, check_name};

/// What goes with the first response of a call, and with its last frame.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseMetadata {
    pub(crate) header: Metadata,
    pub(crate) trailer: Metadata,
    is_header_sent: bool,
}

/// Where metadata is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataPart {
    Header,
    Trailer,
}

impl ResponseMetadata {
    fn part(&mut self, part: MetadataPart) -> &mut Metadata {
        match part {
            MetadataPart::Header => &mut self.header,
            MetadataPart::Trailer => &mut self.trailer,
        }
    }

    /// What the next frame carries.
    fn unsent(&self, end: bool) -> Metadata {
        let mut due = if self.is_header_sent { Metadata::EMPTY } else { self.header.clone() };
        if end {
            due.append(&self.trailer);
        }
        due
    }
}

impl State {
    /// Adds metadata to a call, once it is known that it can be sent.
    pub(crate) fn add_response_metadata(
        &mut self,
        call: CallKey,
        part: MetadataPart,
        name: String,
        value: Bytes,
    ) -> Result<(), MetadataError> {
        check_name(&name)?;
        let has_responded = self.machine.has_responded(call).ok_or(MetadataError::CallOver)?;
        if part == MetadataPart::Header && has_responded {
            return Err(MetadataError::HeaderSent);
        }
        let limit = self.machine.peer_settings().max_extension.min(u32::from(u16::MAX)) as usize;
        if self.machine.state(call).is_none() {
            // A call that is answered at once is kept for this alone, until its answer is sent.
            self.keep(call, u64::MAX, 0);
        }
        let slot = self.machine.state_mut(call).ok_or(MetadataError::CallOver)?;
        self.with_metadata += usize::from(slot.response_metadata().is_none());
        let response = slot.response_metadata_mut();
        response.part(part).add(name, value);
        // Both together, since they are one block when one frame is the whole answer.
        let all = response.unsent(true);
        let pairs = all.as_pairs();
        let len = Options { metadata: &pairs, ..Options::default() }.block_len();
        if len <= limit {
            return Ok(());
        }
        response.part(part).pop();
        Err(MetadataError::TooLong { len, limit })
    }

    /// What has been added for a call.
    pub(crate) fn response_metadata(&self, call: CallKey) -> Option<&ResponseMetadata> {
        self.machine.state(call)?.response_metadata()
    }

    /// The call is answered: what was kept for the answer alone is not needed any more.
    #[inline]
    pub(crate) fn answered(&mut self, call: CallKey) {
        if self.with_metadata > 0 && self.machine.state(call).is_some_and(|slot| slot.holders == 0) {
            self.remove(call);
        }
    }

    /// Sends a message, and with it what is due.
    #[inline]
    pub(crate) fn send_message<P: Payload>(
        &mut self,
        call: CallKey,
        payload: P,
        end: bool,
    ) -> Result<(), SendError> {
        if self.with_metadata == 0 {
            return self.machine.send(call, payload, end, &mut self.out);
        }
        self.with_due(call, end, |state, options| {
            state.machine.send_with(call, payload, end, options, &mut state.out)
        })
    }

    /// Ends the half without a message, and with what is due.
    pub(crate) fn send_end(&mut self, call: CallKey) -> Result<(), SendError> {
        self.with_due(call, true, |state, options| state.machine.finish_with(call, options, &mut state.out))
    }

    /// Fails a call, with what is due.
    pub(crate) fn send_failure(&mut self, call: CallKey, failure: &Failure<'_>) -> Result<(), SendError> {
        self.with_due(call, true, |state, options| {
            state.machine.fail_with(call, failure, options, &mut state.out)
        })
    }

    fn with_due(
        &mut self,
        call: CallKey,
        end: bool,
        send: impl FnOnce(&mut Self, &Options<'_>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let Some(response) = self.response_metadata(call) else { return send(self, &Options::default()) };
        let due = response.unsent(end);
        send(self, &Options { metadata: &due.as_pairs(), ..Options::default() })?;
        if let Some(slot) =
            self.machine.state_mut(call).filter(|slot| Slot::response_metadata(slot).is_some())
        {
            slot.response_metadata_mut().is_header_sent = true;
        }
        Ok(())
    }
}
