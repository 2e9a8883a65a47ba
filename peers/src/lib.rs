//! What the servers have in common: the command line, the listener, the first line of output.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// What a server does with what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Send it back.
    Echo,
    /// Drop it.
    Sink,
}

/// The command line: `echo|sink [tcp://ADDRESS:PORT [BUFFER_BYTES]]`.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// What to do.
    pub kind: Kind,
    /// Where to listen; default 127.0.0.1:7777.
    pub address: SocketAddr,
    /// The receive buffer of each connection, in bytes; default 64 KiB.
    pub buffer: usize,
}

impl Arguments {
    const BUFFER_DEFAULT: usize = 64 * 1024;
    const BUFFER_MAX: usize = 64 << 20;

    /// Reads the command line; says how it is used and ends the process where it is wrong.
    pub fn read() -> Self {
        Self::parse(std::env::args().skip(1)).unwrap_or_else(|wrong| {
            let program = std::env::args().next().unwrap_or_default();
            eprintln!("{wrong}\nusage: {program} echo|sink [tcp://ADDRESS:PORT [BUFFER_BYTES]]");
            std::process::exit(2);
        })
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let kind = match words.next().as_deref() {
            Some("echo") => Kind::Echo,
            Some("sink") => Kind::Sink,
            Some(other) => return Err(format!("unknown kind {other:?}")),
            None => return Err("a kind is missing".into()),
        };
        let uri = words.next().unwrap_or_else(|| "tcp://127.0.0.1:7777".into());
        let address = uri.strip_prefix("tcp://").unwrap_or(&uri);
        let address = address.parse().map_err(|error| format!("{uri:?} is no address: {error}"))?;
        let buffer = match words.next() {
            None => Self::BUFFER_DEFAULT,
            Some(text) => {
                text.parse().ok().filter(|bytes| (1..=Self::BUFFER_MAX).contains(bytes)).ok_or_else(|| {
                    format!("{text:?} is no buffer size from 1 to {} bytes", Self::BUFFER_MAX)
                })?
            }
        };
        match words.next() {
            Some(more) => Err(format!("{more:?} is one word too many")),
            None => Ok(Self { kind, address, buffer }),
        }
    }

    /// A non-blocking listener with the backlog of `corewire serve`. Its address is printed in the same form.
    pub fn listen(&self) -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&self.address.into())?;
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        println!("listening on tcp://{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        Ok(listener)
    }
}

/// A failed accept must not end a server: the peer may be gone already, or descriptors may be short for a while.
pub fn note_accept_failure(error: &std::io::Error) {
    eprintln!("cannot accept a connection: {error}");
    std::thread::sleep(std::time::Duration::from_millis(10));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(words.iter().map(|word| word.to_string()))
    }

    #[test]
    fn a_uri_and_a_bare_address_are_the_same() {
        let uri = parse(&["echo", "tcp://127.0.0.1:80", "4096"]).unwrap();
        assert_eq!((uri.kind, uri.address.port(), uri.buffer), (Kind::Echo, 80, 4096));
        assert_eq!(parse(&["sink", "127.0.0.1:80"]).unwrap().address, uri.address);
    }

    #[test]
    fn wrong_words_are_refused() {
        let wrong: [&[&str]; 6] = [
            &[],
            &["parrot"],
            &["echo", "tcp://nowhere"],
            &["echo", "127.0.0.1:1", "0"],
            &["echo", "127.0.0.1:1", "x"],
            &["echo", "127.0.0.1:1", "1", "2"],
        ];
        for words in wrong {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
