//! An HTTP client made for tokio in a server of Corewire: `cargo run -p corewire --features tokio --example http_client`.
//!
//! The server takes a path in each request, fetches it by the pooled client of hyper-util, which is what reqwest is built
//! on, and replies with what came. Any other library of tokio (sqlx, redis, …) is used in the same way: the only thing
//! that makes it work is `.tokio(…)`.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use corewire::{NetServer, NetUri, StandardCodec, TokioContext};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

async fn fetch(http: &HttpClient, upstream: SocketAddr, path: &str) -> Result<Bytes, Box<dyn Error>> {
    let response = http.get(format!("http://{upstream}{path}").parse()?).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

/// What is fetched from: an HTTP server on tokio that says which path was asked for.
async fn serve_http(listener: tokio::net::TcpListener) -> Result<(), std::io::Error> {
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service_fn(|request: Request<Incoming>| async move {
            let text = format!("this is {}", request.uri().path());
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // A runtime of tokio that the program has anyway; without one, `.tokio(TokioContext::own())` below.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = tokio.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let upstream = listener.local_addr()?;
    tokio.spawn(serve_http(listener));

    // Shared by all workers, with its pool of connections, as on tokio.
    let http: HttpClient = Client::builder(TokioExecutor::new()).build_http();
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .serve(move |mut session| {
            let http = http.clone();
            async move {
                while let Some(message) = session.next().await {
                    let path = String::from_utf8_lossy(&message.payload);
                    let sent = match fetch(&http, upstream, &path).await {
                        Ok(body) => session.reply(&message, &body).await,
                        Err(error) => session.reply_error(&message, error.to_string().as_bytes()).await,
                    };
                    if sent.is_err() {
                        break;
                    }
                }
            }
        })
        .tokio(TokioContext::from(tokio.handle().clone()))
        .workers(2)
        .start()?;

    let client = NetUri::parse(server.uri())?.client().codec(StandardCodec::default).connect_blocking()?;
    for path in ["/one", "/two"] {
        let reply = corewire::block_on(client.request(path.as_bytes()))?;
        println!("{path} -> {}", String::from_utf8_lossy(&reply));
        assert_eq!(reply, format!("this is {path}"));
    }
    Ok(())
}
