//! Processors on Linux.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The readiness backend.
pub(crate) const READINESS: &str = "epoll";

pub(crate) fn available_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

pub(crate) fn online_cpus() -> usize {
    std::fs::read_to_string("/sys/devices/system/cpu/online").map_or(1, |list| count_cpu_list(&list))
}

/// Counts a list such as `0-3,8`.
fn count_cpu_list(list: &str) -> usize {
    let count = |part: &str| match part.trim().split_once('-') {
        Some((first, last)) => {
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            last.checked_sub(first).map(|more| more + 1)
        }
        None => part.trim().parse::<usize>().ok().map(|_| 1),
    };
    list.split(',').filter_map(count).sum::<usize>().max(1)
}

pub(crate) fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(["0", "0-3", "0-3,8", "0,2,4-5\n", "", "x"].map(count_cpu_list), [1, 4, 5, 4, 1, 1]);
    }
}
