use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use corewire_proto::codec::StandardCodec;
use corewire_runtime::{sleep, timeout};

use crate::NetUri;

const PATIENCE: Duration = Duration::from_secs(20);

/// An SRMP frame that is no reply.
const FRAME: &[u8] = &[0x41, 0, 1, 0, 7];

#[test]
fn a_resume_that_comes_when_the_inbox_is_full_again_does_not_pass_its_limit() {
    const LIMIT: usize = 4;
    let server = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let uri = format!("tcp://{}", server.local_addr().expect("an address"));
    let test = async {
        let uri = NetUri::parse(&uri).expect("a URI");
        let client =
            uri.client().codec(StandardCodec::default).inbox(LIMIT).connect().await.expect("a client");
        let (mut peer, _) = server.accept().expect("a connection");
        let inbox = client.shared.inbox.as_ref().expect("an inbox");
        peer.write_all(&FRAME.repeat(LIMIT)).expect("it takes bytes");
        while inbox.lock().messages.len() < LIMIT {
            sleep(Duration::from_millis(1)).await;
        }
        // In one turn of the worker, so that its resume is still on its way, half is taken and has come again.
        let mut taken = Vec::new();
        for _ in 0..LIMIT / 2 {
            taken.push(client.recv().await.expect("a message"));
        }
        inbox.lock().messages.extend(taken.into_iter().map(|message| (message, 0)));
        assert!(!inbox.is_held_back(), "it has asked to be resumed");
        inbox.lock().held_back = true;
        peer.write_all(&FRAME.repeat(10 * LIMIT)).expect("it takes bytes");
        for _ in 0..20 {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(inbox.lock().messages.len(), LIMIT);
        for _ in 0..11 * LIMIT {
            client.recv().await.expect("a message");
        }
    };
    corewire_runtime::run(async {
        timeout(PATIENCE, test).await.expect("what is taken is followed by more")
    })
    .expect("a worker");
}
