//! Authentication, logging and metrics around calls, on both sides, which the handlers know nothing of.
//!
//!     cargo run -p corewire-rpc --example rpc_interceptors

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use corewire_rpc::{
    CallOptions, Channel, ClientInterceptor, Code, Context, Metadata, MethodPath, RpcServer,
    ServerInterceptor, Service, Status,
};

/// Server: lets in whoever has the token, and says who served the call.
struct Authentication {
    token: &'static str,
}

impl ServerInterceptor for Authentication {
    fn on_call(&self, call: &Context) -> Result<(), Status> {
        match call.metadata().get_str("authorization") {
            Some(token) if is_same(token, self.token) => {
                // A client of version 1 carries no metadata, and so never comes here.
                Ok(call.add_header("served-by", "example")?)
            }
            Some(_) => Err(Status::new(Code::UNAUTHENTICATED, "this token is not valid")),
            None => Err(Status::new(Code::UNAUTHENTICATED, "send a token as metadata `authorization`")),
        }
    }
}

/// Compares in a time that does not tell how much of a guess was right.
fn is_same(one: &str, two: &str) -> bool {
    let differences = one.bytes().zip(two.bytes()).fold(0, |found, (a, b)| found | (a ^ b));
    one.len() == two.len() && differences == 0
}

/// Server: a line for each call.
struct Logging;

impl ServerInterceptor for Logging {
    fn on_end(&self, call: &Context, code: Code, took: Duration) {
        let peer = call.peer_addr().map_or_else(|| "a local peer".to_owned(), |peer| peer.to_string());
        let trace = call.trace().map_or_else(|| "-".to_owned(), |trace| trace.to_string());
        println!(
            "{peer} {}/{}: code {} after {took:?}, trace {trace}",
            call.service(),
            call.method(),
            code.0
        );
    }
}

/// Both sides: how many calls, how many of them failed, and how long they took.
#[derive(Default)]
struct Metrics {
    calls: AtomicU64,
    failures: AtomicU64,
    micros: AtomicU64,
}

impl Metrics {
    fn note(&self, code: Code, took: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(!code.is_ok()), Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn print(&self, side: &str) {
        let [calls, failures, micros] =
            [&self.calls, &self.failures, &self.micros].map(|count| count.load(Ordering::Relaxed));
        println!("{side}: {calls} calls, {failures} failed, {} µs on average", micros / calls.max(1));
    }
}

struct Measured(Arc<Metrics>);

impl ServerInterceptor for Measured {
    fn on_end(&self, _: &Context, code: Code, took: Duration) {
        self.0.note(code, took);
    }
}

impl ClientInterceptor for Measured {
    fn on_end(&self, _: &MethodPath, code: Code, took: Duration) {
        self.0.note(code, took);
    }
}

/// Client: sends the token with each call, and looks at what comes back.
struct Token(&'static str);

impl ClientInterceptor for Token {
    fn on_call(&self, _: &MethodPath, options: &mut CallOptions) -> Result<(), Status> {
        options.add_metadata("authorization", self.0);
        Ok(())
    }

    fn on_metadata(&self, _: &MethodPath, metadata: &Metadata) {
        if let Some(server) = metadata.get_str("served-by") {
            println!("served by {server}");
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (at_server, at_client) = (Arc::new(Metrics::default()), Arc::new(Metrics::default()));
    let echo = Service::new("Echo").unary("echo", |said: Bytes, _: Context| async move { Ok(said) });
    // The first one sees a call first and its end last, so that it also counts those that others refuse.
    let server = RpcServer::bind("tcp://127.0.0.1:0")
        .service(echo)
        .interceptor(Measured(at_server.clone()))
        .interceptor(Logging)
        .interceptor(Authentication { token: "open sesame" })
        .workers(1)
        .start()?;

    let stranger = Channel::to(server.uri()).build()?;
    let friend = Channel::to(server.uri())
        .interceptor(Measured(at_client.clone()))
        .interceptor(Token("open sesame"))
        .build()?;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse()?;
    corewire::block_on(async {
        if let Err(refused) = stranger.unary("Echo/echo", "let me in").await {
            println!("the stranger: {refused}");
        }
        let said = friend.unary("Echo/echo", "hello").trace(trace).await?;
        println!("the friend: {}", String::from_utf8_lossy(&said));
        Ok::<(), Status>(())
    })?;
    at_client.print("the friend's calls");
    at_server.print("the server's calls");
    Ok(())
}
