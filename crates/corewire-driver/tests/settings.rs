//! Settings that cannot be met are refused with words that help.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::process::Command;

use corewire_driver::{Driver, DriverConfig, DriverError, DriverKind, probe};

/// Set in a child process: what the environment says there must fail as the test expects.
const IN_CHILD: &str = "COREWIRE_TEST_IN_CHILD";

fn config(change: impl Fn(&mut DriverConfig)) -> DriverConfig {
    let mut config = DriverConfig::default();
    change(&mut config);
    config
}

#[test]
fn a_setting_out_of_range_is_named_with_its_value_and_range() {
    let cases = [
        (
            config(|config| config.receive_block_size = 100),
            "receive_block_size is 100, but must be 64 KiB to 1 GiB",
        ),
        (
            config(|config| config.ring_buffers = 0),
            "ring_buffers is 0, but must be a power of two up to 32768",
        ),
        (
            config(|config| config.ring_buffers = 48),
            "ring_buffers is 48, but must be a power of two up to 32768",
        ),
        (
            config(|config| config.ring_buffer_size = 0),
            "ring_buffer_size is 0, but must be 16 bytes to 1 GiB",
        ),
        (config(|config| config.events_per_turn = 0), "events_per_turn is 0, but must be 1 to 1048576"),
    ];
    for (mut config, message) in cases {
        for kind in [DriverKind::Auto, DriverKind::Epoll, DriverKind::Uring] {
            config.kind = kind;
            let error = Driver::new(&config).unwrap_err();
            assert!(matches!(error, DriverError::Setting { .. }), "{error:?}");
            assert_eq!(error.to_string(), message);
        }
    }
}

#[test]
fn an_unknown_driver_in_the_environment_is_an_error_not_a_default() {
    if std::env::var_os(IN_CHILD).is_some() {
        let error = DriverError::from(DriverConfig::default().with_env_override().unwrap_err());
        assert!(matches!(error, DriverError::Environment(_)));
        assert_eq!(
            error.to_string(),
            "environment variable COREWIRE_DRIVER: unknown driver \"nonsense\": use auto, uring or epoll"
        );
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_unknown_driver_in_the_environment_is_an_error_not_a_default"])
        .env(IN_CHILD, "1")
        .env(DriverKind::ENV, "nonsense")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
}

#[test]
fn asking_for_io_uring_gives_it_or_the_reason_why_not() {
    match (Driver::new(&config(|config| config.kind = DriverKind::Uring)), probe().uring) {
        (Ok(driver), Ok(())) => assert_eq!(driver.backend().to_string(), "uring"),
        (Err(DriverError::UringUnavailable(why)), Err(found)) => assert_eq!(why, found),
        (driver, found) => panic!("{driver:?}, though the probe found {found:?}"),
    }
}

#[test]
fn a_kernel_that_refuses_the_descriptor_says_so() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if std::env::var_os(IN_CHILD).is_some() {
        let limit = getrlimit(Resource::Nofile);
        for kind in [DriverKind::Epoll, DriverKind::Auto] {
            let config = config(|config| config.kind = kind);
            // The probe is asked once for the process; it must not be what runs out.
            drop(Driver::new(&config).unwrap());
            setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: limit.maximum }).unwrap();
            let error = Driver::new(&config).unwrap_err();
            setrlimit(Resource::Nofile, limit).unwrap();
            assert!(
                error.to_string().starts_with("cannot set up the event loop: Too many open files"),
                "{error}"
            );
        }
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_kernel_that_refuses_the_descriptor_says_so"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
}
