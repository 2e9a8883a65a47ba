//! Threads on cores.

use std::io;

/// The processors that this process may run on, in ascending order.
pub fn available_cpus() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    }
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Processors of the machine that run, whatever this thread or process is bound to.
pub(crate) fn online_cpus() -> usize {
    #[cfg(target_os = "linux")]
    {
        std::fs::read_to_string("/sys/devices/system/cpu/online").map_or(1, |list| count_cpu_list(&list))
    }
    #[cfg(not(target_os = "linux"))]
    {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// Counts a list such as `0-3,8`.
#[cfg(target_os = "linux")]
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

/// Keeps the calling thread on one processor.
///
/// # Errors
/// The processor does not exist, or the process may not use it (`EINVAL`). On systems without thread affinity
/// the error kind is `Unsupported`.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::from(rustix::io::Errno::INVAL));
        }
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        Ok(rustix::thread::sched_setaffinity(None, &set)?)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = cpu;
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(["0", "0-3", "0-3,8", "0,2,4-5\n", "", "x"].map(count_cpu_list), [1, 4, 5, 4, 1, 1]);
    }
}
