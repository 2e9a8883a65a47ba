//! Takes frames off the input and hands them to those who know them.

use std::time::Duration;

use super::{Connection, Event};
use crate::rpc::code::Code;
use crate::rpc::error::ConnectionError;
use crate::rpc::header::{FrameType, HEADER_LEN, Header};
use crate::rpc::output::Output;

/// Frames in a row that are dealt with here before whoever calls has its turn.
const HANDLED_MAX: usize = 32;

impl<T> Connection<T> {
    /// Reads frames from the front of `input` up to the next event, and steps over them.
    ///
    /// `None` means that what is left of `input` is no whole frame: keep it, and call again when there are at least
    /// [`needed`](Self::needed) bytes of it. Payloads and names in the event lie in `input`. `now` is the time on any
    /// clock that does not go back. Answers that the protocol itself gives (SETTINGS, pongs, refusals, credits,
    /// cancels) are appended to `out`.
    ///
    /// # Errors
    /// The peer broke the protocol or a limit; the connection must be closed, and `receive` not called again.
    #[inline]
    pub fn receive<'a, O: Output + ?Sized>(
        &mut self,
        input: &mut &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        for _ in 0..HANDLED_MAX {
            let Some(header) = Header::parse(input)? else {
                self.needed = HEADER_LEN;
                return Ok(None);
            };
            self.check_header(&header, out)?;
            let total = HEADER_LEN + header.body_len as usize;
            let Some((frame, rest)) = input.split_at_checked(total) else {
                self.needed = total;
                return Ok(None);
            };
            *input = rest;
            let outcome = self.on_frame(&header, &frame[HEADER_LEN..], now, out);
            if !matches!(outcome, Ok(None)) {
                return outcome;
            }
        }
        Ok(Some(Event::Handled))
    }

    /// Length of the frame that the last [`receive`](Self::receive) stopped at, in bytes, as far as it is known: at
    /// least 16, at most the body limit and 16.
    pub const fn needed(&self) -> usize {
        self.needed
    }

    #[inline]
    fn check_header<O: Output + ?Sized>(
        &mut self,
        header: &Header,
        out: &mut O,
    ) -> Result<(), ConnectionError> {
        if self.version != Some(header.version) {
            match self.version {
                None => self.set_version(header.version),
                Some(spoken) => {
                    return Err(ConnectionError::VersionChanged { spoken, found: header.version });
                }
            }
            self.start(out);
            if self.is_going_away {
                // It was decided before there was anybody to tell.
                self.go_away(Code::OK, "", out);
            }
            if header.version.has_control() && !self.is_version_served() {
                return Err(ConnectionError::VersionRefused { version: header.version });
            }
        }
        if !self.settings_received && header.kind != FrameType::Settings {
            return Err(ConnectionError::SettingsMissing { found: header.kind });
        }
        let limit = self.settings.max_body;
        if header.body_len > limit {
            return Err(ConnectionError::BodyTooLong { len: header.body_len, limit });
        }
        Ok(())
    }

    #[inline(always)]
    fn on_frame<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        match header.kind {
            FrameType::Request if !self.is_client => self.on_request(header, body, now, out),
            FrameType::Response if self.is_client => self.on_response(header, body, now, out),
            FrameType::StreamData => self.on_stream_data(header, body, now, out),
            FrameType::StreamEnd => self.on_stream_end(header, now),
            FrameType::StreamInit if !self.is_client => self.on_stream_init(header, body, out),
            FrameType::StreamInitAck if self.is_client => self.on_stream_init_ack(header, now),
            FrameType::Cancel => self.on_cancel(header, body, now, out),
            kind if header.version.ignores(kind) => self.stray(header, now).map(|()| None),
            FrameType::Error if self.is_client => self.on_error(header, body, now, out),
            FrameType::Ping => self.on_ping(header, body, now, out),
            FrameType::Credit => self.on_credit(header, body, now),
            FrameType::Settings => self.on_settings(body),
            FrameType::GoAway => self.on_go_away(header, body, now),
            _ => Err(unexpected(header)),
        }
    }
}

#[cold]
pub(super) fn unexpected(header: &Header) -> ConnectionError {
    ConnectionError::Unexpected { kind: header.kind, id: header.id }
}
