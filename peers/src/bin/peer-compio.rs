//! Echo and sink on compio: io_uring.

use std::io;

use compio::buf::{IntoInner, IoBuf};
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::Runtime;
use corewire_peers::{Arguments, Kind, note_accept_failure};

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    Runtime::new()?.block_on(async move {
        let listener = TcpListener::from_std(arguments.listen()?)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => compio::runtime::spawn(serve(stream, arguments)).detach(),
                Err(error) => note_accept_failure(&error),
            }
        }
    })
}

async fn serve(mut stream: TcpStream, arguments: Arguments) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(arguments.buffer);
    loop {
        let result;
        compio::buf::BufResult(result, buffer) = stream.read(buffer).await;
        let received = result?;
        if received == 0 {
            return Ok(());
        }
        if arguments.kind == Kind::Echo {
            let compio::buf::BufResult(result, slice) = stream.write_all(buffer.slice(..received)).await;
            result?;
            buffer = slice.into_inner();
        }
    }
}
