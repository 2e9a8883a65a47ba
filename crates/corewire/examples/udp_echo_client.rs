//! Sends three messages to an echo server and waits for each to come back:
//! `cargo run -p corewire --example udp_echo_client [ADDRESS]`, by default `127.0.0.1:8080`.
//!
//! `udp_echo_server` is the other end.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use corewire::runtime::udp::UdpSocket;
use corewire::{run, timeout};

/// UDP may lose a message or its echo: each is tried so many times.
const TRIES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let server: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let here = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    run(async move {
        let socket = UdpSocket::bind(here.parse()?)?;
        // From now on datagrams of others are not received, and a closed port is told.
        socket.connect(server)?;
        for (number, text) in (1..).zip(["Hello, UDP Server!", "This is message 2", "Final message"]) {
            println!("client: sent message {number}: {text}");
            let echo = exchange(&socket, text.as_bytes()).await?;
            println!("client: received echo from {server}: {}", String::from_utf8_lossy(&echo));
        }
        Ok(())
    })?
}

async fn exchange(socket: &UdpSocket, message: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut buffer = [0; 1500];
    for _ in 0..TRIES {
        socket.send(message).await?;
        // A receive that is given up has taken nothing.
        if let Ok(received) = timeout(PATIENCE, socket.recv(&mut buffer)).await {
            let received = received?;
            if received.is_truncated() {
                return Err(format!("the echo has {} bytes", received.full_len).into());
            }
            return Ok(buffer[..received.len].to_vec());
        }
    }
    Err(format!("no echo within {PATIENCE:?}, {TRIES} times").into())
}
