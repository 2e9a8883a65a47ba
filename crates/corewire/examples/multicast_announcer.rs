//! Announces itself to a multicast group once a second:
//! `cargo run -p corewire --example multicast_announcer [GROUP:PORT] [INTERFACE]`.
//!
//! The group is `239.255.42.1:7071` by default; of IPv6 for example `[ff05::4201]:7071`. The interface is an address of it
//! for IPv4 and its index for IPv6; without one the system chooses. `multicast_listener` hears it, also on this machine.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use corewire::runtime::udp::{MulticastInterface, UdpSocket};
use corewire::{run, sleep};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let group: SocketAddr = arguments.next().as_deref().unwrap_or("239.255.42.1:7071").parse()?;
    let interface = match arguments.next() {
        None => MulticastInterface::default(),
        Some(text) if group.is_ipv4() => MulticastInterface::from(text.parse::<Ipv4Addr>()?),
        Some(text) => MulticastInterface::from(text.parse::<u32>()?),
    };
    let here = if group.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    run(async move {
        let socket = UdpSocket::bind(here.parse()?)?;
        socket.set_multicast_interface(interface)?;
        // 1, the default, stays in this network; each router on the way takes one.
        socket.set_multicast_ttl(1)?;
        println!("announcing to {group} from {}", socket.local_addr()?);
        for number in 1_u64.. {
            let text = format!("announcement {number} of process {}", std::process::id());
            socket.send_to(text.as_bytes(), group).await?;
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    })?
}
