//! The push interface: called as things happen to a connection.

use bytes::Bytes;

use crate::conn::{CloseReason, Connection};

/// What is done with one connection. Made for it, owned by it, called on its worker only.
///
/// The calls come in this order: [`on_open`](Self::on_open) once; then any number of `on_received`, `on_drained`,
/// `on_timer` and at most one `on_read_closed`; [`on_closed`](Self::on_closed) once, last. A panic in any of them
/// closes this connection with [`CloseReason::HandlerPanicked`] and nothing else.
///
/// Whatever is sent during a call leaves at the end of the tick, with all else that was sent to that connection in
/// the same tick, in one system call.
pub trait Protocol: 'static {
    /// The connection is established.
    fn on_open(&mut self, connection: &Connection) {
        let _ = connection;
    }

    /// Bytes arrived, or those that were [deferred](Connection::defer); else never empty. The block behind them is used
    /// again as soon as it is dropped.
    ///
    /// A protocol that decodes frames asks [`Connection::frame_done`] after each whether to go on, so that no connection
    /// keeps its worker from the others.
    fn on_received(&mut self, connection: &Connection, data: Bytes);

    /// Datagrams arrived on a connection of datagrams: one behind the other, each of `segment_size` bytes (1 at least)
    /// but the last, which may be shorter. By default [`on_received`](Self::on_received) is called for each.
    fn on_datagrams(&mut self, connection: &Connection, run: &Bytes, segment_size: usize) {
        let size = segment_size.max(1);
        for at in (0..run.len()).step_by(size) {
            if !connection.is_open() {
                return;
            }
            self.on_received(connection, run.slice(at..run.len().min(at + size)));
        }
    }

    /// The peer will send nothing more, and all that it sent has been handed over. By default the connection is closed, once what is queued has been sent.
    fn on_read_closed(&mut self, connection: &Connection) {
        connection.close_with(CloseReason::PeerClosed);
    }

    /// The send queue, having been over its high-water mark, has fallen to its low-water mark.
    fn on_drained(&mut self, connection: &Connection) {
        let _ = connection;
    }

    /// The time set by [`Connection::set_timer`] has come.
    fn on_timer(&mut self, connection: &Connection) {
        let _ = connection;
    }

    /// [`Connection::shut_down`] was called: finish what is under way and close. By default the connection is closed
    /// once what is queued has been sent.
    fn on_shutdown(&mut self, connection: &Connection) {
        connection.close_with(CloseReason::Shutdown);
    }

    /// The connection is gone. Sending on it is an error from here on.
    fn on_closed(&mut self, connection: &Connection, reason: &CloseReason) {
        let _ = (connection, reason);
    }
}
