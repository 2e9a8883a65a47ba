//! hyper on Corewire's workers: `cargo run -p corewire --features hyper --example http_server [ADDRESS:PORT]`.
//!
//! Each worker listens on the port and serves its connections, HTTP/1 and HTTP/2 (with prior knowledge), where they were
//! accepted: services need not be `Send`, and nothing is shared between workers unless you share it.
//!
//! ```sh
//! curl http://127.0.0.1:8080/hello
//! curl --http2-prior-knowledge http://127.0.0.1:8080/hello
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;

use corewire::runtime::driver::net::{ListenOptions, StreamOptions};
use corewire::runtime::{HyperExecutor, HyperTimer, Runtime, TcpListener, TcpStream, spawn_local};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::server::conn::auto;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("{} by {:?}\n", request.uri().path(), request.version());
    Ok(Response::new(Full::new(Bytes::from(text))))
}

async fn serve_connection(stream: TcpStream) {
    let mut builder = auto::Builder::new(HyperExecutor);
    // Closes who does not send the head of a request within 30 s.
    builder.http1().timer(HyperTimer);
    builder.http2().timer(HyperTimer);
    if let Err(error) = builder.serve_connection(stream, service_fn(answer)).await {
        eprintln!("a connection ended: {error}");
    }
}

async fn serve(address: SocketAddr) -> io::Result<()> {
    let mut options = ListenOptions::default();
    options.reuse_port = true;
    let mut listener = TcpListener::bind_with(address, &options, StreamOptions::default())?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn_local(serve_connection(stream))),
            Err(error) => eprintln!("a connection was lost before it could be served: {error}"),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned()).parse()?;
    let runtime = Runtime::new()?;
    println!("http://{address}/ on {} workers", runtime.handle().workers());
    let workers: Result<Vec<_>, _> = (0..runtime.handle().workers())
        .map(|worker| runtime.handle().spawn_on(worker, move || serve(address)))
        .collect();
    for worker in workers? {
        worker.join()??;
    }
    Ok(())
}
