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
