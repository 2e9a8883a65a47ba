//! Settings with which nothing could ever work are refused before anything is started.

use std::time::Duration;

use corewire::client::Reconnect;
use corewire::runtime::ConnectionOptions;
use corewire::{ConnectError, NetServer, ServerError};

use crate::common::*;

fn refused_by_server(change: impl FnOnce(NetServer) -> NetServer) -> String {
    match change(NetServer::bind("tcp://127.0.0.1:0").workers(1)).start() {
        Err(ServerError::Setting(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_says_which_setting_cannot_work() {
    for (refused, expected) in [
        // A sender would wait at the limit for a mark that the queue never comes to.
        (
            refused_by_server(|server| server.send_queue_limit(1_000)),
            "the limit of the send queue is 1000: it must be at least the high-water mark, 262144",
        ),
        (
            refused_by_server(|server| server.water_marks(300_000, 200_000)),
            "the low-water mark of the send queue is 300000: it must be at most the high-water mark, 200000",
        ),
        (
            refused_by_server(|server| server.water_marks(0, 0)),
            "the high-water mark of the send queue is 0: it must be more than 0",
        ),
        (
            refused_by_server(|server| server.idle_timeout(Some(Duration::ZERO))),
            "the idle timeout is 0ns: it must be more than 0",
        ),
        (
            refused_by_server(|server| server.max_connections(0)),
            "the most connections is 0: it must be more than 0",
        ),
        (
            refused_by_server(|server| server.max_datagram_sessions(0)),
            "the most UDP and KCP sessions is 0: it must be more than 0",
        ),
        (refused_by_server(|server| server.backlog(0)), "the backlog is 0: it must be 1 or more"),
        (
            refused_by_server(|server| server.stats_line(Duration::ZERO, |_| {})),
            "the period of the statistics line is 0ns: it must be more than 0",
        ),
    ] {
        assert_eq!(refused, expected);
    }
}

#[test]
fn a_client_says_which_setting_cannot_work() {
    let client = || client_of("tcp://127.0.0.1:1");
    let mut short = ConnectionOptions::default();
    short.queue_limit = short.high_water - 1;
    let mut backwards = Reconnect::default();
    backwards.max = backwards.initial / 2;
    for (builder, expected) in [
        (client().connection_options(short), "the limit of the send queue"),
        (client().connect_timeout(Duration::ZERO), "the connect timeout"),
        (client().request_timeout(Duration::ZERO), "the request timeout"),
        (client().max_in_flight(0), "the most requests in flight"),
        (client().inbox(0), "the most messages in the inbox"),
        (client().reconnect(backwards), "the longest wait before a reconnect"),
    ] {
        let result = builder.connect_blocking();
        let Err(ConnectError::Setting(error)) = result else { panic!("{expected}: {result:?}") };
        assert_eq!(error.what, expected);
    }
}
