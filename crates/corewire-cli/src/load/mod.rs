//! `corewire load`.
use crate::args::LoadArgs;
use crate::failure::Failure;

pub(crate) fn load(_args: &LoadArgs) -> Result<bool, Failure> {
    Err(Failure::Library("not wired yet".into()))
}
