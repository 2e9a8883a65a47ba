//! Where there is no epoll there is no baseline to measure yet; everything else works.

use crate::args::{BaselineLoadArgs, BaselineServeArgs};
use crate::failure::Failure;
use crate::run_control::Workers;

pub(crate) fn serve(_: &BaselineServeArgs) -> Result<(), Failure> {
    Err(no_baseline())
}

pub(crate) fn workers(_: &BaselineLoadArgs) -> Result<Workers, Failure> {
    Err(no_baseline())
}

fn no_baseline() -> Failure {
    Failure::Setting(
        "the baseline is a loop on epoll and can be measured on Linux only; use serve and load here".into(),
    )
}
