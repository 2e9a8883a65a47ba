//! The body of the fuzz target `kcp_sessions`.

use std::collections::{HashMap, VecDeque};

use corewire_proto::kcp::{
    Command, Config, CongestionControl, Header, SessionEvent, SessionId, Sessions, SessionsConfig,
};

use crate::choices::Choices;

/// What is delivered, and to whom it is taken to be.
const CLIENT: u8 = 1;
const SERVER: u8 = 0;

/// A server, a client whose datagrams are lost, repeated and delayed as the input says, and strangers who send what it
/// says.
///
/// # Panics
/// When a message of the client is lost in between, repeated or changed; when a stranger is sent more than three times what
/// came from it; when there are more sessions than the limit; when there is no end to what is sent at one moment, or
/// nothing to send although a call is asked for at once.
pub fn kcp_sessions(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut network = Network::new(choices.byte());
    while !choices.is_empty() {
        network.step(&mut choices);
        network.exchange();
        assert!(network.server.len() <= 8, "{} sessions", network.server.len());
    }
}

struct Network {
    now: u64,
    server: Sessions<u8>,
    client: Sessions<u8>,
    conversation: Option<SessionId>,
    conversations: u32,
    /// Messages sent on the conversation.
    sent: u32,
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    sessions: Vec<SessionId>,
    /// Messages received on each of them.
    received: HashMap<SessionId, u32>,
    /// Bytes from each stranger, and to it.
    strangers: HashMap<u8, (usize, usize)>,
    out: Vec<u8>,
}

