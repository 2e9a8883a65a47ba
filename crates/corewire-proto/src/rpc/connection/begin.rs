//! Beginning calls (client).

use super::call::{Call, Kind, Own};
use super::emit::Method;
use super::methods::Tag;
use super::{CallKey, Connection, emit};
use crate::rpc::error::{CallError, Unsendable};
use crate::rpc::extensions::Options;
use crate::rpc::header::{Flags, Mode, Version};
use crate::rpc::output::{Output, Payload};
use crate::rpc::path::MethodPath;

const NO_OPTIONS: &Options<'static> = &Options { timeout: None, trace: None, trace_state: "", metadata: &[] };

/// A call to be begun.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'a> {
    /// Which method.
    pub path: &'a MethodPath,
    /// In which mode.
    pub mode: Mode,
    /// The first message is the last. Taken as set in modes with one request.
    pub end: bool,
    /// Deadline, trace and metadata.
    pub options: Options<'a>,
}

impl<T> Connection<T> {
    /// Begins a unary call and writes it whole. Never waits for credit.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    #[inline]
    pub fn unary<P: Payload, O: Output + ?Sized>(
        &mut self,
        path: &MethodPath,
        payload: P,
        out: &mut O,
    ) -> Result<CallKey, CallError> {
        let flags = Mode::Unary.flags().with(Flags::END);
        self.begin_request(path, flags, NO_OPTIONS, payload, out)
    }

    /// Begins a call of any mode. The first message needs no credit.
    ///
    /// In version 2 a call whose client streams may begin without a message (`None`), and then has none at all if
    /// `end` is set. Version 1 cannot say either: it needs a message here.
    ///
    /// # Errors
    /// A limit of this side or the peer is reached, the connection is going away, or the frame cannot be sent.
    pub fn begin<P: Payload, O: Output + ?Sized>(
        &mut self,
        begin: &Begin<'_>,
        first: Option<P>,
        out: &mut O,
    ) -> Result<CallKey, CallError> {
        let mut flags = begin.mode.flags();
        if begin.end || !begin.mode.streams_requests() {
            flags = flags.with(Flags::END);
        }
        match first {
            Some(payload) => self.begin_request(begin.path, flags, &begin.options, payload, out),
            None if begin.mode.streams_requests() && self.dialect().has_empty_frames() => {
                self.begin_request(begin.path, flags.with(Flags::EMPTY), &begin.options, &[], out)
            }
            None => Err(CallError::MessageNeeded),
        }
    }

    /// Opens a stream of the `STREAM_*` family; [`Event::Accepted`](super::Event::Accepted) answers it.
    ///
    /// # Errors
    /// A limit of this side or the peer is reached, the connection is going away, or the frame cannot be sent.
    pub fn open_stream<O: Output + ?Sized>(
        &mut self,
        path: &MethodPath,
        options: &Options<'_>,
        out: &mut O,
    ) -> Result<CallKey, CallError> {
        let version = self.check_can_begin()?;
        let limit = self.settings.max_streams.min(self.peer.max_streams);
        if self.calls.in_use().streams >= limit {
            return Err(CallError::TooManyStreams { limit });
        }
        let block_len = self.check_options(options)?;
        let tag = self.tag(version, path);
        let method = Method::new(path, tag);
        self.check_body(block_len + method.len())?;
        self.start(out);
        let index = self.insert_next(Kind::OpeningStream);
        emit::open_stream(version, self.calls.id(index), method, options, out);
        self.has_said(tag, path);
        Ok(self.calls.key(index))
    }

