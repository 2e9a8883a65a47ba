//! Prints what is sent to a multicast group:
//! `cargo run -p corewire --example multicast_listener [GROUP:PORT] [INTERFACE] [COUNT]`.
//!
//! Group and interface are as for `multicast_announcer`, the other end; 0.0.0.0 or 0 as the interface lets the system
//! choose. Ends after COUNT announcements, if that is given.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use corewire::run;
use corewire::runtime::udp::{MulticastInterface, UdpOptions, UdpSocket};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let group: SocketAddr = arguments.next().as_deref().unwrap_or("239.255.42.1:7071").parse()?;
    let interface = match arguments.next() {
        None => MulticastInterface::default(),
        Some(text) if group.is_ipv4() => MulticastInterface::from(text.parse::<Ipv4Addr>()?),
        Some(text) => MulticastInterface::from(text.parse::<u32>()?),
    };
    let count: usize = arguments.next().map_or(Ok(usize::MAX), |count| count.parse())?;
    let any: IpAddr =
        if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    run(async move {
        let mut options = UdpOptions::default();
        // Several listeners of one machine share the port, and each hears everything.
        options.reuse_address = true;
        // Which group a datagram was sent to: others may use the port too.
        options.packet_info = true;
        let socket = UdpSocket::bind_with(SocketAddr::new(any, group.port()), &options)?;
        socket.join_multicast(group.ip(), interface)?;
        println!("listening to {group}");
        let mut buffer = [0; 1500];
        let mut heard = 0;
        while heard < count {
            let received = socket.recv_from(&mut buffer).await?;
            if received.destination != Some(group.ip()) {
                continue;
            }
            heard += 1;
            let from = received.from.map_or_else(|| "somebody".to_owned(), |from| from.to_string());
            println!("{from}: {}", String::from_utf8_lossy(&buffer[..received.len]));
        }
        socket.leave_multicast(group.ip(), interface)?;
        Ok(())
    })?
}
