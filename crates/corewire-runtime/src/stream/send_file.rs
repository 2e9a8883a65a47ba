//! Sending a range of a file.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use corewire_driver::file::is_cached;

use super::WriteHalf;
use crate::conn::Waiter;
use crate::task::spawn_blocking;

/// What is read ahead and sent at a time.
const PIECE: u64 = 512 * 1024;

impl WriteHalf {
    /// See [`Stream::send_file`](super::Stream::send_file).
    ///
    /// # Errors
    /// As there.
    pub async fn send_file(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let (mut offset, mut waiter) = (range.start, Waiter::new());
        while offset < range.end {
            let len = (range.end - offset).min(PIECE);
            read_ahead(file, offset, len).await?;
            let end = offset + len;
            while offset < end {
                let len = (end - offset) as usize;
                let sent = poll_fn(|context| {
                    self.connection().poll_send_file(file, offset, len, &mut waiter, context)
                });
                match sent.await.map_err(|error| error.unwrap_or_else(|| self.error()))? {
                    0 => {
                        let text = format!("the file ends at byte {offset}, before the range ({range:?})");
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                    }
                    sent => offset += sent as u64,
                }
            }
        }
        Ok(())
    }
}

/// Has the system take this part of a file to memory, by a thread that may wait for the disk; no more than asks whether it
/// is there if it is.
async fn read_ahead(file: &File, offset: u64, len: u64) -> io::Result<()> {
    if is_cached(file, offset, len) {
        return Ok(());
    }
    let file = file.try_clone()?;
    let read = move || {
        let (mut buffer, mut at) = (vec![0; 64 * 1024], offset);
        while at < offset + len {
            match file.read_at(&mut buffer, at)? {
                0 => break,
                read => at += read as u64,
            }
        }
        Ok(())
    };
    spawn_blocking(read).await.map_err(io::Error::other)?
}
