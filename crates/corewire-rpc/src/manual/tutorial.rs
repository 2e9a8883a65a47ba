//! A service, from nothing to a test.
//!
//! A service is a trait of asynchronous functions; [`#[service]`](macro@crate::service) makes a server of what implements it,
//! and a client. Messages are serde types.
//!
//! ```
//! use corewire_rpc::{Channel, Code, Context, RpcServer, Status, Stream, Streaming};
//! use serde::{Deserialize, Serialize};
//!
//! #[corewire_rpc::message] // compact binary; `message(json)` writes JSON
//! #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
//! pub struct Reading {
//!     pub celsius: f64,
//! }
//!
//! #[corewire_rpc::service(name = "demo.Climate")]
//! pub trait Climate {
//!     /// One request, one response; safe to repeat, and of no use after two seconds.
//!     #[rpc(idempotent, timeout = "2s")]
//!     async fn fahrenheit(&self, reading: Reading, call: Context) -> Result<Reading, Status>;
//!     /// Any number of requests, one response.
//!     async fn mean(&self, readings: Streaming<Reading>) -> Result<Reading, Status>;
//!     /// One request, any number of responses.
//!     async fn forecast(&self, now: Reading) -> Result<impl Stream<Item = Reading>, Status>;
//! }
//!
//! struct Station;
//!
//! impl Climate for Station {
//!     async fn fahrenheit(&self, reading: Reading, call: Context) -> Result<Reading, Status> {
//!         if reading.celsius < -273.15 {
//!             return Err(Status::new(Code::INVALID_ARGUMENT, "colder than cold"));
//!         }
//!         // Version 1 of the wire carries no metadata: this is for clients of version 2.
//!         call.add_trailer("unit", "fahrenheit")?;
//!         Ok(Reading { celsius: reading.celsius * 9.0 / 5.0 + 32.0 })
//!     }
//!
//!     async fn mean(&self, mut readings: Streaming<Reading>) -> Result<Reading, Status> {
//!         let (mut count, mut sum) = (0, 0.0);
//!         while let Some(reading) = readings.next().await {
//!             sum += reading?.celsius;
//!             count += 1;
//!         }
//!         Ok(Reading { celsius: sum / f64::from(count.max(1)) })
//!     }
//!
//!     async fn forecast(&self, now: Reading) -> Result<impl Stream<Item = Reading>, Status> {
//!         let days = (1..=3).map(move |day| Reading { celsius: now.celsius + f64::from(day) });
//!         Ok(futures_lite::stream::iter(days))
//!     }
//! }
//!
//! // `run()` instead of `start()` serves until Ctrl-C; `workers(1)` keeps the example small.
//! let server =
//!     RpcServer::bind("tcp://127.0.0.1:0").service(ClimateServer::new(Station)).workers(1).start()?;
//! let climate = ClimateClient::new(Channel::to(server.uri()).build()?);
//!
//! corewire::block_on(async {
//!     let warm = Reading { celsius: 20.0 };
//!     let (there, metadata) = climate.fahrenheit(warm.clone()).with_metadata().await?;
//!     assert_eq!((there.celsius, metadata.get_str("unit")), (68.0, Some("fahrenheit")));
//!
//!     let (mut readings, mean) = climate.mean().await?;
//!     for celsius in [18.0, 22.0] {
//!         readings.send(Reading { celsius }).await?; // waits while the server does not keep up
//!     }
//!     drop(readings); // or `finish().await`, which tells whether the end was sent
//!     assert_eq!(mean.await?.celsius, 20.0);
//!
//!     let mut days = climate.forecast(warm).await?;
//!     assert_eq!(days.next().await.transpose()?, Some(Reading { celsius: 21.0 }));
//!     Ok::<(), Status>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A handler runs on the worker of its connection, and need not be `Send`. It is dropped when its client cancels, when its
//! deadline passes, and when the connection is lost. A panic fails its call as [`Code::INTERNAL`](crate::Code::INTERNAL) and
//! nothing else. Without the macro a service is made by hand: see [`Service`](crate::Service).
//!
//! A [`Channel`](crate::Channel) connects when it is first used, and again when that is lost. It is `Send`, `Sync` and cheap to
//! clone; calls can be made from any thread and any executor, and their futures can be spawned.
