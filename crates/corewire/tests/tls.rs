//! Servers and clients on `tls://`: from files that a URI names, with `openssl` at the other end, and with peers that mean
//! harm.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use corewire::tls::{TlsConfigError, TlsVersion};
use corewire::{
    ConnectError, Frame, NetClient, NetServer, NetUri, RateMin, ServerError, ServerHandle, Session,
    StandardCodec, block_on,
};
use corewire_testkit::certificates::Files;

/// Long enough for a loaded machine; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that answers with what it is asked.
fn echo(query: &str) -> ServerHandle {
    try_echo(query).unwrap()
}

fn try_echo(query: &str) -> Result<ServerHandle, ServerError> {
    NetServer::bind(format!("tls://127.0.0.1:0?{query}"))
        .codec(StandardCodec::default)
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                let _ = session.reply(&frame, frame.payload());
            }
        })
        .workers(1)
        .start()
}

/// A server that sends back the bytes that come.
fn mirror(uri: &str, change: impl FnOnce(NetServer) -> NetServer) -> ServerHandle {
    change(NetServer::bind(uri))
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                let _ = session.send(frame.payload());
            }
        })
        .workers(1)
        .start()
        .unwrap()
}

fn client_of(server: &ServerHandle, query: &str) -> Result<NetClient, ConnectError> {
    NetUri::parse(&format!("{}?{query}", server.uri()))
        .unwrap()
        .client()
        .codec(StandardCodec::default)
        .no_reconnect()
        .connect_blocking()
}

#[test]
fn a_uri_that_names_its_files_is_enough_for_mutual_tls() {
    let files = Files::new("mutual");
    let (told, tells) = mpsc::channel();
    let query = format!("{}&client-ca={}&alpn=echo/2,echo/1", files.of_server(), files.shown("ca.pem"));
    let server = NetServer::bind(format!("tls://*:0?{query}"))
        .codec(StandardCodec::default)
        .handler(move || {
            let told = told.clone();
            move |session: &Session, frame: Frame<'_>| {
                told.send((*session.tls().unwrap()).clone()).unwrap();
                let _ = session.reply(&frame, frame.payload());
            }
        })
        .workers(1)
        .start()
        .unwrap();
    assert!(server.uri().starts_with("tls://*:"), "{}", server.uri());
    let port = server.local_addrs()[0].port();
    let uri = format!("tls://localhost:{port}?{}&{}&alpn=echo/1", files.ca(), files.of_client());
    let uri = NetUri::parse(&uri).unwrap();
    assert_eq!(NetUri::parse(&uri.to_string()).unwrap(), uri, "it reads back what it writes");
    let client = uri.client().codec(StandardCodec::default).connect_blocking().unwrap();
    let large = vec![7; 1 << 20];
    for payload in [&b"hello"[..], &large] {
        assert!(block_on(client.request(payload)).unwrap() == payload);
    }
    let info = tells.recv().unwrap();
    assert_eq!(info.version, TlsVersion::Tls13);
    assert_eq!(info.server_name.as_deref(), Some("localhost"));
    assert_eq!(info.alpn.as_deref(), Some(&b"echo/1"[..]));
    assert_eq!(info.peer_certificates.len(), 1, "the client's chain");

    let refused = client_of(&server, &files.ca()).map(|client| block_on(client.request(b"hello")));
    // With TLS 1.3 the client is done before the server has looked at its certificate.
    assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
    let stats = server.stats().workers;
    assert!(stats.tls_handshakes >= 1 && stats.tls_handshake_failures >= 1, "{stats:?}");
}

