//! The `corewire` command: serve, load and measure network services.
#![deny(unsafe_code)]

mod args;
#[cfg_attr(not(target_os = "linux"), path = "baseline_elsewhere.rs")]
mod baseline;
mod bench;
mod call;
mod control;
mod discovery;
mod exchange;
mod failure;
mod fairness;
mod heap;
mod kcp;
mod lists;
mod load;
mod one_thread;
mod pattern;
mod percentiles;
mod proxy;
mod registry;
mod run_control;
mod serve;
mod system;
mod tls;
mod trend;
mod udp;
mod wake;

use std::process::ExitCode;

use clap::Parser;

use args::{BaselineLoadKind, BenchArgs, BenchKind, Cli, Command};
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
        Some(Command::Bench(args)) if args.kind == BenchKind::Fairness => fairness::bench(&args),
        Some(Command::Bench(args)) if args.kind == BenchKind::Wake => wake::bench(&args),
        Some(Command::Bench(args)) if args.kind == BenchKind::Tls => tls::bench(&args),
        Some(Command::Bench(args)) => bench::bench(&args),
        Some(Command::Registry(command)) => registry::run(&command).map(|()| true),
        Some(Command::Proxy(kind)) => proxy::proxy(&kind).map(|()| true),
        Some(Command::Serve(args)) => serve::serve(&args).map(|()| true),
        Some(Command::Load(args)) => load::load(&args),
        Some(Command::Call(args)) => call::call(&args).map(|()| true),
        Some(Command::BaselineServe(args)) if args.kind.is_udp() => udp::baseline_serve(&args).map(|()| true),
        Some(Command::BaselineLoad(args))
            if matches!(args.kind, BaselineLoadKind::Udp | BaselineLoadKind::UdpSend) =>
        {
            system::check_fd_limit(args.connections)?;
            run_control::by_control(udp::baseline_workers(&args)?).map(|()| true)
        }
        Some(Command::Greedy(args)) => {
            system::check_fd_limit(args.connections)?;
            run_control::by_control(fairness::greedy(&args)?).map(|()| true)
        }
        Some(Command::TlsBaseline(args)) => tls::serve(&args).map(|()| true),
        Some(Command::Polite(args)) => fairness::polite(&args).map(|()| true),
        Some(Command::BaselineServe(args)) => baseline::serve(&args).map(|()| true),
        Some(Command::BaselineLoad(args)) => {
            system::check_fd_limit(args.connections)?;
            run_control::by_control(baseline::workers(&args)?).map(|()| true)
        }
    }
}