impl Network {
    fn new(mode: u8) -> Self {
        let mut conversation = Config::turbo();
        if mode & 1 == 1 {
            conversation = conversation.fec(3, 2);
        }
        if mode & 2 == 2 {
            conversation = conversation.windows_max(256).congestion(CongestionControl::Bbr);
        }
        let config = SessionsConfig {
            conversation,
            sessions_max: 8,
            unvalidated_max: usize::from(mode >> 2) % 4,
            ..SessionsConfig::default()
        };
        let make = |config| Sessions::new(config).expect("the settings are valid");
        Self {
            now: 0,
            server: make(config.clone()),
            client: make(SessionsConfig { accept: false, ..config }),
            conversation: None,
            conversations: 0,
            sent: 0,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            sessions: Vec::new(),
            received: HashMap::new(),
            strangers: HashMap::new(),
            out: Vec::new(),
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(12) {
            0 => self.now += 1 << choices.below(14),
            1 | 2 => self.send(),
            3 | 4 => self.deliver(choices.below(4)),
            5 => drop(self.to_server.pop_front()),
            6 => drop(self.to_client.pop_front()),
            7 => self.act(choices),
            8 => {
                let len = choices.below(64);
                let datagram: Vec<u8> = (0..len).map(|_| choices.byte()).collect();
                self.stranger(choices.byte(), &datagram);
            }
            _ => {
                let datagram = well_formed(choices);
                self.stranger(choices.byte(), &datagram);
            }
        }
    }

    /// A message of the client that has its number in it.
    fn send(&mut self) {
        let is_over = self.conversation.is_none_or(|id| self.client.peek(id).is_none());
        if is_over {
            self.conversations += 1;
            self.sent = 0;
            self.conversation = self.client.connect(self.now, SERVER, self.conversations).ok();
        }
        let Some(kcp) = self.conversation.and_then(|id| self.client.session(id)) else { return };
        let message = self.sent.to_le_bytes().repeat(1 + self.sent as usize % 900);
        self.sent += u32::from(kcp.send(&message).is_ok());
    }

    fn deliver(&mut self, how: usize) {
        for (queue, is_to_server) in [(&mut self.to_server, true), (&mut self.to_client, false)] {
            let datagram = if how == 0 { queue.pop_back() } else { queue.pop_front() };
            let Some(datagram) = datagram else { continue };
            for _ in 0..1 + how / 3 {
                let (port, from) =
                    if is_to_server { (&mut self.server, CLIENT) } else { (&mut self.client, SERVER) };
                // What is refused is as good as lost.
                let _ = port.receive(self.now, from, &datagram);
            }
        }
    }

    /// What a server does with a session.
    fn act(&mut self, choices: &mut Choices<'_>) {
        let Some(&id) = self.sessions.get(choices.below(self.sessions.len().max(1))) else { return };
        if choices.below(8) == 0 {
            return self.server.remove(self.now, id);
        }
        let Some(kcp) = self.server.session(id) else { return };
        match choices.below(8) {
            0 => kcp.abort(),
            1 => kcp.close(self.now),
            _ => drop(kcp.send(&vec![7; choices.below(30_000)])),
        }
    }

    fn stranger(&mut self, address: u8, datagram: &[u8]) {
        let address = 2 + address % 4;
        self.strangers.entry(address).or_default().0 += datagram.len();
        // Refused or not, the server goes on.
        let _ = self.server.receive(self.now, address, datagram);
    }

    fn exchange(&mut self) {
        self.take_events();
        for (port, is_server) in [(&mut self.server, true), (&mut self.client, false)] {
            let mut runs = 0;
            while let Some((to, transmit)) = port.poll_transmit(self.now, &mut self.out, 64) {
                assert!(transmit.segment_size <= 1400 && transmit.len == self.out.len());
                assert_eq!(self.out.len().div_ceil(transmit.segment_size), transmit.datagrams);
                let datagrams = self.out.chunks(transmit.segment_size).map(<[u8]>::to_vec);
                match (is_server, to) {
                    (false, _) => self.to_server.extend(datagrams),
                    (true, CLIENT) => self.to_client.extend(datagrams),
                    (true, _) => {
                        let (heard, told) = self.strangers.entry(to).or_default();
                        *told += self.out.len();
                        assert!(*told <= 3 * *heard, "{told} bytes for {heard}");
                    }
                }
                self.out.clear();
                runs += 1;
                assert!(runs < 10_000, "there is no end to what is sent at one moment");
            }
            assert_ne!(
                port.next_timeout(self.now),
                Some(0),
                "nothing to send, but a call is asked for at once"
            );
        }
        self.to_server.truncate(256);
        self.to_client.truncate(256);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                SessionEvent::Opened(id) => self.sessions.push(id),
                SessionEvent::Readable(id) => self.read(id),
                SessionEvent::Closed { id, .. } => self.sessions.retain(|open| *open != id),
                _ => {}
            }
        }
        while let Some(event) = self.client.poll_event() {
            if let SessionEvent::Readable(id) = event
                && let Some(kcp) = self.client.session(id)
            {
                while kcp.recv().is_some() {}
            }
        }
    }

    fn read(&mut self, id: SessionId) {
        let is_clients = self.server.address(id) == Some(CLIENT);
        let Some(kcp) = self.server.session(id) else { return };
        while let Some(message) = kcp.recv() {
            if is_clients {
                let number = self.received.entry(id).or_default();
                assert_eq!(
                    message,
                    number.to_le_bytes().repeat(1 + *number as usize % 900),
                    "message {number}"
                );
                *number += 1;
            }
        }
    }
}

/// Segments that pass the first checks, of a few conversations.
fn well_formed(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut datagram = Vec::new();
    if choices.below(4) == 0 {
        let kind: u16 = if choices.flag() { 0xf1 } else { 0xf2 };
        datagram.extend_from_slice(&u32::from(choices.byte()).to_le_bytes());
        datagram.extend_from_slice(&kind.to_le_bytes());
        datagram.extend_from_slice(&u16::from(choices.byte()).to_le_bytes());
    }
    for _ in 0..1 + choices.below(3) {
        let commands = [
            Command::Push,
            Command::Push,
            Command::Ack,
            Command::WindowAsk,
            Command::WindowTell,
            Command::Fin,
            Command::Cookie,
        ];
        let number = |choices: &mut Choices<'_>| match choices.byte() {
            255 => u32::MAX,
            small => u32::from(small % 140),
        };
        let data = vec![7; choices.below(3) * 500];
        let header = Header {
            conversation: choices.below(4) as u32,
            command: commands[choices.below(commands.len())],
            fragment: choices.byte() % 8,
            window: u16::from(choices.byte()),
            timestamp: number(choices),
            number: if choices.flag() { 0 } else { number(choices) },
            unacknowledged: number(choices),
            len: data.len() as u32,
        };
        datagram.extend_from_slice(&header.to_bytes());
        datagram.extend_from_slice(&data);
    }
    datagram
}