#[test]
fn a_connection_that_fails_says_why() {
    let (files, other) = (Files::new("one"), Files::new("two"));
    let server = echo(&files.of_server());
    let error = client_of(&server, &other.ca()).unwrap_err().to_string();
    assert!(error.contains("cannot connect to 127.0.0.1") && error.contains("issued by nobody"), "{error}");
    let error = client_of(&server, &format!("{}&server-name=app.lan", files.ca())).unwrap_err().to_string();
    assert!(error.contains("app.lan") && error.contains("server-name="), "{error}");

    let plain = mirror("tcp://127.0.0.1:0", |server| server);
    let port = plain.local_addrs()[0].port();
    let uri = NetUri::parse(&format!("tls://127.0.0.1:{port}?{}", files.ca())).unwrap();
    // It is sent back its own first message.
    let error = block_on(uri.connect()).unwrap_err().to_string();
    assert!(error.contains("TLS"), "{error}");
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_with_what_to_do() {
    let files = Files::new("refused");
    let other = Files::new("refused-other");
    let server = |query: &str| match try_echo(query) {
        Err(ServerError::Tls(error)) => error,
        other => panic!("{query}: {other:?}"),
    };
    assert!(matches!(server(""), TlsConfigError::NoCertificate));
    assert!(matches!(server(&files.ca()), TlsConfigError::OfClient));
    let key_only = format!("key={}", files.shown("server.key"));
    assert!(matches!(server(&key_only), TlsConfigError::Incomplete { present: "key", missing: "cert" }));
    let missing = format!("cert=/nowhere/server.pem&{key_only}");
    let error = server(&missing).to_string();
    assert!(error.contains("cannot read cert=/nowhere/server.pem"), "{error}");
    let swapped = format!("cert={}&key={}", files.shown("server.key"), files.shown("server.pem"));
    let error = server(&swapped).to_string();
    assert!(error.contains("server.key has no PEM block of a certificate"), "{error}");
    let mixed = format!("cert={}&key={}", files.shown("server.pem"), other.shown("server.key"));
    let error = server(&mixed).to_string();
    assert!(error.contains("the key is that of another certificate"), "{error}");
    files.write("rubbish.pem", "\u{0}\u{1}rubbish");
    let rubbish = format!("{}&client-ca={}", files.of_server(), files.shown("rubbish.pem"));
    let error = server(&rubbish).to_string();
    assert!(error.contains("client-ca=") && error.contains("a certificate"), "{error}");

    let uri =
        |query: &str| NetUri::parse(&format!("tls://localhost:1?{query}")).map_err(|error| error.to_string());
    for query in ["certificate=x", "cert", "cert=", "ca=a&ca=b", "alpn=a,,b"] {
        assert!(uri(query).unwrap_err().contains("invalid parameter"), "{query}");
    }
    let client = uri(&format!("client-ca={}", files.shown("ca.pem"))).unwrap();
    assert!(matches!(block_on(client.connect()), Err(ConnectError::Tls(TlsConfigError::OfServer))));
    let client = uri(&format!("{}&server-name=-%%-", files.ca())).unwrap();
    let error = block_on(client.connect()).unwrap_err();
    assert!(matches!(error, ConnectError::Tls(TlsConfigError::ServerName { .. })), "{error}");
}

#[test]
fn certificates_are_read_anew_while_connections_go_on() {
    let files = Files::new("reload");
    let server = echo(&files.of_server());
    let old_ca = files.shown("old-ca.pem");
    std::fs::copy(files.path("ca.pem"), &old_ca).unwrap();
    let first = client_of(&server, &files.ca()).unwrap();
    assert!(block_on(first.request(b"before")).is_ok());
    files.issue("reload-new");
    server.reload_tls().unwrap();
    let second = client_of(&server, &files.ca()).unwrap();
    assert!(block_on(second.request(b"new")).is_ok());
    assert!(client_of(&server, &format!("ca={old_ca}")).is_err(), "the old certificate is served no more");
    files.write("server.pem", "rubbish");
    assert!(server.reload_tls().is_err());
    let third = client_of(&server, &files.ca()).unwrap();
    for client in [&first, &second, &third] {
        assert!(block_on(client.request(b"after")).is_ok());
    }
    let plain = mirror("tcp://127.0.0.1:0", |server| server);
    assert!(matches!(plain.reload_tls(), Err(TlsConfigError::NotFromFiles)));
}

/// A run of the `openssl` command, whose output is gathered as it comes.
struct OpenSsl {
    child: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl OpenSsl {
    /// The tests against it are left out where there is none.
    fn is_missing() -> bool {
        let is_missing = Command::new("openssl").arg("version").output().is_err();
        if is_missing {
            eprintln!("not run: there is no openssl");
        }
        is_missing
    }

    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (gathers, output) = mpsc::channel();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut pipe in pipes {
            let gathers = gathers.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(len) = pipe.read(&mut piece) {
                    if len == 0 || gathers.send(piece[..len].to_vec()).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, output, seen: String::new() }
    }

    fn write(&mut self, bytes: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(bytes.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Waits until its output has this.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.seen += &String::from_utf8_lossy(&piece),
                Err(error) => panic!("no {text:?} ({error}) in:\n{}", self.seen),
            }
        }
    }

    /// Waits until it ends, and gives what it has written.
    fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        while let Ok(piece) = self.output.recv_timeout(PATIENCE) {
            self.seen += &String::from_utf8_lossy(&piece);
        }
        let _ = self.child.wait();
        std::mem::take(&mut self.seen)
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn s_client(server: &ServerHandle, files: &Files, more: &[&str]) -> OpenSsl {
    let address = server.local_addrs()[0].to_string();
    let ca = files.shown("ca.pem");
    let mut arguments = vec!["s_client", "-connect", &address, "-CAfile", &ca, "-servername", "localhost"];
    arguments.extend(["-verify_return_error", "-verify_hostname", "localhost"]);
    arguments.extend(more);
    OpenSsl::start(&arguments)
}

#[test]
fn openssl_s_client_talks_to_a_server_in_both_versions() {
    if OpenSsl::is_missing() {
        return;
    }
    let files = Files::new("s-client");
    let query = format!("{}&client-ca={}", files.of_server(), files.shown("ca.pem"));
    let server = mirror(&format!("tls://127.0.0.1:0?{query}"), |server| server);
    let (cert, key) = (files.shown("client.pem"), files.shown("client.key"));
    for version in ["-tls1_2", "-tls1_3"] {
        for suite in ["AES128-GCM", "AES256-GCM", "CHACHA20"] {
            let suites_13 = match suite {
                "AES128-GCM" => "TLS_AES_128_GCM_SHA256",
                "AES256-GCM" => "TLS_AES_256_GCM_SHA384",
                _ => "TLS_CHACHA20_POLY1305_SHA256",
            };
            let suites_12 = match suite {
                "AES128-GCM" => "ECDHE-ECDSA-AES128-GCM-SHA256",
                "AES256-GCM" => "ECDHE-ECDSA-AES256-GCM-SHA384",
                _ => "ECDHE-ECDSA-CHACHA20-POLY1305",
            };
            let identity = ["-cert", &cert, "-key", &key, "-ciphersuites", suites_13, "-cipher", suites_12];
            let mut openssl =
                s_client(&server, &files, &[&[version, "-quiet", "-no_ign_eof"][..], &identity].concat());
            openssl.write("hello from openssl\n");
            openssl.wait_for("hello from openssl");
            openssl.write(&"x".repeat(100_000));
            openssl.write("\nthe end\n");
            openssl.wait_for("the end");
            let output = openssl.finish();
            assert!(!output.contains("error"), "{version} {suite}: {output}");
        }
        let refused = s_client(&server, &files, &[version, "-quiet"]).finish();
        assert!(refused.contains("alert"), "{version} without a certificate: {refused}");
    }
    let refused = s_client(&server, &files, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]).finish();
    assert!(refused.contains("alert") || refused.contains("error"), "{refused}");
}

#[test]
fn openssl_s_client_resumes_updates_keys_and_is_refused_a_renegotiation() {
    if OpenSsl::is_missing() {
        return;
    }
    let files = Files::new("s-client-more");
    let server = mirror(&format!("tls://127.0.0.1:0?{}", files.of_server()), |server| server);
    for version in ["-tls1_2", "-tls1_3"] {
        let session = files.shown("session");
        let mut first = s_client(&server, &files, &[version, "-sess_out", &session]);
        first.write("once\n");
        first.wait_for("\nonce");
        first.write("Q\n");
        assert!(first.finish().contains("New, TLS"), "{version}");
        let mut second = s_client(&server, &files, &[version, "-sess_in", &session]);
        second.write("twice\n");
        second.wait_for("\ntwice");
        second.write("Q\n");
        let output = second.finish();
        assert!(output.contains("Reused, TLS"), "{version}: {output}");
    }
    let mut updates = s_client(&server, &files, &["-tls1_3"]);
    for command in ["k\n", "K\n", "K\n"] {
        updates.write(command);
        updates.wait_for("KEYUPDATE");
        updates.seen.clear();
        updates.write("goes on\n");
        updates.wait_for("goes on");
    }
    drop(updates);
    let mut renegotiates = s_client(&server, &files, &["-tls1_2"]);
    renegotiates.write("hello\n");
    renegotiates.wait_for("\nhello");
    renegotiates.write("R\n");
    let output = renegotiates.finish();
    assert!(output.contains("no renegotiation"), "{output}");
    // The server goes on.
    let mut next = s_client(&server, &files, &["-tls1_2"]);
    next.write("still here\n");
    next.wait_for("\nstill here");
}

#[test]
fn a_client_talks_to_openssl_s_server_in_both_versions() {
    if OpenSsl::is_missing() {
        return;
    }
    let files = Files::new("s-server");
    let (cert, key, ca) = (files.shown("server.pem"), files.shown("server.key"), files.shown("ca.pem"));
    for version in ["-tls1_2", "-tls1_3"] {
        // Port 0: it says which one it got.
        let mut openssl = OpenSsl::start(&[
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            &cert,
            "-key",
            &key,
            "-CAfile",
            &ca,
            "-Verify",
            "1",
            "-verify_return_error",
            version,
            "-rev",
            "-alpn",
            "rev/1",
        ]);
        openssl.wait_for("ACCEPT 127.0.0.1:");
        while !openssl.seen.split("ACCEPT 127.0.0.1:").nth(1).unwrap_or_default().contains('\n') {
            let piece = openssl.output.recv_timeout(PATIENCE).unwrap();
            openssl.seen += &String::from_utf8_lossy(&piece);
        }
        let port = openssl.seen.split("ACCEPT 127.0.0.1:").nth(1).unwrap().split('\n').next().unwrap().trim();
        let uri = format!("tls://localhost:{port}?{}&{}&alpn=rev/1", files.ca(), files.of_client());
        for _ in 0..2 {
            let client = NetUri::parse(&uri)
                .unwrap()
                .client()
                .codec(corewire::LineCodec::new)
                .connect_blocking()
                .unwrap();
            assert_eq!(&block_on(client.request(b"stressed")).unwrap()[..], b"desserts", "{version}");
            block_on(client.close()).unwrap();
        }
    }
}

/// A client by `rustls` alone, whose handshake is done.
fn raw_client(server: &ServerHandle, files: &Files) -> (corewire::tls::rustls::ClientConnection, TcpStream) {
    use corewire::tls::rustls::pki_types::CertificateDer;
    use corewire::tls::rustls::pki_types::pem::PemObject;
    use corewire::tls::rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs};
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.path("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut socket = TcpStream::connect(server.local_addrs()[0]).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    (client, socket)
}

/// Until the server ends the connection.
fn read_to_the_end(socket: &mut TcpStream) {
    let mut piece = [0; 65_536];
    while let Ok(1..) = socket.read(&mut piece) {}
}

#[test]
fn a_record_that_trickles_in_is_a_frame_that_is_too_slow() {
    let files = Files::new("trickle");
    let rate = RateMin { bytes_per_second: 1000, window: Duration::from_millis(100) };
    let uri = format!("tls://127.0.0.1:0?{}", files.of_server());
    let server = mirror(&uri, |server| server.rate_min(Some(rate)));
    let (_client, mut socket) = raw_client(&server, &files);
    // The beginning of a record of 16 KiB.
    socket.write_all(&[23, 3, 3, 64, 0, 1, 2, 3]).unwrap();
    read_to_the_end(&mut socket);
}

#[test]
fn a_record_that_is_too_long_ends_its_connection_at_once() {
    let files = Files::new("too-long");
    let server = mirror(&format!("tls://127.0.0.1:0?{}", files.of_server()), |server| server);
    let (_client, mut socket) = raw_client(&server, &files);
    socket.write_all(&[23, 3, 3, 255, 255]).unwrap();
    read_to_the_end(&mut socket);
}

#[test]
fn peers_that_never_read_are_held_back_and_their_memory_is_counted() {
    let files = Files::new("never-reads");
    let uri = format!("tls://127.0.0.1:0?{}", files.of_server());
    let server = mirror(&uri, |server| server.memory_limit(64 << 20));
    let (mut client, mut socket) = raw_client(&server, &files);
    socket.set_nonblocking(true).unwrap();
    let piece = vec![1; 65_536];
    let mut blocked = 0;
    // What the kernel and both queues take, and no more.
    while blocked < 300 {
        if client.wants_write() {
            match client.write_tls(&mut socket) {
                Ok(_) => blocked = 0,
                Err(_) => {
                    blocked += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        } else {
            client.writer().write_all(&piece).unwrap();
        }
    }
    let held = server.stats().workers;
    let total = held.send_queue_bytes + held.deferred_bytes + held.transport_bytes + held.reassembly_bytes;
    assert!(total < 8 << 20, "{held:?}");
    drop((client, socket));
    let until = Instant::now() + PATIENCE;
    while server.stats().workers.send_queue_bytes + server.stats().workers.transport_bytes > 0 {
        assert!(Instant::now() < until, "{:?}", server.stats().workers);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn handshakes_that_never_end_hold_memory_that_is_counted_and_given_back() {
    let files = Files::new("half-open");
    let server = mirror(&format!("tls://127.0.0.1:0?{}", files.of_server()), |server| server);
    let sockets: Vec<_> = (0..50).map(|_| TcpStream::connect(server.local_addrs()[0]).unwrap()).collect();
    for mut socket in &sockets {
        socket.write_all(&[22, 3, 1]).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    let held = |is_due: &dyn Fn(u64) -> bool| {
        while !is_due(server.stats().workers.transport_bytes) {
            assert!(Instant::now() < until, "{:?}", server.stats().workers);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    held(&|bytes| bytes > 50 * 10_000);
    drop(sockets);
    held(&|bytes| bytes == 0);
}