    #[inline]
    fn begin_request<P: Payload, O: Output + ?Sized>(
        &mut self,
        path: &MethodPath,
        flags: Flags,
        options: &Options<'_>,
        payload: P,
        out: &mut O,
    ) -> Result<CallKey, CallError> {
        let version = self.check_can_begin()?;
        let limit = self.settings.max_calls.min(self.peer.max_calls);
        if self.calls.in_use().calls >= limit {
            return Err(CallError::TooManyCalls { limit });
        }
        let block_len = self.check_options(options)?;
        let tag = self.tag(version, path);
        let method = Method::new(path, tag);
        self.check_body(method.len() + block_len + payload.size())?;
        self.start(out);
        let index = self.insert_next(Kind::Call(flags.mode()));
        let call = self.calls.at(index);
        let id = call.id;
        if flags.has(Flags::END) {
            call.own = Own::Ended;
        } else {
            call.own = Own::Open;
            if !flags.has(Flags::EMPTY) {
                call.send_credit -= super::cost(payload.size()) as i64;
                self.strays.expect(super::CREDIT_LEN);
            }
            if !version.marks_continuation() {
                self.keep_path(index, path);
            }
        }
        emit::begin(version, id, flags, method, options, payload, out);
        self.has_said(tag, path);
        Ok(self.calls.key(index))
    }

    /// How to say a method, where it is not by its names each time.
    #[inline]
    fn tag(&mut self, version: Version, path: &MethodPath) -> Option<Tag> {
        version.numbers_methods().then(|| self.methods.tag(path))
    }

    /// The frame that says a method was written.
    #[inline]
    fn has_said(&mut self, tag: Option<Tag>, path: &MethodPath) {
        if let Some(Tag::Named(1..)) = tag {
            self.methods.add(path);
        }
    }

    #[inline]
    fn check_can_begin(&self) -> Result<Version, CallError> {
        match self.version {
            Some(version) if self.is_client => {
                if self.is_going_away() {
                    Err(CallError::GoingAway)
                } else {
                    Ok(version)
                }
            }
            _ => Err(CallError::NotAClient),
        }
    }

    /// The length of the block that goes on the wire, once it is known to fit.
    #[inline]
    pub(super) fn check_options(&self, options: &Options<'_>) -> Result<usize, Unsendable> {
        if options.is_empty() { Ok(0) } else { self.check_block(options) }
    }

    fn check_block(&self, options: &Options<'_>) -> Result<usize, Unsendable> {
        if !self.dialect().has_extensions() {
            return if options.is_local() { Ok(0) } else { Err(Unsendable::NotInVersion1) };
        }
        if let Some(name) = options.invalid_name() {
            return Err(Unsendable::MetadataName(name.to_owned()));
        }
        let (len, limit) = (options.block_len(), self.peer.max_extension.min(u32::from(u16::MAX)));
        if len > limit as usize {
            return Err(Unsendable::ExtensionTooLong { len, limit });
        }
        Ok(len)
    }

    #[inline]
    pub(super) fn check_body(&self, len: usize) -> Result<(), Unsendable> {
        let limit = self.settings.max_body.min(self.peer.max_body);
        if len > limit as usize { Err(Unsendable::BodyTooLong { len, limit }) } else { Ok(()) }
    }

    /// A slot for a new call under the next id that is not in use.
    #[inline]
    fn insert_next(&mut self, kind: Kind) -> u32 {
        while self.calls.find(self.next_id, kind.is_stream()).is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let call = Call::new(self.next_id, kind);
        self.next_id = self.next_id.wrapping_add(1);
        let index = self.calls.insert(call);
        self.fill_credit(index);
        index
    }

    #[inline]
    pub(super) fn fill_credit(&mut self, index: u32) {
        let (sent, received) = (i64::from(self.peer.window), i64::from(self.settings.window));
        let call = self.calls.at(index);
        call.send_credit = sent;
        call.receive_credit = received;
    }

    fn keep_path(&mut self, index: u32, path: &MethodPath) {
        let index = index as usize;
        if self.repeated.len() <= index {
            self.repeated.resize(index + 1, None);
        }
        self.repeated[index] = Some(path.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{Connection, Settings};

    #[test]
    fn an_id_in_use_is_stepped_over_when_the_sequence_comes_round() {
        for version in [Version::V1, Version::V2] {
            let mut client = Connection::client(version, Settings::default());
            let path = MethodPath::new("S", "e").unwrap();
            let begin = |client: &mut Connection| {
                let key = client.unary(&path, b"", &mut Vec::new()).unwrap();
                client.calls.at(key.index() as u32).id
            };
            assert_eq!([begin(&mut client), begin(&mut client)], [0, 1]);
            client.next_id = u32::MAX;
            assert_eq!([begin(&mut client), begin(&mut client)], [u32::MAX, 2]);
        }
    }
}
