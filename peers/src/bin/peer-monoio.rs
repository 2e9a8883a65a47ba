//! Echo and sink on monoio: io_uring where the kernel has it, else epoll.

use std::io;

use corewire_peers::{Arguments, Kind, note_accept_failure};
use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let mut runtime = monoio::RuntimeBuilder::<monoio::FusionDriver>::new().with_entries(4096).build()?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(arguments.listen()?)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(monoio::spawn(serve(stream, arguments))),
                Err(error) => note_accept_failure(&error),
            }
        }
    })
}

async fn serve(mut stream: TcpStream, arguments: Arguments) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; arguments.buffer];
    loop {
        let result;
        (result, buffer) = stream.read(buffer).await;
        let received = result?;
        if received == 0 {
            return Ok(());
        }
        if arguments.kind == Kind::Echo {
            let (result, slice) = stream.write_all(buffer.slice_mut(..received)).await;
            result?;
            buffer = slice.into_inner();
        }
    }
}
