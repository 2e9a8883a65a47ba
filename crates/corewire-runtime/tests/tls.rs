//! TLS over sockets: what a handshake agrees on, how it fails, and how streams end.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use common::tls::*;
use common::*;
use corewire_runtime::driver::Socket;
use corewire_runtime::transport::tls::rustls::ServerConnection;
use corewire_runtime::transport::tls::{ClientTls, ServerTls};
use corewire_runtime::{Connection, ConnectionOptions, TlsVersion};

struct Pair {
    server: Connection,
    served: Record,
    client: Connection,
    record: Record,
}

fn connect(server: &ServerTls, client: &ClientTls, server_name: &str) -> Pair {
    connect_with(server, client, server_name, options(|_| {}))
}

fn connect_with(
    server: &ServerTls,
    client: &ClientTls,
    server_name: &str,
    options: Rc<ConnectionOptions>,
) -> Pair {
    let (socket, peer) = sockets();
    peer.set_nonblocking(true).unwrap();
    let peer = Socket::from_fd(peer.into()).unwrap();
    let (served, record) = (Record::default(), Record::default());
    let server = Connection::open_tls(socket, server, options.clone(), Recorder::new(&served)).unwrap();
    let protocol = Recorder::new(&record);
    let client = Connection::open_connecting_tls(peer, client, name(server_name), options, protocol).unwrap();
    Pair { server, served, client, record }
}

/// A server that is recorded, and the plain socket at its other end.
fn serve_raw(server: &ServerTls) -> (Connection, Record, TcpStream) {
    let (socket, peer) = sockets();
    let record = Record::default();
    let connection = Connection::open_tls(socket, server, options(|_| {}), Recorder::new(&record)).unwrap();
    (connection, record, peer)
}

impl Pair {
    async fn established(&self) {
        self.record.wait_for("open").await;
        self.served.wait_for("open").await;
    }

    /// How the two have ended.
    async fn ended(&self) -> (String, String) {
        (self.served.wait_for("closed").await, self.record.wait_for("closed").await)
    }
}

/// Runs a test with each version.
fn with_each<F: Future<Output = ()> + 'static>(test: impl Fn(Versions) -> F) {
    for versions in [ONLY_12, ONLY_13] {
        eprintln!("with {versions:?}");
        run(test(versions));
    }
}

#[test]
fn bytes_of_any_length_arrive_in_both_directions() {
    with_each(|versions| async move {
        let authority = Authority::new();
        let pair = connect(&authority.server(versions), &authority.client(versions), "localhost");
        // Before the handshake is done: it waits.
        pair.client.send(b"early").unwrap();
        let mut sent = b"early".to_vec();
        for len in [0, 1, 16_383, 16_384, 16_385, 65_483, 300_000, 3_000_000] {
            pair.established().await;
            let bytes = pattern(len);
            pair.client.send(&bytes).unwrap();
            pair.server.send_parts([b"head", &bytes, b"tail"]).unwrap();
            sent.extend_from_slice(&bytes);
            pair.served.wait_received(sent.len()).await;
        }
        assert!(pair.served.received() == sent);
        let total = sent.len() - 5 + 8 * 8;
        pair.record.wait_received(total).await;
        let received = pair.record.received();
        assert_eq!(received.len(), total);
        assert!(received.ends_with(b"tail") && received.starts_with(b"headtailhead"));
        pair.client.close();
        let (served, record) = pair.ended().await;
        assert_eq!(served, "closed: closed by the peer");
        assert_eq!(record, "closed: closed by this side");
    });
}

