//! Settings with which nothing could ever work are refused before anything is started.

use std::time::Duration;

use corewire::client::Reconnect;
use corewire::runtime::ConnectionOptions;
use corewire::{ConnectError, NetServer, ServerError, StandardCodec};

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
            refused_by_server(|server| server.max_connections_per_address(Some(0))),
            "the most connections of an address is 0: it must be more than 0",
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

#[test]
fn the_longest_of_all_times_is_none() {
    const MAX: Duration = Duration::MAX;
    struct Patient;
    impl corewire::Handler for Patient {
        fn on_open(&mut self, session: &corewire::Session) {
            session.set_timer(Some(MAX));
        }
        fn on_frame(&mut self, session: &corewire::Session, frame: corewire::Frame<'_>) {
            session.reply(&frame, frame.payload()).unwrap();
        }
    }
    for scheme in ["tcp", "udp", "kcp"] {
        let mut options = ConnectionOptions::default();
        (options.idle_timeout, options.close_timeout) = (Some(MAX), MAX);
        let server = NetServer::bind(format!("{scheme}://127.0.0.1:0"))
            .codec(StandardCodec::default)
            .handler(|| Patient)
            .workers(1)
            .connection_options(options.clone())
            .datagram_idle_timeout(Some(MAX))
            .stats_line(MAX, |_| {})
            .shutdown_deadline(MAX)
            .start()
            .unwrap();
        let client = client_of(server.uri())
            .connect_timeout(MAX)
            .request_timeout(MAX)
            .reconnect(corewire::client::Reconnect::between(MAX, MAX))
            .connection_options(options)
            .connect_blocking()
            .unwrap();
        assert_eq!(wait(client.request(b"1")).unwrap(), "1");
        assert_eq!(wait(client.request(b"2").timeout(MAX)).unwrap(), "2");
        assert_eq!(wait(client.request_with_retries(b"3", MAX, 3)).unwrap(), "3");
        // A call that must wait for its number, with a deadline of its own.
        let mut calls: Vec<_> = (0..300).map(|_| client.request(b"4").timeout(MAX)).collect();
        for call in &mut calls {
            let _ = poll_once(call);
        }
        drop(calls);
        client.close();
        let report = server.shutdown(MAX);
        assert_eq!(report.cut, 0, "{scheme}: {report}");
    }
}
