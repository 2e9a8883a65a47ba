//! What 10,000 KCP sessions on one port cost when each exchanges a message per second, without the sockets.
//!
//! `cargo run --release -p corewire-proto --example kcp_sessions [sessions] [seconds]`

use std::error::Error;
use std::time::Instant;

use corewire_proto::kcp::{Config, SessionId, Sessions, SessionsConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: u32 = args.next().map_or(Ok(10_000), |arg| arg.parse())?;
    let seconds: u64 = args.next().map_or(Ok(10), |arg| arg.parse())?;
    let config = SessionsConfig {
        conversation: Config::turbo(),
        unvalidated_max: count as usize,
        sessions_max: count as usize,
        ..SessionsConfig::default()
    };
    let mut server = Sessions::new(config.clone())?;
    let mut client = Sessions::new(config)?;
    let ids: Vec<SessionId> = (0..count).map(|id| client.connect(0, 0u64, id)).collect::<Result<_, _>>()?;
    let (mut echoed, mut out) = (0u64, Vec::with_capacity(64 * 1400));
    let mut requests: Vec<SessionId> = Vec::new();
    let began = Instant::now();
    for now in 0..seconds * 1000 {
        let due = (now % 1000) as usize;
        for id in ids.iter().skip(due).step_by(1000) {
            client.session(*id).ok_or("a session has ended")?.send(&[7; 100])?;
        }
        while let Some((_, transmit)) = client.poll_transmit(now, &mut out, 64) {
            for datagram in out.chunks(transmit.segment_size) {
                server.receive_each(now, 0, datagram, |id, _| requests.push(id))?;
            }
            out.clear();
        }
        for id in requests.drain(..) {
            server.session(id).ok_or("a session has ended")?.send(&[8; 100])?;
        }
        while let Some((_, transmit)) = server.poll_transmit(now, &mut out, 64) {
            for datagram in out.chunks(transmit.segment_size) {
                client.receive_each(now, 0, datagram, |_, _| echoed += 1)?;
            }
            out.clear();
        }
        while server.poll_event().is_some() {}
        while client.poll_event().is_some() {}
    }
    let took = began.elapsed();
    let heap: usize = ids.iter().filter_map(|id| client.peek(*id)).map(|kcp| kcp.memory()).sum();
    println!("{count} sessions, {echoed} echoes of 100 B in {seconds} s of virtual time");
    println!("both ends: {:.1} % of one core", took.as_secs_f64() / seconds as f64 * 100.0);
    println!("both ends: {:.0} ns per echo", took.as_nanos() as f64 / echoed as f64);
    println!("buffers of an idle session: {} B", heap / count as usize);
    Ok(())
}
