//! `corewire call --list` and `--describe`: what a server offers.

use std::io::Write;

use corewire_rpc::listing::{self, ServiceInfo};
use corewire_rpc::{Channel, Status};

use super::calling::Ended;

/// Writes the names of all services, a line for each; with `service`, the methods of that one and their modes.
pub(super) async fn write(channel: &Channel, service: Option<&str>) -> Result<(), Ended> {
    let mut out = std::io::stdout().lock();
    let written = match service {
        None => all(channel).await?.iter().try_for_each(|info| writeln!(out, "{}", info.name)),
        Some(service) => {
            let info = listing::describe(channel, service).await?;
            let mut methods = info.methods.iter();
            methods.try_for_each(|method| writeln!(out, "{}/{} {}", info.name, method.name, method.mode))
        }
    };
    written.and_then(|()| out.flush()).map_err(Ended::Output)
}

async fn all(channel: &Channel) -> Result<Vec<ServiceInfo>, Status> {
    listing::list(channel).await
}
