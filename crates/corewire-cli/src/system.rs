//! The process and the machine: clocks, cores, the limit on file descriptors.

use corewire::runtime::driver::{available_cpus, pin_current_thread};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::failure::Failure;

/// Descriptors that a process needs beside its connections: standard streams, rings, wake-ups, listeners.
const SPARE_FDS: u64 = 64;

/// CPU time used by the whole process, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// CPU time used by the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// The monotonic clock in nanoseconds; the same in every process of a machine.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Raises the soft limit on open files to the hard one; a system that refuses leaves it as it was.
pub(crate) fn raise_fd_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Says beforehand that so many connections cannot be held by one process.
pub(crate) fn check_fd_limit(connections: usize) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = connections as u64 + SPARE_FDS;
    if needed > limit { Err(Failure::TooManyConnections { connections, needed, limit }) } else { Ok(()) }
}

/// How many connections one process can hold.
pub(crate) fn connections_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(SPARE_FDS)).unwrap_or(usize::MAX)
}

/// Binds the calling thread, and the threads it will start, to one core.
pub(crate) fn pin_to(cpu: usize) -> Result<(), Failure> {
    pin_current_thread(cpu).map_err(Failure::io(format!(
        "cannot bind to core {cpu} (this process may use cores {:?})",
        available_cpus()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_than_descriptors_is_refused_with_the_baseline_named() {
        let refusal = check_fd_limit(usize::MAX / 2).unwrap_err().to_string();
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(refusal.contains(&limit.to_string()), "{refusal}");
    }

    #[test]
    fn clocks_move_forward() {
        let (wall, cpu) = (monotonic_ns(), process_cpu_ns());
        std::hint::black_box((0..200_000u64).fold(1u64, |a, b| a.wrapping_mul(b | 1)));
        assert!(monotonic_ns() > wall);
        assert!(process_cpu_ns() >= cpu);
    }
}
