//! Echo and sink on tokio's current-thread runtime.

use std::io;

use corewire_peers::{Arguments, Kind, note_accept_failure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async move {
        let listener = TcpListener::from_std(arguments.listen()?)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream, arguments))),
                Err(error) => note_accept_failure(&error),
            }
        }
    })
}

async fn serve(mut stream: TcpStream, arguments: Arguments) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; arguments.buffer];
    loop {
        let received = stream.read(&mut buffer).await?;
        if received == 0 {
            return Ok(());
        }
        if arguments.kind == Kind::Echo {
            stream.write_all(&buffer[..received]).await?;
        }
    }
}
