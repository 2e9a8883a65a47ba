//! `corewire serve rpc`: what galay's benchmark clients call.

use corewire::ServerHandle;
use corewire_rpc::health::Health;
use corewire_rpc::{Bytes, Context, RpcServer, Service, Sink, Status, Streaming};

use super::{address, settings};
use crate::args::ServeArgs;
use crate::failure::Failure;

pub(super) fn start(args: &ServeArgs) -> Result<ServerHandle, Failure> {
    RpcServer::bind(address(args)?)
        .net(|net| settings(args, net))
        .service(echo("BenchEchoService"))
        .service(echo("EchoService"))
        .stream_route("StreamBenchService", "echo", echo_all)
        .health(&Health::new())
        .listing()
        .start()
        .map_err(|error| Failure::Library(error.to_string()))
}

/// Echoes in all four modes: every request is answered by a response of the same payload, a client stream by that of
/// its last request.
pub(crate) fn echo(name: &str) -> Service {
    Service::new(name)
        .unary("echo", |request: Bytes, _: Context| async move { Ok(request) })
        .client_stream("echo", |mut requests: Streaming, _: Context| async move {
            let mut last = Bytes::new();
            while let Some(request) = requests.next().await {
                last = request?;
            }
            Ok(last)
        })
        .server_stream("echo", |request: Bytes, mut responses: Sink, _: Context| async move {
            responses.send(request).await
        })
        .bidi("echo", echo_all)
}

async fn echo_all(mut requests: Streaming, mut responses: Sink, _: Context) -> Result<(), Status> {
    while let Some(request) = requests.next().await {
        responses.send(request?).await?;
    }
    Ok(())
}
