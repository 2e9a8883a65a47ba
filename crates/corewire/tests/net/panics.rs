//! A panic of user code ends its own session and no other.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::time::Duration;

use corewire::proto::codec::DecodeError;
use corewire::{CloseReason, Frame, Handler, NetServer, Placement, ServerHandle, Session, StandardCodec};

use crate::common::*;

/// Panics in the callback that the peer, or the test, names.
struct Fragile {
    events: Sender<String>,
    panic_in: &'static str,
}

impl Fragile {
    fn reach(&self, callback: &str) {
        if self.panic_in == callback {
            panic!("on purpose, in {callback}");
        }
    }
}

impl Handler for Fragile {
    fn on_open(&mut self, session: &Session) {
        match self.panic_in {
            "on_timer" => session.set_timer(Some(Duration::from_millis(1))),
            // Over the high-water mark, so that it drains.
            "on_drained" => session.send(&vec![0; 16 << 20]).unwrap(),
            _ => {}
        }
        self.reach("on_open");
    }

    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        self.reach("on_frame");
        session.reply(&frame, frame.payload()).unwrap();
    }

    fn on_error(&mut self, _: &Session, _: &DecodeError) {
        self.reach("on_error");
    }

    fn on_drained(&mut self, _: &Session) {
        self.reach("on_drained");
    }

    fn on_timer(&mut self, _: &Session) {
        self.reach("on_timer");
    }

    fn on_read_closed(&mut self, session: &Session) {
        self.reach("on_read_closed");
        session.close_with(CloseReason::PeerClosed);
    }

    fn on_close(&mut self, session: &Session, reason: &CloseReason) {
        // Nobody may be listening any more.
        let _ = self.events.send(format!("{} {reason}", session.id()));
        self.reach("on_close");
    }
}

/// The first session panics in this callback; later ones do not.
fn fragile(panic_in: &'static str) -> (ServerHandle, Events<String>) {
    let (sender, events) = events();
    let state = Mutex::new((sender, true));
    let handler = move || {
        let mut state = state.lock().unwrap();
        let panic_in = if std::mem::take(&mut state.1) { panic_in } else { "" };
        Fragile { events: state.0.clone(), panic_in }
    };
    (standard(handler), events)
}

fn provoke(panic_in: &'static str) {
    let (server, events) = fragile(panic_in);
    let mut victim = raw(&server);
    match panic_in {
        "on_frame" => victim.write_all(&srmp(1, 1, b"x")).unwrap(),
        // A negative length.
        "on_error" => victim.write_all(&[1, 1, 0xff, 0xff, 0, 0, 0, 0x80]).unwrap(),
        "on_read_closed" | "on_close" => victim.shutdown(std::net::Shutdown::Write).unwrap(),
        _ => {}
    }
    let sent = read_to_end(&mut victim);
    assert!(sent.is_empty() || panic_in == "on_drained", "{panic_in}");
    let reason = events.next();
    if panic_in == "on_close" {
        assert_eq!(reason, "1 closed by the peer");
    } else {
        assert_eq!(reason, format!("1 a handler panicked: on purpose, in {panic_in}"));
    }
    assert_serves(&server);
    // Neither listed nor counted any more: the second one may be gone too by now.
    drop(events.next());
    assert_eq!(wait(server.sessions().close_where(|_| true).done()), 0, "{panic_in}");
    assert_eq!(server.stats().sessions, 0, "{panic_in}");
    assert_eq!(server.stats().workers.panics, 1, "{panic_in}");
    assert_eq!(server.shutdown(PATIENCE).sessions, 0);
}

#[test]
fn a_panic_in_on_open_closes_that_session() {
    provoke("on_open");
}

#[test]
fn a_panic_in_on_frame_closes_that_session() {
    provoke("on_frame");
}

#[test]
fn a_panic_in_on_error_closes_that_session() {
    provoke("on_error");
}

#[test]
fn a_panic_in_on_drained_closes_that_session() {
    provoke("on_drained");
}

#[test]
fn a_panic_in_on_timer_closes_that_session() {
    provoke("on_timer");
}

#[test]
fn a_panic_in_on_read_closed_closes_that_session() {
    provoke("on_read_closed");
}

#[test]
fn a_panic_in_on_close_harms_nobody() {
    provoke("on_close");
}

#[test]
fn a_panic_in_on_shutdown_closes_that_session() {
    struct Stubborn;
    impl Handler for Stubborn {
        fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
            session.reply(&frame, b"").unwrap();
        }
        fn on_shutdown(&mut self, _: &Session) {
            panic!("on purpose, in on_shutdown");
        }
    }
    let server = standard(|| Stubborn);
    let mut peer = raw(&server);
    peer.write_all(&srmp(1, 1, b"")).unwrap();
    read_srmp(&mut peer);
    let report = server.shutdown(PATIENCE);
    assert_eq!((report.sessions, report.finished, report.cut), (1, 1, 0));
}

#[test]
fn a_factory_that_panics_loses_its_connection_and_nothing_else() {
    for (placement, in_codec) in [
        (Placement::ReusePort, false),
        (Placement::ReusePort, true),
        (Placement::RoundRobin, false),
        (Placement::RoundRobin, true),
    ] {
        let count = Mutex::new(0);
        let nth = move |fails: bool| {
            let mut count = count.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *count += 1;
            assert!(!fails || *count > 2, "on purpose");
        };
        let nth = std::sync::Arc::new(nth);
        let for_codec = nth.clone();
        let server = NetServer::bind("tcp://127.0.0.1:0")
            .workers(2)
            .placement(placement)
            .codec(move || {
                for_codec(in_codec);
                StandardCodec::default()
            })
            .handler(move || {
                nth(!in_codec);
                echo()
            })
            .start()
            .unwrap();
        // Handlers are made before codecs.
        let failures = if in_codec { 1 } else { 2 };
        for _ in 0..failures {
            assert_eq!(read_to_end(&mut raw(&server)), b"");
        }
        for _ in 0..4 {
            assert_serves(&server);
        }
        assert_eq!(server.shutdown(PATIENCE).cut, 0);
    }
}
