//! Where there is no epoll there is no limit to measure yet; everything else works.

use crate::args::{LimitLoadArgs, LimitServeArgs};
use crate::conduct::Crew;
use crate::failure::Failure;

pub(crate) fn serve(_: &LimitServeArgs) -> Result<(), Failure> {
    Err(no_limit())
}

pub(crate) fn crew(_: &LimitLoadArgs) -> Result<Crew, Failure> {
    Err(no_limit())
}

fn no_limit() -> Failure {
    Failure::Setting(
        "the limit is a loop on epoll and can be measured on Linux only; use serve and load here".into(),
    )
}
