//! `corewire proxy udp`: passes datagrams on over a path that loses, repeats, delays and reorders them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::share;
use crate::lists::duration;
use clap::Args;
use corewire::runtime::udp::{Datagram, UdpError, UdpOptions, UdpPort, UdpProtocol, open};
use corewire_link::link::{Link, LinkConfig, LinkStats};

/// Options of `corewire proxy udp`. Each direction of each client is a path of its own with these properties.
#[derive(Debug, Clone, Args)]
pub(crate) struct UdpProxyArgs {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Where to pass datagrams on to
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) target: SocketAddr,
    /// Share of datagrams that are lost, such as 10%
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub(crate) loss: f64,
    /// Time on the way, such as 30ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) delay: Duration,
    /// Up to this much more, at random
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) jitter: Duration,
    /// Share of datagrams that arrive twice
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub(crate) duplicate: f64,
    /// Share of datagrams that are overtaken by those of the next 10 ms
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub(crate) reorder: f64,
    /// Bits per second [default: no limit]
    #[arg(long, value_name = "BITS")]
    pub(crate) bandwidth: Option<u64>,
    /// What chance begins with: the same number and traffic, the same fate
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

/// Clients at the most; datagrams of more are dropped and counted.
const CLIENTS_MAX: usize = 10_000;
const REORDER_BY_US: u64 = 10_000;

thread_local! {
    static HERE: RefCell<Option<Rc<Proxy>>> = const { RefCell::new(None) };
}

