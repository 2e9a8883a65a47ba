//! The file of a Unix-domain socket, which the kernel leaves behind when its server ends.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use corewire_driver::Socket;
use corewire_driver::net::{ListenOptions, listen_unix};

/// Listens on a path, in place of a dead server if need be.
pub(super) fn listen(path: &Path, options: &ListenOptions) -> io::Result<Socket> {
    match listen_unix(path, options) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
            fs::remove_file(path)?;
            listen_unix(path, options)
        }
        listening => listening,
    }
}

/// A socket on which nobody listens.
fn is_left_behind(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removed when dropped, unless another server has put its own in its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// The file that was just made; none for an abstract name.
    pub(super) fn of(path: &Path) -> Option<Self> {
        if !path.is_absolute() {
            return None;
        }
        Some(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == Some(self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a socket's file was not removed");
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}
