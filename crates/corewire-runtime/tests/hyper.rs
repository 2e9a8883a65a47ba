//! hyper on workers, HTTP/1 and HTTP/2, on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::time::Duration;

use corewire_runtime::{
    HyperExecutor, HyperTimer, TcpListener, TcpStream, sleep, spawn_blocking, spawn_local, timeout,
};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, client, server};

/// Long enough for a loaded machine; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn run<F: Future<Output = ()> + 'static>(test: F) {
    corewire_runtime::run(async { timeout(PATIENCE, test).await.expect("the test hangs") }).unwrap();
}

/// Echoes bodies; a GET is answered with as many bytes as its path says.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        let len = request.uri().path()[1..].parse().unwrap();
        return Ok(Response::new(Full::new(pattern(len))));
    }
    Ok(match request.into_body().collect().await {
        Ok(body) => Response::new(Full::new(body.to_bytes())),
        Err(_) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    })
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Http1,
    Http2,
}

#[derive(Clone)]
struct Server {
    address: SocketAddr,
    /// Connections that ended, with an error or without.
    ended: Rc<Cell<[usize; 2]>>,
}

fn serve(protocol: Protocol) -> Server {
    serve_within(protocol, PATIENCE)
}

/// Serves on the current worker. Who is silent for so long within a request's headers, or does not answer a ping, is
/// closed.
fn serve_within(protocol: Protocol, silence_max: Duration) -> Server {
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = Server { address: listener.local_addr().unwrap(), ended: Rc::default() };
    let ended = server.ended.clone();
    drop(spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let ended = ended.clone();
            drop(spawn_local(async move {
                let service = service_fn(answer);
                let served = match protocol {
                    Protocol::Http1 => {
                        let mut builder = server::conn::http1::Builder::new();
                        builder.timer(HyperTimer).header_read_timeout(silence_max);
                        builder.serve_connection(stream, service).await
                    }
                    Protocol::Http2 => {
                        let mut builder = server::conn::http2::Builder::new(HyperExecutor);
                        builder.timer(HyperTimer).keep_alive_interval(silence_max);
                        builder.keep_alive_timeout(silence_max);
                        builder.serve_connection(stream, service).await
                    }
                };
                let [good, bad] = ended.get();
                ended.set(if served.is_ok() { [good + 1, bad] } else { [good, bad + 1] });
            }));
        }
    }));
    server
}

