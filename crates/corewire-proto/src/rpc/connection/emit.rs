//! What the state machine says, as each version writes it.

use super::call::Call;
use super::event::Failure;
use super::methods::Tag;
use crate::rpc::code::Code;
use crate::rpc::extensions::Options;
use crate::rpc::header::{Flags, FrameType, HEADER_LEN, Header, Mode, Version};
use crate::rpc::output::{Output, Payload};
use crate::rpc::path::MethodPath;
use crate::rpc::settings::Settings;

/// A frame whose body follows, or has none.
#[inline]
pub(super) fn head<O: Output + ?Sized>(
    version: Version,
    kind: FrameType,
    flags: Flags,
    id: u32,
    body_len: usize,
    out: &mut O,
) {
    out.write(&Header { version, kind, flags, id, body_len: body_len as u32 }.emit());
}

/// A header and two bytes behind it.
#[inline]
fn head_and(header: Header, behind: u16) -> [u8; HEADER_LEN + 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = header.emit();
    let [q, r] = behind.to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r]
}

/// Which method a call is for: as version 1 says it each time, or as version 2 does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method<'a> {
    path: &'a MethodPath,
    /// Version 2.
    tag: Option<Tag>,
}

impl<'a> Method<'a> {
    #[inline]
    pub(super) const fn new(path: &'a MethodPath, tag: Option<Tag>) -> Self {
        Self { path, tag }
    }

    /// Bytes that it takes in a body.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self.tag {
            None => self.path.wire().len(),
            Some(Tag::Known(_)) => 2,
            Some(Tag::Named(_)) => 2 + self.path.wire().len(),
        }
    }

    /// Writes the header of a call's first frame, and the method behind it.
    #[inline]
    fn emit_with<O: Output + ?Sized>(&self, mut header: Header, out: &mut O) {
        match self.tag {
            None => {
                out.write(&header.emit());
                out.write(self.path.wire());
            }
            Some(Tag::Known(number)) => out.write(&head_and(header, number)),
            Some(Tag::Named(number)) => {
                header.flags = header.flags.with(Flags::NAMES);
                out.write(&head_and(header, number));
                out.write(self.path.wire());
            }
        }
    }
}

/// A message of a stream.
#[inline]
pub(super) fn stream_data<P: Payload, O: Output + ?Sized>(
    version: Version,
    id: u32,
    payload: P,
    out: &mut O,
) {
    let body_len = payload.size() as u32;
    let flags = Flags::default();
    payload.write_behind(&Header { version, kind: FrameType::StreamData, flags, id, body_len }.emit(), out);
}

/// The first request of a call.
#[inline]
pub(super) fn begin<P: Payload, O: Output + ?Sized>(
    version: Version,
    id: u32,
    flags: Flags,
    method: Method<'_>,
    options: &Options<'_>,
    payload: P,
    out: &mut O,
) {
    let (flags, block_len) = with_block(flags, version, options);
    let body_len = (method.len() + block_len + payload.size()) as u32;
    let header = Header { version, kind: FrameType::Request, flags, id, body_len };
    if let (Some(Tag::Known(number)), 0) = (method.tag, block_len) {
        // What most calls are: in one piece.
        return payload.write_behind(&head_and(header, number), out);
    }
    method.emit_with(header, out);
    if block_len > 0 {
        options.emit(out);
    }
    payload.write_to(out);
}

/// The beginning of a stream.
pub(super) fn open_stream<O: Output + ?Sized>(
    version: Version,
    id: u32,
    method: Method<'_>,
    options: &Options<'_>,
    out: &mut O,
) {
    let (flags, block_len) = with_block(Flags::default(), version, options);
    let body_len = (method.len() + block_len) as u32;
    method.emit_with(Header { version, kind: FrameType::StreamInit, flags, id, body_len }, out);
    if block_len > 0 {
        options.emit(out);
    }
}

/// A request after the first: `path` is what version 1 repeats.
#[inline]
pub(super) fn more<P: Payload, O: Output + ?Sized>(
    version: Version,
    id: u32,
    flags: Flags,
    path: Option<&MethodPath>,
    options: &Options<'_>,
    payload: P,
    out: &mut O,
) {
    let names = path.map_or(&[][..], MethodPath::wire);
    let (flags, block_len) = with_block(flags, version, options);
    let flags = if version.marks_continuation() { flags.with(Flags::CONT) } else { flags };
    head(version, FrameType::Request, flags, id, names.len() + block_len + payload.size(), out);
    out.write(names);
    if block_len > 0 {
        options.emit(out);
    }
    payload.write_to(out);
}

/// A successful response.
#[inline]
pub(super) fn response<P: Payload, O: Output + ?Sized>(
    version: Version,
    id: u32,
    flags: Flags,
    options: &Options<'_>,
    payload: P,
    out: &mut O,
) {
    let (flags, block_len) = with_block(flags, version, options);
    let body_len = (block_len + 2 + payload.size()) as u32;
    let header = Header { version, kind: FrameType::Response, flags, id, body_len };
    if block_len > 0 {
        out.write(&header.emit());
        options.emit(out);
        out.write(&[0, 0]);
        payload.write_to(out);
    } else {
        // The code is 0, which is OK.
        payload.write_behind(&head_and(header, 0), out);
    }
}

