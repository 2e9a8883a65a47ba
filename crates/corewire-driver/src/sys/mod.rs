//! What differs between systems, in whole files, so that no function asks which system it is on.
//!
//! A system provides:
//!
//! | module | what | Linux | the BSDs | Apple |
//! |---|---|---|---|---|
//! | `stream` | `SEND_FLAGS`, `prepare` (what a socket needs beside them), `accept` | `stream.rs` | `stream.rs` | `stream_apple.rs` |
//! | `file` | sending a range of a file, whether it is in memory | `file_linux.rs` | `file_portable.rs` | same |
//! | `machine` | processors, pinning, the name of the readiness backend | `machine_linux.rs` | `machine_portable.rs` | same |
//! | `udp` | `Receiver`, `Sender`, the options that only some systems have | `udp_linux/` | `udp_portable.rs` | same |
//! | `uring` | `Uring`, `probe` | `uring/` | `no_uring.rs` | same |
//!
//! `--cfg corewire_portable` takes what the BSDs take on Linux too, so that those files are compiled and tested there.

#[cfg(not(target_vendor = "apple"))]
pub(crate) mod stream;
#[cfg(target_vendor = "apple")]
#[path = "stream_apple.rs"]
pub(crate) mod stream;

#[cfg(all(target_os = "linux", not(corewire_portable)))]
#[path = "file_linux.rs"]
pub(crate) mod file;
#[cfg(not(all(target_os = "linux", not(corewire_portable))))]
#[path = "file_portable.rs"]
pub(crate) mod file;

#[cfg(all(target_os = "linux", not(corewire_portable)))]
#[path = "machine_linux.rs"]
pub(crate) mod machine;
#[cfg(not(all(target_os = "linux", not(corewire_portable))))]
#[path = "machine_portable.rs"]
pub(crate) mod machine;

#[cfg(all(target_os = "linux", not(corewire_portable)))]
#[path = "udp_linux/mod.rs"]
pub(crate) mod udp;
#[cfg(not(all(target_os = "linux", not(corewire_portable))))]
#[path = "udp_portable.rs"]
pub(crate) mod udp;

#[cfg(all(target_os = "linux", not(corewire_portable)))]
#[path = "../uring/mod.rs"]
pub(crate) mod uring;
#[cfg(not(all(target_os = "linux", not(corewire_portable))))]
#[path = "no_uring.rs"]
pub(crate) mod uring;
