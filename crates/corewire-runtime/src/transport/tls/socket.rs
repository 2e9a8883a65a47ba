//! One connection over TLS, as its life cycle sees it.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use corewire_driver::{Driver, Token};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;

use super::channel::{Channel, Opened, RECORD_MAX};
use super::config::{ClientTls, HANDSHAKE_TIMEOUT, ServerTls};
use super::errors::local;
use super::handshake::{Handshake, Progress};
use super::record::{OVERHEAD_MAX, record_len};
use super::scratch::Scratch;
use crate::memory::Charge;
use crate::secured::{TlsError, TlsInfo};
use crate::timer_wheel::TimerKey;
use crate::worker::Core;

/// What a handshake occupies while it is under way, about, in bytes; measured.
const HANDSHAKE_BYTES: usize = 16 * 1024;
/// Memory of a connection up to this size is not charged.
const UNCHARGED_MAX: usize = 4 * 1024;

/// A socket whose bytes are encrypted.
pub(crate) struct TlsSocket {
    token: Token,
    stage: Stage,
    /// The beginning of a record; during the handshake all that it has not taken.
    incoming: Vec<u8>,
    /// Sealed, and not taken by the socket.
    outgoing: Vec<u8>,
    sent: usize,
    read: ReadEnd,
    write: WriteEnd,
    /// When the record that `incoming` begins has begun, in the worker's milliseconds.
    partial_since: Option<u64>,
    info: Option<Rc<TlsInfo>>,
    charge: Option<Charge>,
}

enum Stage {
    Handshaking {
        /// Absent while it is at work.
        handshake: Option<Box<Handshake>>,
        /// In the worker's list of those that have something to do.
        listed: bool,
        timeout: Duration,
        timer: Option<TimerKey>,
        /// The socket has nothing more to tell, once what has come is looked at.
        lost: Option<Lost>,
    },
    Established(Box<Channel>),
    Failed,
}

/// How the socket has ended during the handshake.
#[derive(Debug)]
pub(crate) enum Lost {
    Closed,
    Failed(io::Error),
}

/// The end of what the peer sends.
enum ReadEnd {
    Open,
    /// Told once what came before is.
    Failed(TlsError),
    /// By a close_notify.
    Closed,
    Told,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteEnd {
    Open,
    /// A close_notify was sealed.
    Notified,
    /// As that, and the socket is shut down behind it.
    Finishing,
}

/// What has arrived.
pub(crate) enum Arrived {
    Data(Bytes),
    /// The peer has finished in good order.
    End,
    Nothing,
}

/// A step of a handshake, which is taken while the connection is left alone.
pub(crate) struct Step {
    handshake: Box<Handshake>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

/// What a step has come to.
pub(crate) enum Shaken {
    Waits,
    /// The socket may have ended behind that.
    Established(Option<Lost>),
    Lost(Lost),
}

impl TlsSocket {
    pub(crate) fn server(token: Token, tls: &ServerTls) -> Result<Self, TlsError> {
        let connection = UnbufferedServerConnection::new(tls.current()).map_err(|error| local(&error))?;
        Ok(Self::new(token, Handshake::server(connection), tls.handshake_timeout()))
    }

    pub(crate) fn client(token: Token, tls: &ClientTls, name: ServerName<'static>) -> Result<Self, TlsError> {
        let connection =
            UnbufferedClientConnection::new(tls.config(), name).map_err(|error| local(&error))?;
        Ok(Self::new(token, Handshake::client(connection), HANDSHAKE_TIMEOUT))
    }

    fn new(token: Token, handshake: Handshake, timeout: Duration) -> Self {
        let handshake = Some(Box::new(handshake));
        Self {
            token,
            stage: Stage::Handshaking { handshake, listed: false, timeout, timer: None, lost: None },
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            read: ReadEnd::Open,
            write: WriteEnd::Open,
            partial_since: None,
            info: None,
            charge: None,
        }
    }

    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    pub(crate) const fn is_handshaking(&self) -> bool {
        matches!(self.stage, Stage::Handshaking { .. })
    }

