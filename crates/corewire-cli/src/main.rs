//! The `corewire` command.
fn main() {}
