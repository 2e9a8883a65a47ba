//! Systems without io_uring: the type is there, and nobody can make one.

use std::io::{self, IoSlice};
use std::time::Duration;

use crate::config::DriverConfig;
use crate::counters::DriverCounters;
use crate::error::UringUnavailable;
use crate::event::{Event, Interest, Token};
use crate::parking::Parking;
use crate::role::Role;
use crate::socket::Socket;
use crate::wake::Waker;

pub(crate) const fn probe() -> Result<(), UringUnavailable> {
    Err(UringUnavailable::NotLinux)
}

#[derive(Debug)]
pub(crate) enum Uring {}

impl Uring {
    pub(crate) fn new(_: &DriverConfig) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn waker(&self) -> Waker {
        match *self {}
    }

    pub(crate) fn counters(&self) -> DriverCounters {
        match *self {}
    }

    pub(crate) fn sockets(&self) -> usize {
        match *self {}
    }

    pub(crate) fn socket(&self, _: Token) -> Option<&Socket> {
        match *self {}
    }

    pub(crate) fn has_pending(&self) -> bool {
        match *self {}
    }

    pub(crate) fn add(&mut self, _: Socket, _: Role) -> io::Result<Token> {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: Token) -> Option<Socket> {
        match *self {}
    }

    pub(crate) fn read_again(&mut self, _: Token) {
        match *self {}
    }

    pub(crate) fn set_write_interest(&mut self, _: Token) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn watch(&mut self, _: Token, _: Interest) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn set_receive_max(&mut self, _: Token, _: usize) {
        match *self {}
    }

    pub(crate) fn pause_receive(&mut self, _: Token) {
        match *self {}
    }

    pub(crate) fn resume_receive(&mut self, _: Token) {
        match *self {}
    }

    pub(crate) fn resume_accept(&mut self, _: Token) {
        match *self {}
    }

    pub(crate) fn send(&mut self, _: Token, _: &[IoSlice<'_>], _: usize) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn turn(&mut self, _: Option<Duration>, _: &impl Parking) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        match *self {}
    }
}
