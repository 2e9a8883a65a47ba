//! The RPC protocol, versions 1 (galay-rpc's) and 2 (`docs/rpc-protocol-v2.md`).
//!
//! [`Connection`] is the state machine of one connection, the same for clients and servers: one mechanism with two
//! halves per call, of which unary, client-stream, server-stream and bidi calls and the `STREAM_*` family are
//! settings. [`Reassembly`] joins received chunks. [`Frame`] reads and writes single frames, for tools and tests.
//!
//! What a call means is the same in both; where the versions differ is in `connection/dialect.rs`, and what each writes in
//! `connection/emit.rs`. Where version 1 leaves room, this is decided:
//!
//! - Responses may come in any order, since clients match them by id. A server whose handlers answer inline answers in
//!   order, as the original does.
//! - A half of one message ends with it, flagged END_STREAM or not. In a half of many, an empty frame with END_STREAM
//!   that is not the first is an end without a message.
//! - Further requests of a client stream repeat the names; another name, another mode or a finished half under an id in
//!   flight is an id used twice, and closes the connection.
//! - A cancelled call goes on at the server; its id stays in use until the response, which is dropped, has come.
//! - A refused call of which more frames may come is remembered until its END_STREAM.
//! - A client sends on a stream after STREAM_INIT_ACK. STREAM_CANCEL ends both halves and is not answered; frames that
//!   cross it are dropped, and so are those of streams that never were.
//! - Heartbeat and error frames, which have no meaning, are stepped over.
//! - There are no credits: a call over its window pauses reading for the whole connection.
//!
//! The receiving side of a server, for each chunk that arrives:
//!
//! ```
//! use std::time::Duration;
//! use bytes::Bytes;
//! use corewire_proto::rpc::{Advance, Code, Connection, ConnectionError, Event, Failure, Reassembly};
//!
//! /// Most bytes that may wait to be sent before reading stops.
//! const HIGH_WATER: usize = 1 << 20;
//!
//! struct Server {
//!     machine: Connection,
//!     inbox: Reassembly,
//!     out: Vec<u8>,
//! }
//!
//! impl Server {
//!     fn on_received(&mut self, chunk: Bytes, now: Duration) -> Result<(), ConnectionError> {
//!         let Self { machine, inbox, out } = self;
//!         let received = inbox.drive(&chunk, |input, origin| {
//!             if machine.is_receive_paused() || out.len() > HIGH_WATER {
//!                 return Ok(Advance::Stop(0)); // go on later, with an empty chunk
//!             }
//!             let mut rest = input;
//!             let event = machine.receive(&mut rest, now, out)?;
//!             let consumed = input.len() - rest.len();
//!             match event {
//!                 None => return Ok(Advance::Needs { consumed, total: machine.needed() }),
//!                 Some(Event::Request { call, request }) if machine.names(request.method).1 == b"echo" => {
//!                     // A handler that answers later would keep `origin.to_bytes(payload)`.
//!                     let _ = machine.send(call, request.payload.unwrap_or_default(), true, out);
//!                 }
//!                 Some(Event::Request { call, .. }) => {
//!                     let _ = machine.fail(call, &Failure::from(Code::METHOD_NOT_FOUND), out);
//!                 }
//!                 Some(_) => {}
//!             }
//!             Ok(Advance::Consumed(consumed))
//!         });
//!         if let Err(error) = &received {
//!             machine.abort(error, out); // then send `out` and close
//!             while let Some(_lost) = machine.next_lost() {}
//!         }
//!         received.map(drop) // bytes come back only from one that says `Advance::GiveBack`
//!     }
//! }
//! # let mut server = Server { machine: Connection::server(Default::default()), inbox: Reassembly::new(), out: Vec::new() };
//! # server.on_received(Bytes::from_static(b"GRPC\x01\x01\x04\0\0\0\0\0\0\0\0\x09\0\0\0\x04echoX"), Duration::ZERO).unwrap();
//! # assert_eq!(server.out, b"GRPC\x01\x02\x04\0\0\0\0\0\0\0\0\x03\0\0X");
//! ```

mod block;
mod body;
mod code;
mod connection;
mod error;
mod extensions;
mod frame;
mod header;
mod output;
mod path;
mod reassembly;
mod settings;
mod trace;

pub use block::BodyError;
pub use body::{
    CancelBody, ErrorBody, GoAwayBody, InitBody, MethodRef, RequestBody, ResponseBody, SettingsBody,
};
pub use code::Code;
pub use connection::{Begin, CallKey, Connection, Event, Failure, METHOD_NAMES_MAX, METHODS_MAX, Request};
pub use error::{CallError, ConnectionError, SendError, Unsendable};
pub use extensions::{Extensions, METADATA_NAME_MAX, Options};
pub use frame::{Frame, FrameError};
pub use header::{Flags, FrameType, HEADER_LEN, Header, HeaderError, MAGIC, Mode, Version};
pub use output::{Output, Payload};
pub use path::{MethodPath, NameTooLong};
pub use reassembly::{Advance, Origin, Reassembly};
pub use settings::{PeerSettings, Rate, Settings, Versions};
pub use trace::{InvalidTraceParent, TraceContext};
