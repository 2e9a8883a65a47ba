//! A chat room: each client talks on a bidi call, and hears what everybody says.
//!
//! `cargo run --example rpc_chat -- serve`, then in other terminals `cargo run --example chat -- ann`, and type.

use std::collections::HashMap;
use std::error::Error;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};

use corewire_rpc::{Channel, Context, RpcServer, Service, Sink, Status, Streaming};
use futures_channel::mpsc;
use serde::{Deserialize, Serialize};

const URI: &str = "tcp://127.0.0.1:7801";

/// Lines that may wait for one guest; one that does not read misses what is over it.
const WAITING_MAX: usize = 100;

#[corewire_rpc::message(json)]
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    from: String,
    text: String,
}

/// Those who are in the room; guests are served by different workers.
#[derive(Clone, Default)]
struct Room(Arc<Mutex<Guests>>);

#[derive(Default)]
struct Guests {
    next: u64,
    ears: HashMap<u64, mpsc::Sender<Line>>,
}

impl Room {
    fn guests(&self) -> std::sync::MutexGuard<'_, Guests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> (u64, mpsc::Receiver<Line>) {
        let (ear, lines) = mpsc::channel(WAITING_MAX);
        let mut guests = self.guests();
        guests.next += 1;
        let number = guests.next;
        guests.ears.insert(number, ear);
        (number, lines)
    }

    fn say(&self, line: &Line) {
        for ear in self.guests().ears.values_mut() {
            // A guest that is behind misses this line.
            let _ = ear.try_send(line.clone());
        }
    }

    fn leave(&self, number: u64) {
        self.guests().ears.remove(&number);
    }
}

/// Takes the guest's lines and sends those of all, until the guest has gone.
async fn talk(room: Room, mut said: Streaming<Line>, mut heard: Sink<Line>) -> Result<(), Status> {
    let (number, mut lines) = room.enter();
    let listening = async {
        while let Some(line) = futures_lite::StreamExt::next(&mut lines).await {
            heard.send(line).await?;
        }
        Ok(())
    };
    let talking = async {
        while let Some(line) = said.next().await {
            room.say(&line?);
        }
        Ok(())
    };
    let ended = futures_lite::future::or(listening, talking).await;
    room.leave(number);
    ended
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "serve".to_owned());
    if name == "serve" {
        let room = Room::default();
        let chat =
            Service::new("Chat").bidi("talk", move |said, heard, _: Context| talk(room.clone(), said, heard));
        println!("listening on {URI}");
        RpcServer::bind(URI).service(chat).run()?;
        return Ok(());
    }
    let channel = Channel::to(URI).build()?;
    let (mut say, mut hear) = corewire::block_on(channel.bidi::<Line, Line>("Chat/talk"))?;
    std::thread::spawn(move || {
        while let Some(Ok(Line { from, text })) = corewire::block_on(hear.next()) {
            println!("{from}: {text}");
        }
    });
    for text in std::io::stdin().lock().lines() {
        corewire::block_on(say.send(Line { from: name.clone(), text: text? }))?;
    }
    corewire::block_on(say.finish())?;
    Ok(())
}
