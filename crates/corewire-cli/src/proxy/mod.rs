//! `corewire proxy`: passes traffic on over a path that is worse than the real one.

mod tcp;
mod udp;

use std::io::{self, Write};
use std::net::SocketAddr;

use clap::Subcommand;
use corewire::runtime::Runtime;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// What is passed on.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ProxyKind {
    /// Datagrams, which are lost, doubled, delayed and reordered
    Udp(udp::UdpProxyArgs),
    /// TCP connections, which are delayed and cut; half-closes and resets are passed on
    Tcp(tcp::TcpProxyArgs),
}

impl ProxyKind {
    const fn scheme(&self) -> &'static str {
        match self {
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
        }
    }

    fn start(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(args) => udp::start(args),
            Self::Tcp(args) => tcp::start(args),
        }
    }

    fn story(&self) -> Option<[String; 2]> {
        match self {
            Self::Udp(_) => udp::story(),
            Self::Tcp(_) => tcp::story(),
        }
    }
}

/// Passes on until a signal.
pub(crate) fn proxy(kind: &ProxyKind) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::io("cannot wait for signals"))?;
    let runtime = Runtime::builder().workers(1).name("proxy").build();
    let runtime = runtime.map_err(|error| Failure::Library(error.to_string()))?;
    let here = kind.clone();
    let started = runtime.handle().spawn_on(0, move || async move { here.start() });
    let local = started.map_err(|error| Failure::Library(error.to_string()))?.join();
    let local = local.map_err(|error| Failure::Library(error.to_string()))?;
    let local = local.map_err(Failure::io("cannot listen"))?;
    println!("listening on {}://{local}", kind.scheme());
    io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    let _ = signals.forever().next();
    let here = kind.clone();
    let story = runtime.handle().spawn_on(0, move || async move { here.story() });
    if let Ok(Ok(Some(lines))) = story.map(|story| story.join()) {
        lines.iter().for_each(|line| eprintln!("corewire: {line}"));
    }
    Ok(())
}

/// A share written as `0.1` or `10%`.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text.trim(), 1.0),
    };
    let share =
        number.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a share such as 10% or 0.1"))?;
    let share = share * unit;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("{text:?} is not between 0 and 100%")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_numbers_and_per_cents() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share(" 0.25 "), Ok(0.25));
        for bad in ["", "x", "101%", "-1%", "nan", "2"] {
            assert!(share(bad).is_err(), "{bad:?}");
        }
    }
}