    pub(crate) fn info(&self) -> Option<Rc<TlsInfo>> {
        self.info.clone()
    }

    /// A close of this side in good order tells the peer.
    pub(crate) fn owes_close_notify(&self) -> bool {
        matches!(self.stage, Stage::Established(_)) && self.write == WriteEnd::Open
    }

    pub(crate) const fn partial_since(&self) -> Option<u64> {
        self.partial_since
    }

    /// Bytes that the socket has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Keeps account of the memory that it holds.
    pub(crate) fn settle(&mut self, charge: impl FnOnce(usize) -> Charge) {
        let of_stage = match &self.stage {
            Stage::Handshaking { .. } => HANDSHAKE_BYTES,
            Stage::Established(channel) => channel.held(),
            Stage::Failed => 0,
        };
        let held = of_stage + self.incoming.capacity() + self.outgoing.capacity();
        match &mut self.charge {
            Some(charge) if held > 0 => charge.set(held),
            Some(_) => self.charge = None,
            None if held > UNCHARGED_MAX => self.charge = Some(charge(held)),
            None => {}
        }
    }

    // The handshake.

    /// How long it may take, to be told of the timer that watches it.
    pub(crate) fn set_timer(&mut self, set: impl FnOnce(Duration) -> TimerKey) {
        if let Stage::Handshaking { timeout, timer, .. } = &mut self.stage {
            *timer = Some(set(*timeout));
        }
    }

    pub(crate) fn take_timer(&mut self) -> Option<TimerKey> {
        match &mut self.stage {
            Stage::Handshaking { timer, .. } => timer.take(),
            _ => None,
        }
    }

    /// The timer has fired: how long the handshake has had.
    pub(crate) fn timed_out(&self) -> Option<Duration> {
        match self.stage {
            Stage::Handshaking { timeout, .. } => Some(timeout),
            _ => None,
        }
    }

    /// Bytes for the handshake have come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// The socket has ended, which is told behind what has come.
    pub(crate) fn note_lost(&mut self, how: Lost) {
        if let Stage::Handshaking { lost, .. } = &mut self.stage {
            lost.get_or_insert(how);
        }
    }

    /// True if it was not in the list.
    pub(crate) fn enlist(&mut self) -> bool {
        match &mut self.stage {
            Stage::Handshaking { listed, .. } => !std::mem::replace(listed, true),
            _ => false,
        }
    }

    pub(crate) fn begin_step(&mut self) -> Option<Step> {
        let Stage::Handshaking { handshake, listed, .. } = &mut self.stage else { return None };
        *listed = false;
        Some(Step {
            handshake: handshake.take()?,
            incoming: std::mem::take(&mut self.incoming),
            outgoing: Vec::new(),
        })
    }

    /// Takes up what a step has come to. What it has to send is queued, also if it has failed.
    pub(crate) fn end_step(
        &mut self,
        step: Step,
        progress: Result<Progress, TlsError>,
    ) -> Result<Shaken, TlsError> {
        let Step { handshake: done, incoming, outgoing } = step;
        self.incoming = incoming;
        match self.outgoing.is_empty() {
            true => self.outgoing = outgoing,
            false => self.outgoing.extend_from_slice(&outgoing),
        }
        let Stage::Handshaking { handshake, lost, .. } = &mut self.stage else { return Ok(Shaken::Waits) };
        match progress {
            Ok(Progress::Done) => {
                let lost = lost.take();
                let agreed = done.finish()?;
                self.info = Some(Rc::new(agreed.info.clone()));
                self.stage = Stage::Established(Box::new(Channel::new(agreed)));
                Ok(Shaken::Established(lost))
            }
            Ok(Progress::Blocked) => {
                if let Some(lost) = lost.take() {
                    return Ok(Shaken::Lost(lost));
                }
                *handshake = Some(done);
                if self.incoming.is_empty() {
                    self.incoming = Vec::new();
                }
                Ok(Shaken::Waits)
            }
            Err(error) => {
                self.stage = Stage::Failed;
                Err(error)
            }
        }
    }

