//! One message is one send: all of its parts or none.

use std::io::Write;
use std::sync::Mutex;

use corewire::runtime::ConnectionOptions;
use corewire::{Bytes, Frame, FrameSendError, LineCodec, NetServer, SendError, ServerHandle, Session};

use crate::common::*;

/// Sends lines whose payloads are shared until the queue is full, and says how many it took.
fn fills_the_queue(
    send: fn(&Session, &Frame<'_>, Bytes) -> Result<(), FrameSendError>,
) -> ServerHandleAndCount {
    let (sender, accepted) = events();
    let sender = Mutex::new(sender);
    let mut options = ConnectionOptions::default();
    options.queue_limit = 256 * 1024;
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(LineCodec::new)
        .connection_options(options)
        .workers(1)
        .handler(move || {
            let sender = sender.lock().unwrap().clone();
            move |session: &Session, frame: Frame<'_>| {
                // Longer than the room that is left: the line's end would come behind the limit.
                let line = Bytes::from(vec![b'x'; 100_000]);
                let mut accepted = 0;
                let full = loop {
                    match send(session, &frame, line.clone()) {
                        Ok(()) => accepted += 1,
                        Err(error) => break error,
                    }
                };
                assert!(matches!(full, FrameSendError::Send(SendError::QueueFull { .. })), "{full}");
                sender.send(accepted).unwrap();
                session.close();
            }
        })
        .start()
        .unwrap();
    (server, accepted)
}

type ServerHandleAndCount = (ServerHandle, Events<usize>);

fn assert_whole_lines(send: fn(&Session, &Frame<'_>, Bytes) -> Result<(), FrameSendError>) {
    let (server, accepted) = fills_the_queue(send);
    let mut peer = raw(&server);
    peer.write_all(b"go\n").unwrap();
    let accepted = accepted.next();
    let received = read_to_end(&mut peer);
    let lines: Vec<_> = received.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), accepted);
    assert!(lines.iter().all(|line| line.len() == 100_001), "no two lines have become one");
}

#[test]
fn a_shared_message_that_a_full_queue_refuses_is_refused_with_its_suffix() {
    assert_whole_lines(|session, _, line| session.send_bytes(line));
}

#[test]
fn a_shared_reply_that_a_full_queue_refuses_is_refused_with_its_suffix() {
    assert_whole_lines(|session, request, line| session.reply_bytes(request, line));
}
