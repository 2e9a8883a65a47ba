//! How far the reader is, for the deadlines of the connection.

use corewire_runtime::{Connection, FrameProgress};

/// What the connection was told of the frame that is arriving.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing since it was opened.
    #[default]
    Untold,
    Between,
    InFrame,
}

impl Progress {
    /// The peer is the one to begin.
    pub(super) fn opened(connection: &Connection) {
        connection.set_progress(FrameProgress::AwaitingFirst);
    }

    /// All that came was read; `is_cut_off` with a frame whose rest is awaited. `has_moved`: others have ended before it.
    #[inline]
    pub(super) fn tell(&mut self, connection: &Connection, is_cut_off: bool, has_moved: bool) {
        let now = if is_cut_off { Self::InFrame } else { Self::Between };
        if *self != now || (is_cut_off && has_moved) {
            *self = now;
            connection.set_progress(if is_cut_off { FrameProgress::InFrame } else { FrameProgress::Between });
        }
    }
}
