//! When a driver says that its thread sleeps.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::Cell;
use std::io::Write;
use std::time::Duration;

use common::{PATIENCE, listening, on_each_backend, pair, with_settings};
use corewire_driver::{Driver, Event, Parking, available_cpus};

/// Mail comes at the given look; says how often the driver looked and parked.
#[derive(Default)]
struct Script {
    mail_at_look: Option<u32>,
    mail_at_park: bool,
    looks: Cell<u32>,
    parks: Cell<u32>,
}

impl Parking for Script {
    fn has_mail(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.mail_at_look.is_some_and(|at| self.looks.get() >= at)
    }

    fn prepare_park(&self) -> bool {
        self.parks.set(self.parks.get() + 1);
        !self.mail_at_park
    }
}

/// Nothing of its own to tell any more.
fn at_rest(driver: &mut Driver) {
    for _ in 0..3 {
        driver.turn(Some(Duration::ZERO)).unwrap();
        while driver.next_event().is_some() {}
    }
}

#[test]
fn mail_that_comes_while_it_looks_ends_the_turn_without_a_park() {
    with_settings(
        |config| config.spin = PATIENCE,
        |driver| {
            if available_cpus().len() < 2 {
                return; // nobody looks on a machine with a single processor
            }
            at_rest(driver);
            let script = Script { mail_at_look: Some(100), ..Script::default() };
            driver.turn_or_park(None, &script).unwrap();
            assert_eq!((script.looks.get(), script.parks.get()), (100, 0));
            assert!(driver.next_event().is_none());
        },
    );
}

#[test]
fn mail_that_is_there_before_the_sleep_prevents_it() {
    with_settings(
        |config| config.spin = Duration::ZERO,
        |driver| {
            at_rest(driver);
            let script = Script { mail_at_park: true, ..Script::default() };
            driver.turn_or_park(None, &script).unwrap();
            assert_eq!(script.parks.get(), 1);
        },
    );
}

#[test]
fn it_parks_once_and_only_to_sleep() {
    with_settings(
        |config| config.spin = Duration::from_micros(20),
        |driver| {
            let script = Script::default();
            let (_, _address) = listening(driver);
            let (_token, mut peer) = pair(driver);
            at_rest(driver);
            driver.turn_or_park(Some(Duration::ZERO), &script).unwrap();
            assert_eq!(script.parks.get(), 0, "it was told only to look");
            driver.turn_or_park(Some(Duration::from_millis(1)), &script).unwrap();
            assert_eq!(script.parks.get(), 1);
            peer.write_all(b"x").unwrap();
            let script = Script::default();
            let mut came = false;
            while !came {
                driver.turn_or_park(Some(PATIENCE), &script).unwrap();
                came = std::iter::from_fn(|| driver.next_event())
                    .any(|event| matches!(event, Event::Received { .. }));
            }
        },
    );
}

#[test]
fn wakes_are_counted() {
    on_each_backend(|driver| {
        assert_eq!(driver.counters().wakes, 0);
        for round in 1..=3 {
            driver.waker().wake().unwrap();
            driver.turn(Some(PATIENCE)).unwrap();
            while driver.next_event().is_some() {}
            assert_eq!(driver.counters().wakes, round);
        }
    });
}
