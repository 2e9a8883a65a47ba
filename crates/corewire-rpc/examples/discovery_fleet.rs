//! Three server processes, a registry and a client: one server is killed, one drained, one added, and no call fails.
//!
//! `cargo run --example discovery_fleet` serves a registry itself; `… -- etcd://127.0.0.1:2379/fleet` (with
//! `--features etcd`) or any other address uses that one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corewire_rpc::discover::registry::LocalRegistry;
use corewire_rpc::discover::{Registration, registry_service};
use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, Status};
use rustix::process::{Pid, Signal, kill_process};

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, AnyError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, registry, name] = &args[..]
        && serve == "serve"
    {
        run_server(registry, name)?;
        return Ok(ExitCode::SUCCESS);
    }
    let registry = RpcServer::bind("tcp://127.0.0.1:0").service(registry_service(&LocalRegistry::new()));
    let registry = registry.workers(1).start()?;
    let address = match args.first() {
        Some(address) => address.clone(),
        None => registry.uri().replace("tcp:", "rpc:"),
    };
    let this = std::env::current_exe()?;
    let report = run_fleet(&address, |name| {
        let mut command = Command::new(&this);
        command.args(["serve", &address, name]);
        command
    })?;
    println!("{} calls, {} failed", report.calls, report.failed.len());
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A server of the fleet, until SIGTERM drains it.
pub fn run_server(registry: &str, name: &str) -> Result<(), AnyError> {
    let said = Bytes::from(name.to_owned());
    let service = Service::new("Fleet").unary("who", move |_: Bytes, _: Context| {
        let said = said.clone();
        async move {
            // Long enough to be in flight when something happens to the server.
            corewire::sleep(Duration::from_millis(2)).await;
            Ok(said)
        }
    });
    let registration = Registration::new(registry).instance(name).ttl(Duration::from_secs(2));
    RpcServer::bind("tcp://127.0.0.1:0").service(service).register_as(registration).workers(1).run()?;
    Ok(())
}

/// What became of the calls.
#[derive(Debug, Default)]
pub struct Report {
    /// All of them.
    pub calls: usize,
    /// Those that failed.
    pub failed: Vec<Status>,
}

/// Starts servers by `server`, and has things happen to them while a client calls.
pub fn run_fleet(registry: &str, server: impl Fn(&str) -> Command) -> Result<Report, AnyError> {
    let start = |name: &str| Server::start(server(name));
    let (killed, drained, _kept) = (start("killed")?, start("drained")?, start("kept")?);
    let channel = corewire::block_on(Channel::discover(registry, "Fleet").eager().build())?;
    until_answered_by(&channel, &["killed", "drained", "kept"])?;
    let (stop, mut report) = (AtomicBool::new(false), Report::default());
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(|| call(&channel, &stop))).collect();
        let happened = (|| {
            killed.kill()?;
            println!("killed one");
            until_answered_by(&channel, &["drained", "kept"])?;
            drained.drain()?;
            println!("drained one");
            let _added = start("added")?;
            until_answered_by(&channel, &["kept", "added"])?;
            println!("added one");
            Ok::<_, AnyError>(())
        })();
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            let Report { calls, failed } = caller.join().unwrap_or_default();
            report.calls += calls;
            report.failed.extend(failed);
        }
        happened
    })?;
    Ok(report)
}

/// Calls that may be made twice, one after the other.
pub fn call(channel: &Channel, stop: &AtomicBool) -> Report {
    let mut report = Report::default();
    while !stop.load(Ordering::Relaxed) {
        report.calls += 1;
        if let Err(status) = corewire::block_on(channel.unary("Fleet/who", "").idempotent()) {
            report.failed.push(status);
        }
    }
    report
}

/// Waits until each of these answers.
pub fn until_answered_by(channel: &Channel, servers: &[&str]) -> Result<(), AnyError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut missing = servers.to_vec();
    while !missing.is_empty() {
        let answer = corewire::block_on(channel.unary("Fleet/who", "").idempotent())?;
        missing.retain(|server| answer != server.as_bytes());
        if Instant::now() > deadline {
            return Err(format!("no answer from {missing:?}").into());
        }
    }
    Ok(())
}

/// A server process, killed when it is dropped.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts it.
    pub fn start(mut command: Command) -> Result<Self, AnyError> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
    }

    /// Without a word to anybody, as a crash.
    fn kill(mut self) -> Result<(), AnyError> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Finishes its calls.
    fn drain(mut self) -> Result<(), AnyError> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        let told = self.0.stdout.take().map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
        told.into_iter().flatten().for_each(|line| println!("  {line}"));
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the drained server ended with {status}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
