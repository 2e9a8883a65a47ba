//! What `#[service]` takes: names of the wire, options of methods, conditions, names that are in the way, other names of types.
#![allow(clippy::unwrap_used)]
#![expect(clippy::wrong_self_convention, reason = "names that are in the way are what is tested")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use corewire::block_on;
use corewire_rpc::{Bytes, Channel, Code, Retry, RpcServer, Status, Stream, Version};
use support::channel;

use corewire_rpc::Context as Call;

type Lines = corewire_rpc::Streaming<Bytes>;

/// A message that is called as the context is.
mod messages {
    #[corewire_rpc::message]
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub(crate) struct Context(pub(crate) u32);
}

#[corewire_rpc::service(name = "demo.Odd", rename_all = "PascalCase")]
trait Odd {
    async fn say_hello(&self, name: Bytes) -> Result<Bytes, Status>;

    #[rpc(name = "bye")]
    async fn say_goodbye(&self) -> Result<Bytes, Status>;

    async fn r#type(&self, name: Bytes) -> Result<Bytes, Status>;

    /// Methods whose names the client and the handler use too.
    async fn new(&self, name: Bytes) -> Result<Bytes, Status>;
    async fn channel(&self) -> Result<Bytes, Status>;
    async fn clone(&self) -> Result<Bytes, Status>;

    #[cfg(target_os = "none")]
    async fn of_another_system(&self, what: NoSuchType) -> Result<NoSuchType, Status>;

    #[cfg(test)]
    async fn of_this_system(&self) -> Result<Bytes, Status>;

    async fn aliased(
        &self,
        #[rpc(streaming)] lines: Lines,
        #[rpc(context)] call: Call,
    ) -> Result<impl Stream<Item = Result<Bytes, Status>>, Status>;

    async fn by_path(
        &self,
        lines: corewire_rpc::Streaming,
        call: corewire_rpc::Context,
    ) -> Result<Bytes, Status>;

    async fn message(&self, #[rpc(message)] context: messages::Context) -> Result<messages::Context, Status>;

    #[rpc(idempotent, timeout = "30s")]
    async fn flaky(&self, call: corewire_rpc::Context) -> Result<Bytes, Status>;
}

#[derive(Default)]
struct Mine {
    calls: AtomicUsize,
}

impl Odd for Mine {
    async fn say_hello(&self, name: Bytes) -> Result<Bytes, Status> {
        Ok([&b"hello "[..], &name].concat().into())
    }

    async fn say_goodbye(&self) -> Result<Bytes, Status> {
        Ok("bye".into())
    }

    async fn r#type(&self, name: Bytes) -> Result<Bytes, Status> {
        Ok(name)
    }

    async fn new(&self, name: Bytes) -> Result<Bytes, Status> {
        Ok(name)
    }

    async fn channel(&self) -> Result<Bytes, Status> {
        Ok("channel".into())
    }

    async fn clone(&self) -> Result<Bytes, Status> {
        Ok("clone".into())
    }

    async fn of_this_system(&self) -> Result<Bytes, Status> {
        Ok("here".into())
    }

    async fn aliased(
        &self,
        lines: Lines,
        call: Call,
    ) -> Result<impl Stream<Item = Result<Bytes, Status>>, Status> {
        assert_eq!(call.method(), "Aliased");
        Ok(lines)
    }

    async fn by_path(&self, mut lines: Lines, call: Call) -> Result<Bytes, Status> {
        while lines.next().await.transpose()?.is_some() {}
        Ok(Bytes::from(call.method().to_owned()))
    }

    async fn message(&self, context: messages::Context) -> Result<messages::Context, Status> {
        Ok(context)
    }

    async fn flaky(&self, call: Call) -> Result<Bytes, Status> {
        let left = call.time_left().unwrap_or_default().as_secs();
        assert!((20..=30).contains(&left), "{left}");
        match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Status::new(Code::UNAVAILABLE, "not yet")),
            _ => Ok("got".into()),
        }
    }
}

#[test]
fn a_service_has_the_names_and_options_that_it_is_given() {
    let server = RpcServer::bind("tcp://127.0.0.1:0")
        .service(OddServer::new(Mine::default()))
        .workers(1)
        .start()
        .unwrap();
    let odd = OddClient::from(Channel::to(server.uri()).retry(Retry::default()).build().unwrap());
    block_on(async {
        assert_eq!(odd.say_hello("ann".into()).await?, "hello ann");
        assert_eq!(odd.say_goodbye().await?, "bye");
        assert_eq!(odd.r#type("t".into()).await?, "t");
        assert_eq!(odd.new("n".into()).await?, "n");
        assert_eq!(odd.channel().await?, "channel");
        assert_eq!(OddClient::clone(&odd).await?, "clone");
        assert_eq!(odd.of_this_system().await?, "here");
        assert_eq!(odd.message(messages::Context(7)).await?, messages::Context(7));
        let (sink, mut lines) = odd.aliased().only("line".into()).await?;
        drop(sink);
        assert_eq!(lines.next().await.transpose()?.unwrap(), "line");
        let (_sink, name) = odd.by_path().only("x".into()).await?;
        assert_eq!(name.await?, "ByPath");
        assert_eq!(odd.flaky().await?, "got", "it is idempotent, and so retried");

        let raw: &Channel = odd.as_ref();
        for path in ["demo.Odd/SayHello", "demo.Odd/Type", "demo.Odd/New"] {
            raw.unary(path, "x").await?;
        }
        assert_eq!(raw.unary("demo.Odd/bye", "").await?, "bye");
        let unknown = raw.unary("demo.Odd/say_hello", "").await.unwrap_err();
        assert_eq!(unknown.code(), Code::METHOD_NOT_FOUND);
        Ok::<(), Status>(())
    })
    .unwrap();
    drop(channel(&server, Version::V2));
}
