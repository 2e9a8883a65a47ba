//! Finding servers: channels that follow a registry, servers that register themselves, and a registry served over RPC.
//!
//! ```
//! use corewire_rpc::discover::registry::LocalRegistry;
//! use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};
//!
//! let registry = LocalRegistry::new();
//! let server = |name: &'static str| {
//!     let who = Service::new("Who").unary("name", move |_: Bytes, _: Context| async move { Ok(Bytes::from(name)) });
//!     RpcServer::bind("tcp://127.0.0.1:0").service(who).register(&registry).workers(1).start()
//! };
//! let (one, two) = (server("one")?, server("two")?);
//! corewire::block_on(async {
//!     let channel = Channel::discover(&registry, "Who").build().await?;
//!     let mut names = Vec::new();
//!     while names.len() < 2 {
//!         let name = channel.unary("Who/name", "").await?;
//!         if !names.contains(&name) {
//!             names.push(name);
//!         }
//!     }
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod health;
mod keeper;
mod registering;
mod registration;
mod rpc;
mod source;

pub use corewire_discovery as registry;

pub use self::builder::{DiscoverBuilder, DiscoverError};
pub use self::registration::{Registration, RegistrationError};
pub use self::rpc::{LEASES_MAX, RpcRegistry, RpcRegistryOptions, registry_service};
pub use self::source::{RegistrySource, connect};
