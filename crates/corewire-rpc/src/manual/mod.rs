//! The handbook: what a user of RPC should know, in the order of need.
//!
//! 1. [A service, from nothing to a test](tutorial)
//! 2. [The four modes, and what each promises](modes)
//! 3. [How a call ends: codes, details, what may be made again](errors)
//! 4. [Time: deadlines, retries, hedges, what a handler passes on](time)
//! 5. [Limits, and what happens at each](limits)
//!
//! The wire is specified in `docs/rpc-protocol-v2.md` of the repository.

pub mod errors;
pub mod limits;
pub mod modes;
pub mod time;
pub mod tutorial;
