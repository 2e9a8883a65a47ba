//! Echo and sink on smol, one thread.

use std::io;
use std::net::{TcpListener, TcpStream};

use corewire_peers::{Arguments, Kind, note_accept_failure};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, LocalExecutor};

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let executor = LocalExecutor::new();
    smol::block_on(executor.run(async {
        let listener = Async::<TcpListener>::new(arguments.listen()?)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => executor.spawn(serve(stream, arguments)).detach(),
                Err(error) => note_accept_failure(&error),
            }
        }
    }))
}

async fn serve(mut stream: Async<TcpStream>, arguments: Arguments) -> io::Result<()> {
    stream.get_ref().set_nodelay(true)?;
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
