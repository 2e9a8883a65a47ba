//! Corewire and tokio_kcp, an independent KCP, in conversation over real sockets, on a path that loses.

use std::net::SocketAddr;
use std::time::Duration;

use corewire::kcp::{Config, Mode};
use corewire::{Frame, NetServer, NetUri, RawCodec, ServerHandle, Session};
use corewire_link::link::LinkConfig;
use corewire_link::udp_proxy::UdpProxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

const PATIENCE: Duration = Duration::from_secs(60);
/// What both sides can be told alike.
#[derive(Debug, Clone, Copy)]
struct Settings {
    is_stream: bool,
    is_turbo: bool,
    mtu: usize,
}

const ALL: [Settings; 4] = [
    Settings { is_stream: true, is_turbo: true, mtu: 1400 },
    Settings { is_stream: false, is_turbo: true, mtu: 1400 },
    Settings { is_stream: true, is_turbo: false, mtu: 576 },
    Settings { is_stream: false, is_turbo: false, mtu: 576 },
];

impl Settings {
    fn ours(self) -> Config {
        let config = if self.is_turbo { Config::turbo() } else { Config::default() };
        let mode = if self.is_stream { Mode::Stream } else { Mode::Message };
        config.windows(256, 256).mtu(self.mtu).mode(mode)
    }

    fn theirs(self) -> KcpConfig {
        let nodelay = if self.is_turbo { KcpNoDelayConfig::fastest() } else { KcpNoDelayConfig::normal() };
        KcpConfig {
            mtu: self.mtu,
            nodelay,
            wnd_size: (256, 256),
            stream: self.is_stream,
            ..KcpConfig::default()
        }
    }
}

/// Without turbo a loss costs a tenth of a second and more.
fn bytes(settings: Settings) -> Vec<u8> {
    let len = if settings.is_turbo { 300_000 } else { 40_000 };
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn lossy(server: SocketAddr, seed: u64) -> UdpProxy {
    let config = LinkConfig {
        loss: 0.1,
        duplicate: 0.03,
        reorder: 0.03,
        reorder_by_us: 3_000,
        delay_us: 500,
        ..LinkConfig::default()
    };
    UdpProxy::start(server, config, seed).unwrap()
}

fn our_echo(settings: Settings) -> ServerHandle {
    NetServer::bind("kcp://127.0.0.1:0")
        .kcp_config(settings.ours())
        .codec(|| RawCodec)
        .handler(|| |session: &Session, frame: Frame<'_>| session.send(frame.payload()).unwrap())
        .workers(1)
        .start()
        .unwrap()
}

async fn echo_theirs(mut listener: KcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(len) = stream.read(&mut buffer).await {
        if len == 0 || stream.write_all(&buffer[..len]).await.is_err() {
            return;
        }
        stream.flush().await.unwrap();
    }
}

#[tokio::test]
async fn their_client_gets_its_bytes_back_from_our_server() {
    for (seed, settings) in ALL.into_iter().enumerate() {
        let server = our_echo(settings);
        let path = lossy(server.local_addrs()[0], seed as u64);
        let stream = KcpStream::connect(&settings.theirs(), path.address()).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent = bytes(settings);
        let mut back = vec![0; sent.len()];
        let write = async {
            for piece in sent.chunks(5_000) {
                writer.write_all(piece).await.unwrap();
            }
            writer.flush().await.unwrap();
        };
        let both = async { tokio::join!(write, reader.read_exact(&mut back)).1 };
        tokio::time::timeout(PATIENCE, both).await.unwrap_or_else(|_| panic!("{settings:?}")).unwrap();
        assert!(back == sent, "{settings:?}");
        let [up, down] = path.stop();
        assert!(up.lost > 0 && down.lost > 0, "{up:?} {down:?}");
    }
}

#[tokio::test]
async fn our_client_gets_its_bytes_back_from_their_server() {
    for (seed, settings) in ALL.into_iter().enumerate() {
        let listener = KcpListener::bind(settings.theirs(), "127.0.0.1:0").await.unwrap();
        let path = lossy(listener.local_addr().unwrap(), seed as u64);
        let serving = tokio::spawn(echo_theirs(listener));
        let uri = NetUri::parse(&format!("kcp://{}", path.address())).unwrap();
        let client = uri.client().kcp_config(settings.ours()).codec(|| RawCodec).inbox(4096);
        let client = client.connect().await.unwrap();
        let sent = bytes(settings);
        let write = async {
            for piece in sent.chunks(5_000) {
                client.send_raw(piece).await.unwrap();
            }
        };
        let mut back = Vec::new();
        let read = async {
            while back.len() < sent.len() {
                back.extend_from_slice(&client.recv().await.unwrap().payload);
            }
        };
        let both = async { tokio::join!(write, read) };
        tokio::time::timeout(PATIENCE, both).await.unwrap_or_else(|_| panic!("{settings:?}"));
        assert!(back == sent, "{settings:?}");
        serving.abort();
    }
}
