//! Frames of the connection, and CREDIT (version 2).

use std::time::Duration;

use super::call::Own;
use super::{Connection, Event, emit};
use crate::rpc::block::BodyError;
use crate::rpc::body::{GoAwayBody, SettingsBody, parse_credit, parse_ping};
use crate::rpc::error::ConnectionError;
use crate::rpc::header::{Flags, FrameType, Header};
use crate::rpc::output::Output;
use crate::rpc::settings::PeerSettings;

type Outcome<'a> = Result<Option<Event<'a>>, ConnectionError>;

/// The most credit that a half may hold, in bytes.
const CREDIT_MAX: i64 = i32::MAX as i64;

impl<T> Connection<T> {
    pub(super) fn on_settings<'a>(&mut self, body: &'a [u8]) -> Outcome<'a> {
        if self.settings_received {
            return Err(ConnectionError::SettingsTwice);
        }
        let body = SettingsBody::parse(body).map_err(|error| broken(FrameType::Settings, error))?;
        let before = i64::from(self.peer.window);
        self.settings_received = true;
        self.peer = PeerSettings::read(body);
        let growth = i64::from(self.peer.window) - before;
        for index in 0..self.calls.slots() {
            if let Some(call) = self.calls.get(index) {
                call.send_credit += growth;
            }
        }
        self.cursor = 0;
        Ok(Some(Event::Settings(self.peer)))
    }

    pub(super) fn on_credit<'a>(&mut self, header: &Header, body: &[u8], now: Duration) -> Outcome<'a> {
        let amount = parse_credit(body).map_err(|error| broken(FrameType::Credit, error))?;
        // A peer grants at most once for each message: more than that is as good as for nobody.
        self.stray(header, now)?;
        let Some(index) = self.calls.find(header.id, false) else { return Ok(None) };
        let call = self.calls.at(index);
        call.send_credit += i64::from(amount);
        if call.send_credit > CREDIT_MAX {
            return Err(ConnectionError::CreditOverflow { id: header.id, credit: call.send_credit });
        }
        if call.own != Own::Blocked || call.send_credit <= 0 {
            return Ok(None);
        }
        call.own = Own::Open;
        Ok(Some(Event::Writable { call: self.calls.key(index) }))
    }

    pub(super) fn on_ping<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &[u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let data = parse_ping(body).map_err(|error| broken(FrameType::Ping, error))?;
        if header.flags.has(Flags::ACK) {
            if self.pings_unanswered == 0 {
                return self.stray(header, now).map(|()| None);
            }
            self.pings_unanswered -= 1;
            return Ok(Some(Event::Pong(data)));
        }
        if !self.pings.take(now) {
            let rate = self.settings.pings;
            return Err(ConnectionError::PingFlood { burst: rate.burst, per_second: rate.per_second });
        }
        emit::ping(true, data, out);
        Ok(None)
    }

    pub(super) fn on_go_away<'a>(&mut self, header: &Header, body: &'a [u8], now: Duration) -> Outcome<'a> {
        let body = GoAwayBody::parse(header.flags, body).map_err(|error| broken(FrameType::GoAway, error))?;
        if self.is_peer_going_away {
            self.stray(header, now)?;
        }
        self.is_peer_going_away = true;
        if self.is_client {
            self.refused_after = Some(body.last_accepted);
            self.cursor = 0;
        }
        Ok(Some(Event::GoingAway(body)))
    }
}

fn broken(kind: FrameType, error: BodyError) -> ConnectionError {
    ConnectionError::Body { kind, error }
}