/// The response of a unary call, without metadata: what most are.
#[inline]
pub(super) fn answer<P: Payload, O: Output + ?Sized>(version: Version, id: u32, payload: P, out: &mut O) {
    const FLAGS: Flags = Mode::Unary.flags().with(Flags::END);
    let body_len = 2 + payload.size() as u32;
    let header = Header { version, kind: FrameType::Response, flags: FLAGS, id, body_len };
    payload.write_behind(&head_and(header, 0), out);
}

/// A response that fails the call, without detail.
pub(super) fn refusal<O: Output + ?Sized>(version: Version, id: u32, mode: Mode, code: Code, out: &mut O) {
    failed_response(version, id, mode, code, &[], out);
}

/// The frame that fails a call: a RESPONSE where that can say it all, else an ERROR. Version 1 has none for a stream but
/// CANCEL.
pub(super) fn failure<O: Output + ?Sized>(
    version: Version,
    call: &Call,
    failure: &Failure<'_>,
    options: &Options<'_>,
    out: &mut O,
) {
    let (id, mode) = (call.id, call.kind.mode());
    let code = if failure.code.is_ok() { Code::UNKNOWN } else { failure.code };
    let message = failure.message.as_bytes();
    if version == Version::V1 && call.kind.is_stream() {
        return cancel(version, id, code, "", out);
    }
    if version == Version::V1 {
        let is_silent = matches!(code, Code::SERVICE_NOT_FOUND | Code::METHOD_NOT_FOUND);
        return failed_response(version, id, mode, code, if is_silent { &[] } else { message }, out);
    }
    let (flags, block_len) = with_block(Flags::default(), version, options);
    if message.is_empty() && failure.details.is_empty() && block_len == 0 {
        return failed_response(version, id, mode, code, &[], out);
    }
    let body_len = block_len + 4 + message.len() + failure.details.len();
    head(version, FrameType::Error, flags, id, body_len, out);
    if block_len > 0 {
        options.emit(out);
    }
    out.write(&code.0.to_be_bytes());
    out.write(&(message.len() as u16).to_be_bytes());
    out.write(message);
    out.write(failure.details);
}

/// Length of the body that [`failure`] writes in version 2 with all it has.
pub(super) fn failure_len(failure: &Failure<'_>, options: &Options<'_>) -> usize {
    options.block_len() + 4 + failure.message.len() + failure.details.len()
}

/// The server stops a call. Version 1 has a CANCEL for streams only.
pub(super) fn stop<O: Output + ?Sized>(version: Version, call: &Call, code: Code, reason: &str, out: &mut O) {
    if version.cancels_calls() || call.kind.is_stream() {
        return cancel(version, call.id, code, reason, out);
    }
    let code = if code.is_ok() { Code::CANCELLED } else { code };
    failure(version, call, &code.into(), &Options::default(), out);
}

pub(super) fn cancel<O: Output + ?Sized>(version: Version, id: u32, code: Code, reason: &str, out: &mut O) {
    if version == Version::V1 || (code.is_ok() && reason.is_empty()) {
        return head(version, FrameType::Cancel, Flags::default(), id, 0, out);
    }
    head(version, FrameType::Cancel, Flags::default(), id, 2 + reason.len(), out);
    out.write(&code.0.to_be_bytes());
    out.write(reason.as_bytes());
}

pub(super) fn credit<O: Output + ?Sized>(id: u32, amount: u32, out: &mut O) {
    head(Version::V2, FrameType::Credit, Flags::default(), id, 4, out);
    out.write(&amount.to_be_bytes());
}

pub(super) fn ping<O: Output + ?Sized>(ack: bool, data: [u8; 8], out: &mut O) {
    let flags = if ack { Flags::ACK } else { Flags::default() };
    head(Version::V2, FrameType::Ping, flags, 0, data.len(), out);
    out.write(&data);
}

pub(super) fn settings<O: Output + ?Sized>(settings: &Settings, out: &mut O) {
    let body = settings.to_body();
    let body = body.as_flattened();
    head(Version::V2, FrameType::Settings, Flags::default(), 0, body.len(), out);
    out.write(body);
}

pub(super) fn go_away<O: Output + ?Sized>(last: Option<u32>, code: Code, reason: &str, out: &mut O) {
    let flags = last.map_or(Flags::NONE_ACCEPTED, |_| Flags::default());
    head(Version::V2, FrameType::GoAway, flags, 0, 6 + reason.len(), out);
    out.write(&last.unwrap_or(0).to_be_bytes());
    out.write(&code.0.to_be_bytes());
    out.write(reason.as_bytes());
}

/// The flags with EXT if there is something for the block, and the block's length.
#[inline]
fn with_block(flags: Flags, version: Version, options: &Options<'_>) -> (Flags, usize) {
    if options.is_empty() || !version.has_extensions() {
        (flags, 0)
    } else {
        (flags.with(Flags::EXT), options.block_len())
    }
}

fn failed_response<O: Output + ?Sized>(
    version: Version,
    id: u32,
    mode: Mode,
    code: Code,
    payload: &[u8],
    out: &mut O,
) {
    head(version, FrameType::Response, mode.flags().with(Flags::END), id, 2 + payload.len(), out);
    out.write(&code.on_wire(version).0.to_be_bytes());
    out.write(payload);
}
