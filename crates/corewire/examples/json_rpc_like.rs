//! Calls with JSON objects in the manner of JSON-RPC: `cargo run -p corewire --example json_rpc_like`.
//!
//! Two codecs in a row: SRMP frames carry the numbers by which replies find their calls, JSON the values.

use std::error::Error;

use corewire::proto::codec::JsonCodec;
use corewire::{NetServer, NetUri, Session, StandardCodec, block_on, objects};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case")]
enum Request {
    Add(Vec<f64>),
    Greet { name: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    Sum(f64),
    Greeting(String),
}

fn answer(request: Request) -> Response {
    match request {
        Request::Add(numbers) => Response::Sum(numbers.iter().sum()),
        Request::Greet { name } => Response::Greeting(format!("Hello, {name}!")),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The data kind tells other SRMP peers that payloads are JSON.
    let framing = || StandardCodec::new().data_kind(StandardCodec::JSON).unwrap_or_default();
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(framing)
        .handler(|| {
            let codec = JsonCodec::<Request, Response>::new();
            objects(codec, |_: &Session, _, request| Some(answer(request)))
        })
        .workers(1)
        .start()?;

    // A client outside of workers, used from this plain thread.
    let client = NetUri::parse(server.uri())?.client().codec(framing).connect_blocking()?;
    for request in [Request::Add(vec![40.0, 2.0]), Request::Greet { name: "Corewire".to_owned() }] {
        let response = block_on(client.request_object(JsonCodec::<Response, Request>::new(), &request))?;
        println!("{request:?} -> {response:?}");
    }

    // What is no such object is answered with an error, and the session goes on.
    match block_on(client.request(b"{\"method\":\"divide\"}")) {
        Ok(reply) => println!("unexpected: {reply:?}"),
        Err(error) => println!("divide -> {error}"),
    }
    println!("{}", server.shutdown(std::time::Duration::from_secs(1)));
    Ok(())
}
