//! A game's state over KCP: players send their moves, and the server sends the whole field to all of them twenty times a
//! second. Through lost datagrams both arrive in order, and sooner than TCP would bring them.
//!
//! `cargo run -p corewire --example game_state` plays for three seconds with eight players on this machine.
//! `… game_state server kcp://*:7780` and, elsewhere, `… game_state player kcp://HOST:7780` play over a network; with
//! `?key-file=PATH` at the end of both URIs nobody else takes part.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corewire::{
    CloseReason, Frame, Handler, LengthFieldCodec, NetServer, NetUri, ServerHandle, Session, block_on,
};

const TICK: Duration = Duration::from_millis(50);
const PLAYERS: usize = 8;

/// Where each player stands, by the number of its session.
#[derive(Clone, Default)]
struct Field(Arc<Mutex<BTreeMap<u64, [i32; 2]>>>);

impl Field {
    fn places(&self) -> MutexGuard<'_, BTreeMap<u64, [i32; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number, x and y of each player, little-endian.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (player, [x, y]) in self.places().iter() {
            bytes.extend_from_slice(&player.to_le_bytes());
            bytes.extend_from_slice(&x.to_le_bytes());
            bytes.extend_from_slice(&y.to_le_bytes());
        }
        bytes
    }
}

/// One player at the server.
struct Player(Field);

impl Handler for Player {
    fn on_open(&mut self, session: &Session) {
        self.0.places().insert(session.id(), [0, 0]);
    }

    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        // A move: one step at the most in each direction.
        let &[dx, dy] = frame.payload() else { return };
        if let Some([x, y]) = self.0.places().get_mut(&session.id()) {
            *x += i32::from((dx as i8).signum());
            *y += i32::from((dy as i8).signum());
        }
    }

    fn on_close(&mut self, session: &Session, _: &CloseReason) {
        self.0.places().remove(&session.id());
    }
}

/// Starts a server, and the thread that tells all players about the field.
fn serve(uri: &str) -> Result<ServerHandle, Box<dyn Error>> {
    let field = Field::default();
    let server = NetServer::bind(uri)
        .codec(LengthFieldCodec::default)
        // A player that is silent for so long is gone; KCP has nothing like TCP's reset of a dead program.
        .idle_timeout(Some(Duration::from_secs(10)));
    let everybody = server.sessions();
    let players = field.clone();
    let server = server.handler(move || Player(players.clone())).start()?;
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(TICK);
            // Who is far behind is left out until it has caught up.
            everybody.broadcast_to(|player| player.queued() == 0, field.to_bytes());
        }
    });
    Ok(server)
}

/// Moves about for some time and says what it has seen.
fn play(uri: &str, length: Duration, step: [i8; 2]) -> Result<String, Box<dyn Error + Send + Sync>> {
    let client = NetUri::parse(uri)?.client().codec(LengthFieldCodec::default).inbox(64);
    let client = client.connect_blocking()?;
    let begun = Instant::now();
    let (mut states, mut players) = (0, 0);
    while begun.elapsed() < length {
        block_on(client.one_way(&step.map(|step| step as u8)))?;
        let state = block_on(client.recv()).ok_or("the server has gone")?;
        states += 1;
        players = state.payload.len() / 16;
    }
    client.close();
    Ok(format!("{states} states, {players} players in the last one"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => {
            let server = serve("kcp://127.0.0.1:0")?;
            let uri = server.uri().to_owned();
            let length = Duration::from_secs(3);
            let playing: Vec<_> = (0..PLAYERS)
                .map(|at| (uri.clone(), [at as i8 % 3 - 1, 1]))
                .map(|(uri, step)| std::thread::spawn(move || play(&uri, length, step)))
                .collect();
            for (at, playing) in playing.into_iter().enumerate() {
                let seen = playing.join().map_err(|_| "a player has panicked")?;
                println!("player {at}: {}", seen.map_err(|error| error.to_string())?);
            }
        }
        ["server", uri] => {
            let server = serve(uri)?;
            println!("the field is at {}; Ctrl-C ends it", server.uri());
            loop {
                std::thread::park();
            }
        }
        ["player", uri] => {
            let seen = play(uri, Duration::from_secs(10), [1, 0]).map_err(|error| error.to_string())?;
            println!("{seen}");
        }
        _ => return Err("usage: game_state [server URI | player URI]".into()),
    }
    Ok(())
}
