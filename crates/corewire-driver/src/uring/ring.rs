//! The ring itself: set-up, submission and waiting.

use std::io;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};

use super::buffers::BufferRing;

/// Flags of io_uring_enter(2) that the crate keeps to itself.
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

const SUBMISSION_ENTRIES: u32 = 1024;

/// An io_uring of one thread, completions run only when this thread asks for them.
pub(super) struct Ring {
    uring: IoUring,
    /// A waiting loop is not "waiting for I/O" to the CPU frequency governor and the load average (Linux 6.15).
    enter_flags: u32,
}

impl Ring {
    pub(super) fn new(completion_entries: u32) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_clamp()
            .setup_cqsize(completion_entries.max(2 * SUBMISSION_ENTRIES))
            .build(SUBMISSION_ENTRIES)?;
        if !uring.params().is_feature_nodrop() || !uring.params().is_feature_ext_arg() {
            return Err(io::Error::from(rustix::io::Errno::INVAL));
        }
        let enter_flags = if uring.params().is_feature_no_iowait() { ENTER_NO_IOWAIT } else { 0 };
        // Saves the file look-up of each enter; without it all works as well.
        let _ = uring.submitter().register_ring_fd();
        Ok(Self { uring, enter_flags })
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.uring.submitter()
    }

    /// Queues an operation for the next [`enter`](Self::enter); makes room by submitting if it must.
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: no operation of this backend points to memory but for the buffer ring, which outlives the
            // ring.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter(0, None)?;
        }
    }

    /// The kernel has not taken all that was queued.
    pub(super) fn has_unsubmitted(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    pub(super) fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.uring.completion().next()
    }

    pub(super) fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// There are completions, or the kernel has work that makes some when this thread enters it. No system call.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        self.uring.submission().taskrun() || self.has_completions()
    }

    /// Submits what is queued and waits for `want` completions, at most for `timeout`.
    pub(super) fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        let (pending, work) = {
            let queue = self.uring.submission();
            (queue.len() as u32, queue.taskrun() || queue.cq_overflow())
        };
        if want == 0 && pending == 0 && !work {
            return Ok(());
        }
        let submitter = self.uring.submitter();
        let flags = ENTER_GETEVENTS | self.enter_flags;
        let entered = match timeout.filter(|_| want > 0) {
            Some(timeout) => {
                let spec = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&spec);
                // SAFETY: the argument is the struct that EXT_ARG announces and outlives the call.
                unsafe { submitter.enter(pending, want, flags | ENTER_EXT_ARG, Some(&args)) }
            }
            // SAFETY: no argument is passed, and the flags announce none.
            None => unsafe { submitter.enter::<()>(pending, want, flags, None) },
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match rustix::io::Errno::from_io_error(&error) {
                // Time is over, a signal came, or completions must be taken first: none is a fault.
                Some(
                    rustix::io::Errno::TIME
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::BUSY
                    | rustix::io::Errno::AGAIN,
                ) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// Sets up and drops a small ring with all that the backend needs.
pub(super) fn try_setup() -> io::Result<()> {
    let ring = Ring::new(8)?;
    let buffers = BufferRing::register(&ring.submitter(), 2, 4096)?;
    drop(ring);
    drop(buffers);
    Ok(())
}
