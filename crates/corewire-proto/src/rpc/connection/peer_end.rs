//! A peer that sends nothing more and still reads.

use super::Connection;
use super::call::Peer;

impl<T> Connection<T> {
    /// The peer has closed its sending side: every half of it that was open ends here, unfinished, and calls of which
    /// this side's half has ended are over. No event tells so; halves of this side go on, and when they have ended the
    /// connection [is idle](Self::is_idle).
    ///
    /// Call it when all that the peer has sent was received.
    pub fn end_receiving(&mut self) {
        for index in 0..self.calls.slots() {
            let Some(call) = self.calls.get(index) else { continue };
            call.peer = Peer::Ended;
            if call.has_own_ended() || self.calls.is_abandoned(index) {
                self.free(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::rpc::{Begin, Connection, Event, MethodPath, Mode, Options, Settings, Version};

    #[test]
    fn after_the_peer_has_stopped_sending_calls_end_with_this_sides_half() {
        for version in [Version::V1, Version::V2] {
            let mut client = Connection::client(version, Settings::default());
            let mut server = Connection::server(Settings { max_streams: 0, ..Settings::default() });
            let path = MethodPath::new("S", "m").unwrap();
            let (mut sent, mut answers) = (Vec::new(), Vec::new());
            for mode in [Mode::Unary, Mode::Bidi, Mode::Bidi] {
                let begin = Begin { path: &path, mode, end: false, options: Options::default() };
                client.begin(&begin, Some(b"x"), &mut sent).unwrap();
            }
            let mut calls = Vec::new();
            let mut input = &sent[..];
            while let Some(event) = server.receive(&mut input, Duration::ZERO, &mut answers).unwrap() {
                if let Event::Request { call, .. } = event {
                    calls.push(call);
                }
            }
            server.finish(calls[1], &mut answers).unwrap();
            assert_eq!(server.calls_in_flight(), 3, "{version:?}");
            server.end_receiving();
            assert_eq!(server.calls_in_flight(), 2, "{version:?}: one was waiting for the client only");
            server.send(calls[0], b"y", true, &mut answers).unwrap();
            server.send(calls[2], b"y", false, &mut answers).unwrap();
            server.release(calls[2], 1, &mut answers);
            server.finish(calls[2], &mut answers).unwrap();
            assert!(server.is_idle(), "{version:?}");
            assert_eq!(server.buffered_bytes(), 0);
        }
    }
}
