//! Connections on datagram sockets that they share: what is particular to those whose sends are datagrams.

use std::rc::Rc;

use bytes::Bytes;

use super::Core;
use crate::conn::{Backlog, Conn, ConnId, ConnectionOptions, Flush};
use crate::error::SendError;
use crate::memory::MemoryLimit;
use crate::stats::Counters;
use crate::transport::Transport;
use crate::transport::udp::send_error;

impl Core {
    /// A peer that is new on a datagram socket is not served: the memory limit is near, or the worker ends.
    pub(crate) fn refuses_datagram_peer(&self, options: &ConnectionOptions) -> bool {
        if self.life.get().is_ending() {
            return true;
        }
        let is_server_short = options.memory_limit.as_ref().is_some_and(MemoryLimit::is_short);
        let refuses = is_server_short || self.memory.refuses_connections();
        if refuses {
            self.note_refused(1, "the memory limit is near");
        }
        refuses
    }

    /// Datagrams of one size arrived, the last perhaps shorter, one behind the other. They are dropped and counted while
    /// the connection is paused: nothing else holds their sender back.
    #[inline]
    pub(crate) fn received_run(self: &Rc<Self>, id: ConnId, run: &Bytes, segment_size: usize) {
        let protocol = self.conns.with(id, |conn| {
            if !conn.state.is_active() {
                return None;
            }
            self.note_received(conn, run.len());
            if conn.pauses.is_empty() { conn.protocol.take() } else { None }
        });
        let Some(Some(protocol)) = protocol else {
            let count = run.len().div_ceil(segment_size.max(1));
            return Counters::add(&self.counters.datagrams_dropped, count as u64);
        };
        self.turns.quota.begin_whole(id);
        self.call_taken(id, protocol, |protocol, connection| {
            protocol.on_datagrams(connection, run, segment_size);
        });
        self.turns.quota.end();
    }

    /// Something arrived that holds no bytes: the peer lives.
    pub(crate) fn touch(&self, id: ConnId) {
        self.conns.with(id, |conn| {
            if conn.state.is_active() {
                self.note_received(conn, 0);
            }
        });
    }

    /// Adds a datagram to the queue of the socket, which leaves at the end of the tick.
    pub(super) fn send_datagram(&self, conn: &mut Conn, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let Transport::UdpPeer(peer) = &conn.transport else { return Err(SendError::Closed) };
        let limit = conn.options.queue_limit;
        let queued = self.udp_send(peer.socket(), |out| {
            peer.push(out, parts, limit)?;
            Ok(out.queued())
        });
        let queued = queued.map_err(send_error)?;
        self.note_sent(conn, parts.iter().map(|part| part.len()).sum());
        if queued >= conn.options.high_water {
            conn.backlog = Backlog::Over;
            self.follow_socket(conn);
        }
        Ok(())
    }

    /// Has a connection be told when the queue of the socket that it shares has fallen.
    pub(super) fn follow_socket(&self, conn: &mut Conn) {
        if conn.transport.is_datagram() && conn.flush == Flush::Idle {
            conn.flush = Flush::Blocked;
            self.udp.follow(conn.transport.socket(), conn.id);
        }
    }

    /// The queue of a datagram socket has fallen.
    pub(crate) fn socket_flushed(&self, id: ConnId) {
        self.conns.with(id, |conn| {
            if conn.state.is_closed() {
                return;
            }
            conn.flush = Flush::Idle;
            self.flushed(conn, &mut self.driver.borrow_mut());
            if !conn.waiters.is_empty() || conn.backlog == Backlog::Over || conn.is_draining() {
                self.follow_socket(conn);
            }
        });
    }
}