/// Begins to pass on, on the current worker; says where it listens.
pub(super) fn start(args: &UdpProxyArgs) -> io::Result<SocketAddr> {
    let options = UdpOptions::default();
    let socket = open(args.listen, &options)?;
    let proxy = Rc::new(Proxy {
        target: args.target,
        config: config(args),
        seed: args.seed,
        begun: Instant::now(),
        flows: RefCell::default(),
    });
    let port = UdpPort::open(socket, &options, Front { proxy: proxy.clone() })?;
    HERE.set(Some(proxy));
    port.local_addr().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// What became of the datagrams so far, a line for each direction.
pub(super) fn story() -> Option<[String; 2]> {
    let (up, down) = HERE.with_borrow(|proxy| proxy.as_ref().map(|proxy| proxy.stats()))?;
    Some([format!("to the target: {}", told(&up)), format!("from the target: {}", told(&down))])
}

fn config(args: &UdpProxyArgs) -> LinkConfig {
    LinkConfig {
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        reorder_by_us: REORDER_BY_US,
        delay_us: args.delay.as_micros() as u64,
        jitter_us: args.jitter.as_micros() as u64,
        bandwidth_bps: args.bandwidth,
        ..LinkConfig::default()
    }
}

fn told(stats: &LinkStats) -> String {
    let LinkStats { sent, delivered, lost, duplicated, reordered, dropped_queue, .. } = stats;
    format!(
        "{sent} datagrams came, {delivered} went on; {lost} lost, {duplicated} doubled, {reordered} held back, \
         {dropped_queue} over the bandwidth"
    )
}

struct Proxy {
    target: SocketAddr,
    config: LinkConfig,
    seed: u64,
    begun: Instant,
    flows: RefCell<HashMap<SocketAddr, Rc<Flow>>>,
}

/// One client and its two paths.
struct Flow {
    client: SocketAddr,
    front: UdpPort,
    back: RefCell<Option<UdpPort>>,
    up: RefCell<Link>,
    down: RefCell<Link>,
}

impl Proxy {
    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn flow(self: &Rc<Self>, client: SocketAddr, front: &UdpPort) -> io::Result<Rc<Flow>> {
        if let Some(flow) = self.flows.borrow().get(&client) {
            return Ok(flow.clone());
        }
        let count = self.flows.borrow().len();
        if count >= CLIENTS_MAX {
            return Err(io::Error::other(format!("{CLIENTS_MAX} clients are served, which is the limit")));
        }
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(2 * count as u64);
        let flow = Rc::new(Flow {
            client,
            front: front.clone(),
            back: RefCell::default(),
            up: RefCell::new(Link::new(self.config.clone(), seed)),
            down: RefCell::new(Link::new(self.config.clone(), seed + 1)),
        });
        let options = UdpOptions::default();
        let any: SocketAddr = match self.target {
            SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = open(any, &options)?;
        socket.connect(self.target)?;
        let back = UdpPort::open(socket, &options, Back { proxy: self.clone(), flow: flow.clone() })?;
        flow.back.replace(Some(back));
        self.flows.borrow_mut().insert(client, flow.clone());
        Ok(flow)
    }

    /// Passes on what is due, and comes back for the rest.
    fn pump(&self, flow: &Flow) {
        let Some(back) = flow.back.borrow().clone() else { return };
        let now = self.now_us();
        let (mut up, mut down) = (flow.up.borrow_mut(), flow.down.borrow_mut());
        let mut refused = None;
        while let Some(datagram) = up.receive(now) {
            refused = back.send(&datagram).err().or(refused);
        }
        while let Some(datagram) = down.receive(now) {
            refused = flow.front.send_to(flow.client, &datagram).err().or(refused);
        }
        if let Some(error) = refused {
            eprintln!("corewire: {error}");
        }
        let next = [up.next_arrival_us(), down.next_arrival_us()].into_iter().flatten().min();
        back.set_timer(next.map(|at| Duration::from_micros(at.saturating_sub(now))));
    }

    fn stats(&self) -> (LinkStats, LinkStats) {
        let (mut up, mut down) = (LinkStats::default(), LinkStats::default());
        for flow in self.flows.borrow().values() {
            add(&mut up, &flow.up.borrow().stats());
            add(&mut down, &flow.down.borrow().stats());
        }
        (up, down)
    }
}

fn add(sum: &mut LinkStats, more: &LinkStats) {
    sum.sent += more.sent;
    sum.delivered += more.delivered;
    sum.lost += more.lost;
    sum.duplicated += more.duplicated;
    sum.reordered += more.reordered;
    sum.dropped_queue += more.dropped_queue;
}

/// The side of the clients.
struct Front {
    proxy: Rc<Proxy>,
}

impl UdpProtocol for Front {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        let Some(from) = datagram.from() else { return };
        match self.proxy.flow(from, port) {
            Ok(flow) => {
                flow.up.borrow_mut().send(self.proxy.now_us(), datagram.payload());
                self.proxy.pump(&flow);
            }
            Err(error) => eprintln!("corewire: a datagram of {from} was dropped: {error}"),
        }
    }
}

/// The side of the target, for one client.
struct Back {
    proxy: Rc<Proxy>,
    flow: Rc<Flow>,
}

impl UdpProtocol for Back {
    fn on_datagram(&mut self, _: &UdpPort, datagram: &Datagram<'_>) {
        self.flow.down.borrow_mut().send(self.proxy.now_us(), datagram.payload());
    }

    fn on_batch(&mut self, _: &UdpPort) {
        self.proxy.pump(&self.flow);
    }

    fn on_timer(&mut self, _: &UdpPort) {
        self.proxy.pump(&self.flow);
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        eprintln!("corewire: the target: {error}");
    }
}

#[cfg(test)]
mod tests {
    use corewire::runtime::Runtime;

    use super::*;

    #[test]
    fn datagrams_go_both_ways_but_those_that_are_lost() {
        let target = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        target.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let args = UdpProxyArgs {
            listen: "127.0.0.1:0".parse().unwrap(),
            target: target.local_addr().unwrap(),
            loss: 0.5,
            delay: Duration::from_millis(1),
            jitter: Duration::ZERO,
            duplicate: 0.0,
            reorder: 0.0,
            bandwidth: None,
            seed: 7,
        };
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let started = runtime.handle().spawn_on(0, move || async move { start(&args) });
        let proxy = started.unwrap().join().unwrap().unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        (0..200_u8).for_each(|n| assert_eq!(client.send_to(&[n], proxy).unwrap(), 1));
        let mut buffer = [0; 10];
        let (_, from) = target.recv_from(&mut buffer).unwrap();
        target.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut came = 1;
        while target.recv_from(&mut buffer).is_ok() {
            came += 1;
        }
        assert!((60..140).contains(&came), "{came} of 200 at 50 %");
        (0..50_u8).for_each(|n| assert_eq!(target.send_to(&[n], from).unwrap(), 1));
        assert_eq!(client.recv_from(&mut buffer).unwrap().1, proxy);
    }
}