    // Receiving.

    /// What has come behind the handshake, in its last step.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.incoming).into()
    }

    /// Opens records of `data`, as many as one buffer takes, and takes them from its front. To be called until there is
    /// nothing more.
    pub(crate) fn open(
        &mut self,
        scratch: &Scratch,
        data: &mut Bytes,
        now: u64,
    ) -> Result<Arrived, TlsError> {
        let mut pool = scratch.opened.borrow_mut();
        let out = pool.room(RECORD_MAX + OVERHEAD_MAX + 256);
        if matches!(self.read, ReadEnd::Open)
            && let Err(error) = self.open_records(scratch, data, out, now)
        {
            self.read = ReadEnd::Failed(error);
        }
        if !out.is_empty() {
            return Ok(Arrived::Data(out.split().freeze()));
        }
        match std::mem::replace(&mut self.read, ReadEnd::Told) {
            ReadEnd::Open => {
                self.read = ReadEnd::Open;
                Ok(Arrived::Nothing)
            }
            ReadEnd::Failed(error) => Err(error),
            ReadEnd::Closed => Ok(Arrived::End),
            ReadEnd::Told => Ok(Arrived::Nothing),
        }
    }

    fn open_records(
        &mut self,
        scratch: &Scratch,
        data: &mut Bytes,
        out: &mut BytesMut,
        now: u64,
    ) -> Result<(), TlsError> {
        let Stage::Established(channel) = &mut self.stage else { return Ok(()) };
        loop {
            let mut opened = Opened::Data;
            if self.incoming.is_empty() {
                let mut at = 0;
                while opened == Opened::Data
                    && let Some(len) = record_len(&data[at..])?
                    && data.len() - at >= len
                    && out.capacity() - out.len() >= len
                {
                    opened = channel.open(&data[at..at + len], out, &mut self.outgoing)?;
                    at += len;
                }
                data.advance(at);
                if opened == Opened::Data && is_whole(data)? {
                    // For another buffer.
                    return Ok(());
                }
                if opened == Opened::Data {
                    if !data.is_empty() {
                        self.incoming = scratch.take();
                        self.incoming.extend_from_slice(data);
                        data.clear();
                        self.partial_since = Some(now);
                    }
                    return Ok(());
                }
            } else {
                if !complete(&mut self.incoming, data)? {
                    return Ok(());
                }
                if out.capacity() - out.len() < self.incoming.len() {
                    return Ok(());
                }
                opened = channel.open(&self.incoming, out, &mut self.outgoing)?;
                self.partial_since = None;
                scratch.put(std::mem::take(&mut self.incoming));
            }
            if opened == Opened::Closed {
                self.read = ReadEnd::Closed;
                // Whatever comes behind it is no concern of anybody.
                data.clear();
                return Ok(());
            }
        }
    }

    /// The socket says that nothing more comes: the end, unless it was told before.
    pub(crate) fn read_closed(&mut self) {
        if matches!(self.read, ReadEnd::Open) {
            self.read = ReadEnd::Failed(TlsError::Truncated);
        }
    }

    /// Why the stream has not ended as it should.
    pub(crate) fn take_read_failure(&mut self) -> Option<TlsError> {
        match std::mem::replace(&mut self.read, ReadEnd::Told) {
            ReadEnd::Failed(error) => Some(error),
            other => {
                self.read = other;
                None
            }
        }
    }

    // Sending.

    /// Seals as much as the socket takes, and says how many of the bytes were taken; what it does not take of that is
    /// [kept](Self::unsent).
    pub(crate) fn write(
        &mut self,
        core: &Core,
        driver: &mut Driver,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if !self.flush(core, driver)? {
            return Ok(0);
        }
        let Stage::Established(channel) = &mut self.stage else { return Ok(0) };
        let mut sealed = core.tls.sealed.borrow_mut();
        let (mut parts, mut taken) = (Parts { slices, at: 0 }, 0);
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        while taken < total {
            sealed.clear();
            sealed.reserve(Scratch::SEALED_BYTES);
            while taken < total
                && let Some(room) = Scratch::SEALED_BYTES.checked_sub(sealed.len() + OVERHEAD_MAX)
                && room > 0
            {
                let len = room.min(RECORD_MAX).min(total - taken);
                channel.seal(&mut sealed, |out| parts.move_to(out, len)).map_err(io::Error::other)?;
                taken += len;
            }
            let sent = core.write_to_socket(driver, self.token, &[IoSlice::new(&sealed)])?;
            if sent < sealed.len() {
                self.outgoing = core.tls.take();
                self.outgoing.extend_from_slice(&sealed[sent..]);
                break;
            }
        }
        Ok(taken)
    }

