//! Metadata that handlers send with their responses.

use std::collections::HashMap;

use bytes::Bytes;
use corewire_proto::rpc::{CallKey, Connection as Machine, Failure, Options, Output, Payload, SendError};

use crate::metadata::{Metadata, MetadataError, check_name};

/// Metadata of the responses of calls in flight. Empty, and of no cost, as long as no handler adds any.
#[derive(Default)]
pub(crate) struct Replies {
    all: HashMap<CallKey, Reply>,
}

/// What goes with the first response of a call, and with its last frame.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) header: Metadata,
    pub(crate) trailer: Metadata,
    is_header_sent: bool,
}

/// Where metadata is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Header,
    Trailer,
}

impl Replies {
    /// Adds metadata to a call, once it is known that it can be sent.
    pub(crate) fn add(
        &mut self,
        machine: &mut Machine,
        key: CallKey,
        part: Part,
        name: String,
        value: Bytes,
    ) -> Result<(), MetadataError> {
        check_name(&name)?;
        let has_responded = machine.has_responded(key).ok_or(MetadataError::CallOver)?;
        if part == Part::Header && has_responded {
            return Err(MetadataError::HeaderSent);
        }
        let limit = machine.peer_settings().max_extension.min(u32::from(u16::MAX)) as usize;
        let reply = self.all.entry(key).or_default();
        let metadata = if part == Part::Header { &mut reply.header } else { &mut reply.trailer };
        metadata.add(name, value);
        // Both together, since they are one block when one frame is the whole answer.
        let all = reply.unsent(true);
        let pairs = all.as_pairs();
        let len = Options { metadata: &pairs, ..Options::default() }.block_len();
        if len <= limit {
            return Ok(());
        }
        let metadata = if part == Part::Header { &mut reply.header } else { &mut reply.trailer };
        metadata.pop();
        Err(MetadataError::TooLong { len, limit })
    }

    /// What has been added for a call.
    pub(crate) fn get(&self, key: CallKey) -> Option<&Reply> {
        self.all.get(&key)
    }

    /// Forgets a call that is over.
    #[inline]
    pub(crate) fn remove(&mut self, key: CallKey) {
        if !self.all.is_empty() {
            self.all.remove(&key);
        }
    }

    /// Sends a message, and with it what is due.
    #[inline]
    pub(crate) fn send<P: Payload, O: Output + ?Sized>(
        &mut self,
        machine: &mut Machine,
        key: CallKey,
        payload: P,
        end: bool,
        out: &mut O,
    ) -> Result<(), SendError> {
        if self.all.is_empty() {
            return machine.send(key, payload, end, out);
        }
        self.due(key, end, |options| machine.send_with(key, payload, end, options, out))
    }

    /// Ends the half without a message, and with what is due.
    pub(crate) fn finish<O: Output + ?Sized>(
        &mut self,
        machine: &mut Machine,
        key: CallKey,
        out: &mut O,
    ) -> Result<(), SendError> {
        self.due(key, true, |options| machine.finish_with(key, options, out))
    }

    /// Fails a call, with what is due.
    pub(crate) fn fail<O: Output + ?Sized>(
        &mut self,
        machine: &mut Machine,
        key: CallKey,
        failure: &Failure<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        self.due(key, true, |options| machine.fail_with(key, failure, options, out))
    }

    #[cold]
    fn due(
        &mut self,
        key: CallKey,
        end: bool,
        send: impl FnOnce(&Options<'_>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let Some(reply) = self.all.get_mut(&key) else { return send(&Options::default()) };
        let due = reply.unsent(end);
        send(&Options { metadata: &due.as_pairs(), ..Options::default() })?;
        reply.is_header_sent = true;
        Ok(())
    }
}

impl Reply {
    /// What the next frame carries.
    fn unsent(&self, end: bool) -> Metadata {
        let mut due = if self.is_header_sent { Metadata::EMPTY } else { self.header.clone() };
        if end {
            due.append(&self.trailer);
        }
        due
    }
}