#[test]
fn what_was_agreed_on_can_be_read_on_both_sides() {
    with_each(|versions| async move {
        let authority = Authority::new();
        let mut config = authority.mutual(versions);
        config.alpn_protocols = vec![b"one".to_vec(), b"two".to_vec()];
        let identity = authority.identity("a client");
        let chain = identity.chain[0].to_vec();
        let mut client = authority.client_config(versions, Some(identity));
        client.alpn_protocols = vec![b"two".to_vec(), b"three".to_vec()];
        let pair = connect(&ServerTls::new(config), &ClientTls::new(client), "localhost");
        assert!(pair.server.tls().is_none() && pair.client.tls().is_none(), "the handshake is not done");
        pair.established().await;
        let (server, client) = (pair.server.tls().unwrap(), pair.client.tls().unwrap());
        let version = if versions == ONLY_12 { TlsVersion::Tls12 } else { TlsVersion::Tls13 };
        assert_eq!((server.version, client.version), (version, version));
        assert_eq!(server.alpn.as_deref(), Some(&b"two"[..]));
        assert_eq!(client.alpn, server.alpn);
        assert_eq!(server.server_name.as_deref(), Some("localhost"));
        assert_eq!(server.peer_certificates, [chain]);
        assert_eq!(client.peer_certificates.len(), 1);
        assert_eq!(client.cipher_suite, server.cipher_suite);
        assert!(!server.resumed && server.cipher_suite.starts_with("TLS"), "{server:?}");
    });
}

#[test]
fn a_second_connection_resumes_the_session_of_the_first() {
    with_each(|versions| async move {
        let authority = Authority::new();
        let (server, client) = (authority.server(versions), authority.client(versions));
        for resumed in [false, true, true] {
            let pair = connect(&server, &client, "localhost");
            pair.established().await;
            // The session ticket of TLS 1.3 comes behind the handshake, before this.
            pair.server.send(b"hello").unwrap();
            pair.record.wait_received(5).await;
            assert_eq!(pair.client.tls().unwrap().resumed, resumed, "{versions:?}");
            assert_eq!(pair.server.tls().unwrap().resumed, resumed, "{versions:?}");
            pair.client.close();
            pair.ended().await;
        }
    });
}

#[test]
fn new_certificates_are_for_new_connections_and_the_old_ones_go_on() {
    with_each(|versions| async move {
        let (old, new) = (Authority::new(), Authority::new());
        let server = old.server(versions);
        let first = connect(&server, &old.client(versions), "localhost");
        first.established().await;
        server.replace(new.server_config(versions, new.identity("localhost")));
        let second = connect(&server, &new.client(versions), "localhost");
        second.established().await;
        let third = connect(&server, &old.client(versions), "localhost");
        assert!(third.ended().await.1.contains("issued by nobody"));
        first.client.send(b"still here").unwrap();
        first.served.wait_received(10).await;
    });
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused_and_both_sides_say_what_to_do() {
    with_each(|versions| async move {
        let (authority, other) = (Authority::new(), Authority::new());
        let pair = connect(&authority.server(versions), &other.client(versions), "localhost");
        let (served, record) = pair.ended().await;
        assert!(
            record.contains("issued by nobody that this side trusts: name the certificate of its CA"),
            "{record}"
        );
        assert!(served.contains("UnknownCA: it does not trust who issued"), "{served}");
        assert_eq!(pair.record.count("open") + pair.served.count("open"), 0);

        let pair = connect(&authority.server(versions), &authority.client(versions), "elsewhere.lan");
        let (served, record) = pair.ended().await;
        assert!(record.contains("elsewhere.lan") && record.contains("localhost"), "{record}");
        assert!(record.contains("server-name="), "{record}");
        assert!(served.contains("BadCertificate") || served.contains("CertificateUnknown"), "{served}");

        let expired = authority.identity_with("localhost", |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        });
        let server = ServerTls::new(authority.server_config(versions, expired));
        let pair = connect(&server, &authority.client(versions), "localhost");
        let (served, record) = pair.ended().await;
        assert!(record.contains("expired") && record.contains("renew it"), "{record}");
        assert!(served.contains("CertificateExpired"), "{served}");
    });
}

#[test]
fn a_server_that_asks_for_certificates_takes_no_client_without_one() {
    with_each(|versions| async move {
        let (authority, other) = (Authority::new(), Authority::new());
        let server = ServerTls::new(authority.mutual(versions));
        let pair = connect(&server, &authority.client(versions), "localhost");
        let (served, record) = pair.ended().await;
        assert!(served.contains("it sent none") && served.contains("cert= and key="), "{served}");
        assert!(record.contains("cert= and key=") || record.contains("wants a certificate"), "{record}");
        assert_eq!(pair.served.count("open"), 0);

        let stranger = authority.client_config(versions, Some(other.identity("a client")));
        let pair = connect(&server, &ClientTls::new(stranger), "localhost");
        let (served, record) = pair.ended().await;
        assert!(served.contains("issued by nobody") && served.contains("client-ca="), "{served}");
        assert!(record.contains("TLS alert"), "{record}");
    });
}

