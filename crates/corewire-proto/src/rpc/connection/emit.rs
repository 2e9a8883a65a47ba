//! Writers of the frames that the state machine sends.

use super::event::Failure;
use crate::rpc::code::Code;
use crate::rpc::extensions::Options;
use crate::rpc::header::{Flags, FrameType, HEADER_LEN, Header, Mode, Version};
use crate::rpc::output::{Output, Payload};
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

/// A request with names (the first, or any of version 1) or without.
#[inline]
pub(super) fn request<P: Payload, O: Output + ?Sized>(
    version: Version,
    id: u32,
    flags: Flags,
    options: &Options<'_>,
    names: &[u8],
    payload: P,
    out: &mut O,
) {
    let (flags, block_len) = with_block(flags, version, options);
    let body_len = block_len + names.len() + payload.size();
    head(version, FrameType::Request, flags, id, body_len, out);
    if block_len > 0 {
        options.emit(out);
    }
    out.write(names);
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
    let body_len = block_len + 2 + payload.size();
    let header = Header { version, kind: FrameType::Response, flags, id, body_len: body_len as u32 };
    if block_len > 0 {
        out.write(&header.emit());
        options.emit(out);
        out.write(&[0, 0]);
    } else {
        // The code is 0, which is OK: header and code go as one piece.
        let mut front = [0; HEADER_LEN + 2];
        front[..HEADER_LEN].copy_from_slice(&header.emit());
        out.write(&front);
    }
    payload.write_to(out);
}

/// A response that fails the call, without detail.
pub(super) fn refusal<O: Output + ?Sized>(version: Version, id: u32, mode: Mode, code: Code, out: &mut O) {
    failed_response(version, id, mode, code, &[], out);
}

/// The frame that fails a call: a RESPONSE where that can say it all, else an ERROR.
pub(super) fn failure<O: Output + ?Sized>(
    version: Version,
    id: u32,
    mode: Mode,
    failure: &Failure<'_>,
    options: &Options<'_>,
    out: &mut O,
) {
    let code = if failure.code.is_ok() { Code::UNKNOWN } else { failure.code };
    let message = failure.message.as_bytes();
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
    if options.is_empty() || version == Version::V1 {
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
