//! A client's UDP socket: one session with the server.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use corewire_runtime::udp::{
    Carried, Carrier, Datagram, Run, SendMeta, UdpError, UdpPort, UdpProtocol, payload_max,
};
use corewire_runtime::{CloseReason, Connection, ConnectionOptions, Protocol, SendError};

use super::peers::take;
use super::{DatagramSettings, open_for, send_error};

pub(super) fn connect(
    peer: SocketAddr,
    settings: &DatagramSettings,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    let socket = open_for(peer, &settings.udp)?;
    socket.connect(peer)?;
    let session = Rc::default();
    let port = UdpPort::open(socket, &settings.udp, Client { session: Rc::clone(&session) })?;
    let carried = Carried::open(Link { port, peer }, options, protocol);
    session.replace(Some(carried.clone()));
    carried.opened();
    Ok(carried.connection())
}

struct Client {
    session: Rc<RefCell<Option<Rc<Carried>>>>,
}

impl Client {
    fn session(&self) -> Option<Rc<Carried>> {
        self.session.borrow().clone()
    }
}

struct Link {
    port: UdpPort,
    peer: SocketAddr,
}

impl UdpProtocol for Client {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        if let Some(session) = self.session() {
            take(port, &session, &datagram.to_bytes(), datagram.payload().len(), datagram.is_truncated());
        }
    }

    #[inline]
    fn on_run(&mut self, port: &UdpPort, run: &Run<'_>) {
        if let Some(session) = self.session() {
            take(port, &session, &run.to_bytes(), run.segment_size(), run.is_truncated());
        }
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        // Nobody answers there: calls need not wait for their time.
        if matches!(error, UdpError::Refused | UdpError::Unreachable(_))
            && let Some(session) = self.session()
        {
            session.abort(CloseReason::Io(error.into()));
        } else {
            tracing::debug!(%error, "a datagram to the server was refused");
        }
    }

    fn on_drained(&mut self, _: &UdpPort) {
        if let Some(session) = self.session() {
            session.drained();
        }
    }

    fn on_closed(&mut self, _: &UdpPort) {
        if let Some(session) = self.session.take() {
            session.abort(CloseReason::Local);
        }
    }
}

impl Carrier for Link {
    fn port(&self) -> &UdpPort {
        &self.port
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn is_datagram(&self) -> bool {
        true
    }

    #[inline]
    fn send(&self, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let max = payload_max(self.peer);
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        self.port.send_parts(None, &parts, SendMeta::default()).map_err(send_error)
    }

    #[inline]
    fn send_within(&self, parts: [&[u8]; 3], limit: usize) -> Result<(), SendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let max = payload_max(self.peer);
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        self.port.send_parts_within(None, &parts, limit).map_err(send_error)
    }

    fn queued(&self) -> usize {
        self.port.queued()
    }

    fn forget(&self) {
        self.port.close();
    }
}
