//! What stands for TLS where the feature `tls` is off: nothing of it can be made, so nothing of it is ever called.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::{Driver, Token};

use crate::memory::Charge;
use crate::secured::{TlsError, TlsInfo};
use crate::timer_wheel::TimerKey;
use crate::worker::Core;

/// How a server speaks TLS: there is none, as the feature `tls` is off.
#[derive(Debug, Clone)]
pub struct ServerTls(Never);

/// How a client speaks TLS: there is none, as the feature `tls` is off.
#[derive(Debug, Clone)]
pub struct ClientTls(Never);

/// The name of a server.
#[derive(Debug, Clone)]
pub struct ServerName(Never);

/// Within the types above, so that code which is written for both cases need not know that it is never reached.
#[derive(Debug, Clone)]
enum Never {}

impl ServerTls {
    /// There is no such configuration.
    pub const fn never<R>(&self) -> R {
        match self.0 {}
    }
}

impl ClientTls {
    /// There is no such configuration.
    pub const fn never<R>(&self) -> R {
        match self.0 {}
    }
}

pub(crate) enum TlsSocket {}

pub(crate) enum Lost {
    Closed,
    Failed(io::Error),
}

#[allow(dead_code)] // made where the feature is on
pub(crate) enum Arrived {
    Data(Bytes),
    End,
    Nothing,
}

#[allow(dead_code)] // as above
pub(crate) enum Shaken {
    Waits,
    Established(Option<Lost>),
    Lost(Lost),
}

pub(crate) enum Step {}

pub(crate) enum Progress {}

pub(crate) struct Scratch;

impl Scratch {
    pub(crate) const fn new() -> Self {
        Self
    }
}

impl Step {
    pub(crate) fn take(&mut self) -> Result<Progress, TlsError> {
        match *self {}
    }
}

macro_rules! never {
    ($(fn $name:ident(&$($mutable:ident)? $(; $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        impl TlsSocket {
            pub(crate) fn server(_: Token, tls: &ServerTls) -> Result<Self, TlsError> {
                tls.never()
            }

            pub(crate) fn client(_: Token, tls: &ClientTls, _: ServerName) -> Result<Self, TlsError> {
                tls.never()
            }

            $(pub(crate) fn $name(&$($mutable)? self $(, $argument: $kind)*) $(-> $result)? {
                $(let _ = $argument;)*
                match *self {}
            })*
        }
    };
}

never! {
    fn token(&) -> Token;
    fn is_handshaking(&) -> bool;
    fn info(&) -> Option<Rc<TlsInfo>>;
    fn owes_close_notify(&) -> bool;
    fn partial_since(&) -> Option<u64>;
    fn unsent(&) -> usize;
    fn settle(&mut; charge: impl FnOnce(usize) -> Charge);
    fn set_timer(&mut; set: impl FnOnce(Duration) -> TimerKey);
    fn take_timer(&mut) -> Option<TimerKey>;
    fn timed_out(&) -> Option<Duration>;
    fn take_rest(&mut) -> Bytes;
    fn push(&mut; bytes: &[u8]);
    fn note_lost(&mut; how: Lost);
    fn enlist(&mut) -> bool;
    fn begin_step(&mut) -> Option<Step>;
    fn end_step(&mut; step: Step; progress: Result<Progress, TlsError>) -> Result<Shaken, TlsError>;
    fn open(&mut; scratch: &Scratch; data: &mut Bytes; now: u64) -> Result<Arrived, TlsError>;
    fn read_closed(&mut);
    fn take_read_failure(&mut) -> Option<TlsError>;
    fn write(&mut; core: &Core; driver: &mut Driver; slices: &[IoSlice<'_>]) -> io::Result<usize>;
    fn flush(&mut; core: &Core; driver: &mut Driver) -> io::Result<bool>;
    fn finish(&mut; core: &Core; driver: &mut Driver; shuts: bool) -> bool;
    fn fail(&mut; core: &Core; driver: &mut Driver; error: &TlsError);
}
