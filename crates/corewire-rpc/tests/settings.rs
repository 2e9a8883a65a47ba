//! Settings with which nothing could ever work are refused before anything is started.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use corewire::client::Reconnect;
use corewire::server::ServerError;
use corewire::{ConnectError, NetServer};
use corewire_rpc::{Channel, ChannelBuilder, Retry, RpcServer, Settings};

const ZERO: Duration = Duration::ZERO;

fn refused_by_server(change: impl FnOnce(RpcServer) -> RpcServer) -> String {
    let server = change(RpcServer::bind("tcp://127.0.0.1:0").workers(1));
    match server.start() {
        Err(ServerError::Setting(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn refused_by_channel(change: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> String {
    match change(Channel::to("tcp://127.0.0.1:1")).build() {
        Err(ConnectError::Setting(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_says_which_setting_cannot_work() {
    let with = |settings: Settings| refused_by_server(|server| server.settings(settings));
    let default = Settings::default();
    assert_eq!(with(Settings { window: 0, ..default }), "the window is 0: it must be 1 to 2147483647");
    assert!(with(Settings { max_body: 0, ..default }).starts_with("the longest body is 0"));
    assert!(with(Settings { max_calls: 0, ..default }).starts_with("the most calls in flight is 0"));
    assert!(with(Settings { max_streams: u32::MAX, ..default }).starts_with("the most streams"));
    assert!(with(Settings { max_extension: 65_536, ..default }).ends_with("at most 65535"));
    assert!(refused_by_server(|server| server.versions([])).starts_with("the set of versions is empty"));
    assert!(refused_by_server(|server| server.call_timeout(ZERO)).contains("must be more than 0"));
    assert!(refused_by_server(|server| server.water_marks(2, 1)).starts_with("the low-water mark"));
    assert!(refused_by_server(|server| server.water_marks(0, 0)).starts_with("the high-water mark"));
    let short = |net: NetServer| net.send_queue_limit(256 * 1024 - 1);
    assert_eq!(
        refused_by_server(|server| server.net(short)),
        "the limit of the send queue is 262143: it must be at least the high-water mark, 262144"
    );
    let none = |net: NetServer| net.max_connections(0);
    assert!(refused_by_server(|server| server.net(none)).starts_with("the most connections"));
}

fn back_off(channel: ChannelBuilder, initial: Duration, max: Duration) -> ChannelBuilder {
    channel.net(|net| net.reconnect(Reconnect::between(initial, max)))
}

#[test]
fn a_channel_says_which_setting_cannot_work() {
    let second = Duration::from_secs(1);
    for (refused, expected) in [
        (refused_by_channel(|channel| channel.connections(0)), "the number of connections"),
        (refused_by_channel(|channel| channel.timeout(ZERO)), "the time of a call"),
        (refused_by_channel(|channel| channel.net(|net| net.connect_timeout(ZERO))), "the connect timeout"),
        (refused_by_channel(|channel| channel.keep_alive(ZERO, second)), "the time before a keep-alive"),
        (refused_by_channel(|channel| channel.keep_alive(second, ZERO)), "the time for the answer"),
        (refused_by_channel(|channel| back_off(channel, 2 * second, second)), "the longest wait"),
        (refused_by_channel(|channel| back_off(channel, ZERO, ZERO)), "the longest wait"),
        (
            refused_by_channel(|channel| {
                let mut retry = Retry::default();
                retry.attempts = 0;
                channel.retry(retry)
            }),
            "the attempts of a retry",
        ),
        (
            refused_by_channel(|channel| channel.settings(Settings { window: 0, ..Settings::default() })),
            "the window",
        ),
    ] {
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn limits_that_only_forbid_something_are_settings_that_work() {
    let settings = Settings { max_streams: 0, max_extension: 0, max_buffered: 0, ..Settings::default() };
    let server = RpcServer::bind("tcp://127.0.0.1:0").settings(settings).workers(1).start().unwrap();
    drop(server);
}