impl Server {
    async fn until_ended(&self, count: [usize; 2]) {
        while self.ended.get() != count {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

enum Sender {
    Http1(client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn connect(protocol: Protocol, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = client::conn::http1::handshake(stream).await.unwrap();
                drop(spawn_local(connection));
                Self::Http1(sender)
            }
            Protocol::Http2 => {
                let mut builder = client::conn::http2::Builder::new(HyperExecutor);
                builder.timer(HyperTimer);
                let (sender, connection) = builder.handshake(stream).await.unwrap();
                drop(spawn_local(connection));
                Self::Http2(sender)
            }
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Bytes {
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(request).await,
        };
        let response = response.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap().to_bytes()
    }

    async fn get(&mut self, len: usize) -> Bytes {
        self.send(Request::get(format!("http://localhost/{len}")).body(Full::default()).unwrap()).await
    }

    async fn post(&mut self, body: Bytes) -> Bytes {
        self.send(Request::post("http://localhost/").body(Full::new(body)).unwrap()).await
    }
}

#[test]
fn requests_and_bodies_of_all_sizes_pass_on_one_connection() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        run(async move {
            let server = serve(protocol);
            let mut sender = Sender::connect(protocol, server.address).await;
            for len in [0, 1, 1_000, 70_000, 3_000_000] {
                assert_eq!(sender.get(len).await, pattern(len));
                assert_eq!(sender.post(pattern(len)).await, pattern(len));
            }
            drop(sender);
            server.until_ended([1, 0]).await;
        });
    }
}

#[test]
fn many_requests_are_in_flight_at_once() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        run(async move {
            let server = serve(protocol);
            let shared = match Sender::connect(protocol, server.address).await {
                Sender::Http2(sender) => Some(sender),
                Sender::Http1(_) => None,
            };
            let tasks: Vec<_> = (0..50)
                .map(|number| {
                    let (address, shared) = (server.address, shared.clone());
                    spawn_local(async move {
                        // HTTP/2: streams of one connection. HTTP/1: a connection each.
                        let mut sender = match shared {
                            Some(sender) => Sender::Http2(sender),
                            None => Sender::connect(protocol, address).await,
                        };
                        for round in 0..20 {
                            let len = number * 100 + round;
                            assert_eq!(sender.post(pattern(len)).await, pattern(len));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}

#[test]
fn a_client_that_does_not_finish_its_headers_or_answer_pings_is_closed_by_the_timer() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        run(async move {
            let server = serve_within(protocol, Duration::from_millis(50));
            let address = server.address;
            let silent = spawn_blocking(move || {
                let mut stream = StdStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let half: &[u8] = match protocol {
                    Protocol::Http1 => b"GET / HT",
                    Protocol::Http2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
                };
                stream.write_all(half).unwrap();
                let mut got = Vec::new();
                // Ends when the server closes, by an end or a reset.
                drop(stream.read_to_end(&mut got));
                got
            });
            silent.await.unwrap();
            server.until_ended([0, 1]).await;
        });
    }
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_a_body_ends_its_connection_only() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        run(async move {
            let server = serve(protocol);
            let mut stays = Sender::connect(protocol, server.address).await;
            assert_eq!(stays.get(10).await, pattern(10));
            let mut goes = Sender::connect(protocol, server.address).await;
            assert_eq!(goes.get(1).await, pattern(1));
            // Wherever it is then: before the request, in the head or in the body.
            drop(timeout(Duration::from_millis(5), goes.get(5_000_000)).await);
            drop(goes);
            while server.ended.get() == [0, 0] {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(stays.get(1_000).await, pattern(1_000));
        });
    }
}

#[test]
fn a_graceful_shutdown_answers_what_was_asked() {
    run(async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let client = spawn_local(async move {
            let mut sender = Sender::connect(Protocol::Http2, address).await;
            sender.post(pattern(300_000)).await
        });
        let (stream, _) = listener.accept().await.unwrap();
        let asked = Rc::new(Cell::new(false));
        let note = asked.clone();
        let service = service_fn(move |request| {
            note.set(true);
            answer(request)
        });
        let connection = server::conn::http2::Builder::new(HyperExecutor).serve_connection(stream, service);
        let mut connection = std::pin::pin!(connection);
        std::future::poll_fn(|context| {
            let polled = connection.as_mut().poll(context);
            if polled.is_pending() && asked.take() {
                connection.as_mut().graceful_shutdown();
                return connection.as_mut().poll(context);
            }
            polled
        })
        .await
        .unwrap();
        assert_eq!(client.await.unwrap(), pattern(300_000));
    });
}

#[test]
fn a_timer_of_hyper_can_be_set_anew_and_moved_between_threads() {
    use hyper::rt::Timer;
    run(async {
        let begun = HyperTimer.now();
        let mut later = HyperTimer.sleep(PATIENCE * 2);
        assert!(timeout(Duration::from_millis(1), &mut later).await.is_err());
        HyperTimer.reset(&mut later, begun + Duration::from_millis(20));
        later.await;
        assert!(HyperTimer.now() >= begun + Duration::from_millis(20));

        // Armed here, and dropped on a thread that is no worker.
        let mut moved = HyperTimer.sleep(PATIENCE * 2);
        assert!(timeout(Duration::from_millis(1), &mut moved).await.is_err());
        spawn_blocking(move || drop(moved)).await.unwrap();
        // Armed on one worker, ends on another.
        let mut moved = HyperTimer.sleep(PATIENCE * 2);
        assert!(timeout(Duration::from_millis(1), &mut moved).await.is_err());
        let other = spawn_blocking(move || {
            HyperTimer.reset(&mut moved, begun + Duration::from_millis(30));
            corewire_runtime::run(moved).unwrap();
        });
        other.await.unwrap();
        assert!(HyperTimer.now() >= begun + Duration::from_millis(30));
    });
}
