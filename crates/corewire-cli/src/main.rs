//! The `corewire` command: serve, load and measure network services.
#![deny(unsafe_code)]

mod args;
mod bench;
mod call;
mod conduct;
mod control;
mod discovery;
mod failure;
mod heap;
mod kcp;
#[cfg_attr(not(target_os = "linux"), path = "limit_elsewhere.rs")]
mod limit;
mod lists;
mod load;
mod moves;
mod pattern;
mod percentiles;
mod proxy;
mod registry;
mod serve;
mod system;
mod trend;
mod udp;

use std::process::ExitCode;

use clap::Parser;

use args::{BenchArgs, BenchKind, Cli, Command, LimitLoadKind};
use failure::Failure;

#[global_allocator]
static HEAP: heap::CountingAllocator = heap::CountingAllocator;

fn main() -> ExitCode {
    let cli = Cli::parse();
    system::raise_fd_limit();
    match run(cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("corewire: {failure}");
            match failure {
                Failure::Usage(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Whether the command saw no errors.
fn run(command: Option<Command>) -> Result<bool, Failure> {
    match command {
        None => bench::bench(&BenchArgs::quick_suite()),
        Some(Command::Bench(args)) if args.kind == BenchKind::Discovery => discovery::bench(&args),
        Some(Command::Bench(args)) if args.kind == BenchKind::Kcp => kcp::bench(&args),
        Some(Command::Bench(args)) => bench::bench(&args),
        Some(Command::Registry(command)) => registry::run(&command).map(|()| true),
        Some(Command::Proxy(kind)) => proxy::proxy(&kind).map(|()| true),
        Some(Command::Serve(args)) => serve::serve(&args).map(|()| true),
        Some(Command::Load(args)) => load::load(&args),
        Some(Command::Call(args)) => call::call(&args).map(|()| true),
        Some(Command::LimitServe(args)) if args.kind.is_udp() => udp::limit_serve(&args).map(|()| true),
        Some(Command::LimitLoad(args))
            if matches!(args.kind, LimitLoadKind::Udp | LimitLoadKind::UdpSend) =>
        {
            system::check_fd_limit(args.connections)?;
            conduct::by_control(udp::limit_crew(&args)?).map(|()| true)
        }
        Some(Command::LimitServe(args)) => limit::serve(&args).map(|()| true),
        Some(Command::LimitLoad(args)) => {
            system::check_fd_limit(args.connections)?;
            conduct::by_control(limit::crew(&args)?).map(|()| true)
        }
    }
}