#[test]
fn two_that_have_nothing_in_common_say_so() {
    run(async {
        let authority = Authority::new();
        let pair = connect(&authority.server(ONLY_13), &authority.client(ONLY_12), "localhost");
        let (served, record) = pair.ended().await;
        assert!(served.contains("no version of TLS"), "{served}");
        assert!(record.contains("no version of TLS in common"), "{record}");

        let mut config = authority.server_config(BOTH, authority.identity("localhost"));
        config.alpn_protocols = vec![b"one".to_vec()];
        let mut client = authority.client_config(BOTH, None);
        client.alpn_protocols = vec![b"two".to_vec()];
        let pair = connect(&ServerTls::new(config), &ClientTls::new(client), "localhost");
        let (served, record) = pair.ended().await;
        assert!(served.contains("ALPN"), "{served}");
        assert!(record.contains("ALPN"), "{record}");
    });
}

#[test]
fn plain_text_to_a_tls_port_is_named_and_answered_by_an_alert() {
    run(async {
        let (_server, record, mut peer) = serve_raw(&Authority::new().server(BOTH));
        peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let reason = record.wait_for("closed").await;
        assert!(reason.contains("does not speak TLS") && reason.contains("GET / HTTP"), "{reason}");
        let answer = off_worker(move || {
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer).unwrap();
            answer
        })
        .await;
        assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
    });
}

#[test]
fn a_client_of_tls_says_that_a_plain_server_does_not_speak_it() {
    run(async {
        let (socket, mut peer) = sockets();
        let record = Record::default();
        let client = Authority::new().client(BOTH);
        let protocol = Recorder::new(&record);
        let _client =
            Connection::open_connecting_tls(socket, &client, name("localhost"), options(|_| {}), protocol)
                .unwrap();
        peer.write_all(b"220 mail.example ready\r\n").unwrap();
        let reason = record.wait_for("closed").await;
        assert!(reason.contains("does not speak TLS") && reason.contains("220 mail"), "{reason}");
    });
}

