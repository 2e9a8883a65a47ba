//! `corewire serve`.
use crate::args::{Driver, ServeArgs};
use crate::failure::Failure;

pub(crate) fn serve(_args: &ServeArgs) -> Result<(), Failure> {
    Err(Failure::Library("not wired yet".into()))
}
pub(crate) fn other_driver() -> Option<Driver> {
    None
}
