//! A chat: every line goes to all others in the same room. `cargo run -p corewire --example chat [URI]`, then in other
//! terminals `nc 127.0.0.1 7778`; `/join NAME` changes the room.

use corewire::proto::codec::DecodeError;
use corewire::{CloseReason, Frame, Handler, LineCodec, NetServer, ServerError, Session, Sessions};

/// One participant. Lives on one worker, so its fields need no lock.
struct Chat {
    everybody: Sessions,
}

/// What a session is known by: attached to it, so that broadcasts can pick by it.
struct Room(String);

impl Chat {
    fn tell_the_room(&self, session: &Session, text: &str) {
        let from = session.id();
        let room = session.with_data(|room: &mut Room| room.0.clone()).unwrap_or_default();
        // The predicate runs on each worker, for its own sessions. Nothing waits for it here.
        let is_there = move |other: &Session| {
            other.id() != from && other.with_data(|other: &mut Room| other.0 == room) == Some(true)
        };
        self.everybody.broadcast_to(is_there, format!("{from}: {text}"));
    }
}

impl Handler for Chat {
    fn on_open(&mut self, session: &Session) {
        session.set_data(Room("lobby".to_owned()));
        self.tell_the_room(session, "has come");
    }

    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        let line = String::from_utf8_lossy(frame.payload());
        match line.strip_prefix("/join ") {
            Some(room) => {
                self.tell_the_room(session, "goes to another room");
                session.set_data(Room(room.trim().to_owned()));
                self.tell_the_room(session, "has come");
            }
            None => self.tell_the_room(session, &line),
        }
    }

    fn on_error(&mut self, session: &Session, error: &DecodeError) {
        // A line over the limit is skipped; the session goes on.
        if let Err(error) = session.send(error.to_string().as_bytes()) {
            eprintln!("session {}: {error}", session.id());
        }
    }

    fn on_close(&mut self, session: &Session, _: &CloseReason) {
        self.tell_the_room(session, "has gone");
    }
}

fn main() -> Result<(), ServerError> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "tcp://127.0.0.1:7778".to_owned());
    println!("chat on {uri}; Ctrl-C ends it");
    let server = NetServer::bind(uri).codec(|| LineCodec::new().frame_limit(1000));
    let everybody = server.sessions();
    let report = server.handler(move || Chat { everybody: everybody.clone() }).run()?;
    println!("{report}");
    Ok(())
}