#[test]
fn a_client_that_stops_in_its_handshake_is_closed_after_its_time() {
    run(async {
        let authority = Authority::new();
        let server = authority.server(BOTH).with_handshake_timeout(Duration::from_millis(50));
        for sent in [0, 3, 100] {
            let (_server, record, mut peer) = serve_raw(&server);
            peer.write_all(&client_hello(&authority)[..sent]).unwrap();
            let reason = record.wait_for("closed").await;
            assert!(reason.contains("not complete after 50ms"), "{reason}");
            drop(peer);
        }
        let server = authority.server(BOTH);
        let (_server, record, mut peer) = serve_raw(&server);
        peer.write_all(&client_hello(&authority)[..100]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let reason = record.wait_for("closed").await;
        assert!(reason.contains("closed the connection during the TLS handshake"), "{reason}");
    });
}

/// The first message of a client.
fn client_hello(authority: &Authority) -> Vec<u8> {
    use corewire_runtime::transport::tls::rustls::ClientConnection;
    let config = authority.client_config(BOTH, None).into();
    let mut client = ClientConnection::new(config, name("localhost")).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// A peer by `rustls` alone, on a thread: it serves one connection.
fn rustls_peer(
    authority: &Authority,
    versions: Versions,
    serve: impl FnOnce(&mut ServerConnection, &mut TcpStream) + Send + 'static,
) -> (Connection, Record, std::thread::JoinHandle<()>) {
    rustls_peer_of(authority, versions, |_, _| {}, serve)
}

/// The same, of a client that does something.
fn rustls_peer_of(
    authority: &Authority,
    versions: Versions,
    action: impl FnMut(&str, &Connection) + 'static,
    serve: impl FnOnce(&mut ServerConnection, &mut TcpStream) + Send + 'static,
) -> (Connection, Record, std::thread::JoinHandle<()>) {
    let (socket, mut peer) = sockets();
    let config = authority.server_config(versions, authority.identity("localhost"));
    let record = Record::default();
    let protocol = Recorder::with_action(&record, action);
    let client = authority.client(versions);
    let connection =
        Connection::open_connecting_tls(socket, &client, name("localhost"), options(|_| {}), protocol)
            .unwrap();
    let thread = std::thread::spawn(move || {
        let mut server = ServerConnection::new(config.into()).unwrap();
        while server.is_handshaking() {
            server.complete_io(&mut peer).unwrap();
        }
        serve(&mut server, &mut peer);
    });
    (connection, record, thread)
}

#[test]
fn a_stream_that_is_cut_is_an_error_behind_what_has_come() {
    with_each(|versions| async move {
        let authority = Authority::new();
        let (_client, record, thread) = rustls_peer(&authority, versions, |server, peer| {
            server.writer().write_all(b"the beginning").unwrap();
            server.complete_io(peer).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
        });
        let reason = record.wait_for("closed").await;
        assert_eq!(record.received(), b"the beginning");
        assert!(reason.contains("without a TLS close_notify"), "{reason}");
        assert_eq!(record.count("read closed"), 0);
        off_worker(|| thread.join().unwrap()).await;
    });
}

#[test]
fn a_close_in_good_order_is_told_by_close_notify_in_both_directions() {
    with_each(|versions| async move {
        let authority = Authority::new();
        // Its answer is queued before the end of the peer can be told.
        let answer = |what: &str, client: &Connection| {
            if what == "open" {
                client.send(b"answer").unwrap();
            }
        };
        let (_client, record, thread) = rustls_peer_of(&authority, versions, answer, |server, peer| {
            server.writer().write_all(b"all").unwrap();
            server.send_close_notify();
            server.complete_io(peer).unwrap();
            // The answer: an error here would be a stream that was cut.
            let mut rest = Vec::new();
            corewire_runtime::transport::tls::rustls::Stream::new(server, peer)
                .read_to_end(&mut rest)
                .unwrap();
            assert_eq!(rest, b"answer");
        });
        let reason = record.wait_for("closed").await;
        assert_eq!(reason, "closed: closed by the peer");
        assert_eq!(record.received(), b"all");
        off_worker(|| thread.join().unwrap()).await;
    });
}

#[test]
fn a_half_close_leaves_the_other_direction_open() {
    with_each(|versions| async move {
        let authority = Authority::new();
        let pair = connect(&authority.server(versions), &authority.client(versions), "localhost");
        pair.established().await;

        pair.client.send(b"request").unwrap();
        pair.client.shutdown_write();
        pair.served.wait_for("read closed").await;
        let (served, record) = pair.ended().await;
        assert_eq!(pair.served.received(), b"request");
        assert_eq!(
            (served, record),
            ("closed: closed by the peer".into(), "closed: closed by the peer".into())
        );
    });
}

#[test]
fn a_record_that_was_changed_on_its_way_ends_the_connection() {
    with_each(|versions| async move {
        let authority = Authority::new();
        let (_client, record, thread) = rustls_peer(&authority, versions, |server, peer| {
            server.writer().write_all(b"good").unwrap();
            server.complete_io(peer).unwrap();
            server.writer().write_all(b"changed").unwrap();
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            peer.write_all(&bytes).unwrap();
        });
        let reason = record.wait_for("closed").await;
        assert_eq!(record.received(), b"good");
        assert!(reason.contains("cannot be decrypted"), "{reason}");
        off_worker(|| thread.join().unwrap()).await;
    });
}

#[test]
fn keys_are_changed_when_the_peer_asks_for_it() {
    run(async {
        let authority = Authority::new();
        let (client, record, thread) = rustls_peer(&authority, ONLY_13, |server, peer| {
            for _ in 0..3 {
                server.refresh_traffic_keys().unwrap();
                server.writer().write_all(b"with a new key").unwrap();
                server.complete_io(peer).unwrap();
                let mut answer = [0; 6];
                corewire_runtime::transport::tls::rustls::Stream::new(server, peer)
                    .read_exact(&mut answer)
                    .unwrap();
                assert_eq!(&answer, b"answer");
            }
        });
        for round in 1..=3 {
            record.wait_received(14 * round).await;
            client.send(b"answer").unwrap();
        }
        assert_eq!(record.received(), b"with a new key".repeat(3));
        off_worker(|| thread.join().unwrap()).await;
    });
}
