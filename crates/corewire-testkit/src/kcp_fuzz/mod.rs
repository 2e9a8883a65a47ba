//! Bodies of the KCP fuzz targets; ordinary tests run them over the committed corpora and random input.

mod envelope;
mod sessions;

use corewire_proto::kcp::{Command, Config, CongestionControl, HEADER_LEN, Header, Kcp};

pub use self::envelope::kcp_envelope;
pub use self::sessions::kcp_sessions;
use crate::fuzz::Target;

/// Every KCP target by the name of its corpus.
pub const TARGETS: [(&str, Target); 3] =
    [("kcp", kcp), ("kcp_sessions", kcp_sessions), ("kcp_envelope", kcp_envelope)];

/// What no input may make a conversation hold, in bytes, with the settings used here.
const MEMORY_MAX: usize = 2 * 1024 * 1024;

/// Feeds `input` to a conversation as datagrams, the time and calls of the user, all taken from the input.
///
/// # Panics
/// When the machine breaks a promise: memory over the bound, a datagram over the MTU, a time-out of 0 with
/// nothing to send. (That it does not panic itself is the first promise.)
pub fn kcp(input: &[u8]) {
    let Some((&[mode, start], mut rest)) = input.split_first_chunk::<2>() else { return };
    let config =
        if mode & 1 == 0 { Config::default() } else { Config::turbo() }.ack_delay_ms(u32::from(mode >> 4));
    let config = match mode & 2 {
        0 => config,
        _ => config.windows_max(256).congestion(CongestionControl::Bbr),
    };
    let send_from = if start & 1 == 0 { 0 } else { u32::MAX - u32::from(start) };
    let mut kcp = Kcp::starting_at(1, config, send_from, send_from).expect("the settings are valid");
    let mut now = u64::from(u32::MAX) - 50;
    let mut out = Vec::new();
    while let Some((&[action, len], after)) = rest.split_first_chunk::<2>() {
        let (bytes, after) = after.split_at(usize::from(len).min(after.len()));
        rest = after;
        match action % 8 {
            0 => now += u64::from(len) * u64::from(action),
            1 => drop(kcp.send(&bytes.repeat(usize::from(action)))),
            2 => drop(kcp.recv()),
            3 if action > 200 => kcp.close(now),
            4 => drop(kcp.receive(now, bytes)),
            _ => drop(kcp.receive(now, &well_formed(bytes, send_from))),
        }
        flush(&mut kcp, now, &mut out);
        assert!(kcp.memory() < MEMORY_MAX, "{} bytes are held", kcp.memory());
    }
}

/// Headers that pass the first checks, with numbers near the window, so that the input gets deep into the machine.
fn well_formed(bytes: &[u8], numbers_from: u32) -> Vec<u8> {
    let mut datagram = Vec::new();
    for chunk in bytes.chunks(8) {
        let at = |index: usize| chunk.get(index).copied().unwrap_or(0);
        let command = [
            Command::Push,
            Command::Push,
            Command::Ack,
            Command::WindowAsk,
            Command::WindowTell,
            Command::Fin,
            Command::Cookie,
        ];
        let data = vec![at(7); usize::from(at(6) % 4) * 300];
        let header = Header {
            conversation: 1,
            command: command[usize::from(at(0)) % command.len()],
            fragment: at(1) % 4,
            window: u16::from(at(2)),
            timestamp: numbers_from.wrapping_add(u32::from(at(3))),
            number: numbers_from.wrapping_add(u32::from(at(4))).wrapping_sub(2),
            unacknowledged: numbers_from.wrapping_add(u32::from(at(5))).wrapping_sub(2),
            len: data.len() as u32,
        };
        datagram.extend_from_slice(&header.to_bytes());
        datagram.extend_from_slice(&data);
    }
    datagram
}

fn flush(kcp: &mut Kcp, now: u64, out: &mut Vec<u8>) {
    for _ in 0..10_000 {
        out.clear();
        let Some(transmit) = kcp.poll_transmit(now, out, 64) else {
            assert_ne!(kcp.next_timeout(now), Some(0), "nothing to send, but a call is asked for at once");
            return;
        };
        assert!(transmit.segment_size <= 1400 && transmit.segment_size >= HEADER_LEN);
    }
    panic!("there is no end to what is sent at one moment");
}