    /// Sends what the socket did not take before. True if nothing of it is left.
    pub(crate) fn flush(&mut self, core: &Core, driver: &mut Driver) -> io::Result<bool> {
        if self.outgoing.is_empty() {
            return Ok(true);
        }
        self.sent +=
            core.write_to_socket(driver, self.token, &[IoSlice::new(&self.outgoing[self.sent..])])?;
        if self.unsent() > 0 {
            return Ok(false);
        }
        self.sent = 0;
        core.tls.put(std::mem::take(&mut self.outgoing));
        if self.write == WriteEnd::Finishing
            && let Some(socket) = driver.socket(self.token)
        {
            // It fails only if the connection is gone, which the receiving side reports.
            let _ = socket.shutdown(Shutdown::Write);
        }
        Ok(true)
    }

    /// Tells the peer that nothing follows; `shuts` the socket down behind it. True if the socket has taken all.
    pub(crate) fn finish(&mut self, core: &Core, driver: &mut Driver, shuts: bool) -> bool {
        let Stage::Established(channel) = &mut self.stage else { return true };
        if self.write == WriteEnd::Open {
            self.write = if shuts { WriteEnd::Finishing } else { WriteEnd::Notified };
            if channel.append_close_notify(&mut self.outgoing).is_err() {
                return true;
            }
        }
        // If the connection is lost there is nobody to tell.
        self.flush(core, driver).unwrap_or(true)
    }

    /// Tells the peer why this side ends the connection, if that can be said at once.
    pub(crate) fn fail(&mut self, core: &Core, driver: &mut Driver, error: &TlsError) {
        if let Stage::Established(channel) = &mut self.stage
            && channel.append_failure(error, &mut self.outgoing).is_err()
        {
            return;
        }
        self.stage = Stage::Failed;
        // As in `finish`.
        let _ = self.flush(core, driver);
    }
}

impl Step {
    /// Takes it: this is where the time goes.
    pub(crate) fn take(&mut self) -> Result<Progress, TlsError> {
        self.handshake.step(&mut self.incoming, &mut self.outgoing)
    }
}

fn is_whole(data: &[u8]) -> Result<bool, TlsError> {
    Ok(record_len(data)?.is_some_and(|len| data.len() >= len))
}

/// Adds from `data` what the record that `record` begins lacks; whether it is whole.
fn complete(record: &mut Vec<u8>, data: &mut Bytes) -> Result<bool, TlsError> {
    loop {
        let wanted = match record_len(record)? {
            Some(len) if record.len() >= len => return Ok(true),
            Some(len) => len - record.len(),
            // As much as the header.
            None => super::record::HEADER_BYTES - record.len(),
        };
        if data.is_empty() {
            return Ok(false);
        }
        let more = wanted.min(data.len());
        record.extend_from_slice(&data[..more]);
        data.advance(more);
    }
}

/// The bytes of several slices, in order.
struct Parts<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first that are done with.
    at: usize,
}

impl Parts<'_> {
    fn move_to(&mut self, out: &mut Vec<u8>, mut len: usize) {
        while len > 0
            && let Some(first) = self.slices.first()
        {
            let part = &first[self.at..];
            let part = &part[..part.len().min(len)];
            out.extend_from_slice(part);
            len -= part.len();
            self.at += part.len();
            if self.at == first.len() {
                (self.slices, self.at) = (&self.slices[1..], 0);
            }
        }
    }
}
