//! The RPC protocol, versions 1 (galay-rpc's) and 2 (`docs/rpc-protocol-v2.md`).
//!
//! [`Connection`] is the state machine of one connection, the same for clients and servers: one mechanism with two
//! halves per call, of which unary, client-stream, server-stream and bidi calls and the `STREAM_*` family are
//! settings. [`Frame`] reads and writes single frames, for tools and tests. [`Reassembly`] joins received chunks.

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

pub use code::Code;
pub use connection::{Begin, CallKey, Connection, Event, Failure, Request};
pub use error::{CallError, ConnectionError, SendError, Unsendable};
pub use extensions::{Extensions, METADATA_NAME_MAX, Options};
pub use frame::{
    BodyError, CancelBody, ErrorBody, Frame, FrameError, GoAwayBody, InitBody, RequestBody, ResponseBody,
    SettingsBody,
};
pub use header::{Flags, FrameType, HEADER_LEN, Header, HeaderError, MAGIC, Mode, Version};
pub use output::{Output, Payload};
pub use path::{MethodPath, NameTooLong};
pub use reassembly::{Advance, Origin, Reassembly};
pub use settings::{PeerSettings, Rate, Settings};
pub use trace::{InvalidTraceParent, TraceContext};
