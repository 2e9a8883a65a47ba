//! The health of endpoints, as they tell it themselves.

use std::time::Duration;

use corewire_proto::rpc::Code;
use corewire_runtime::{sleep, spawn_local};

use crate::client::{Channel, Serving, WatchHealth};
use crate::health::{HealthClient, HealthStatus};
use crate::status::Status;

/// How long after a watch that broke another one begins.
const RETRY: Duration = Duration::from_millis(500);

/// Watches what endpoints say of this service.
pub(super) fn watch(service: String) -> WatchHealth {
    WatchHealth::over_channel(move |channel, serving| spawn_local(follow(channel, service.clone(), serving)))
}

async fn follow(channel: Channel, service: String, serving: Serving) {
    let client = HealthClient::new(channel);
    loop {
        let ended = once(&client, &service, &serving).await;
        if ended.is_err_and(|status| is_unhealthful(&status)) {
            // A server that says nothing of its health takes calls.
            return serving.set(true);
        }
        serving.set(false);
        sleep(RETRY).await;
    }
}

async fn once(client: &HealthClient, service: &str, serving: &Serving) -> Result<(), Status> {
    let mut changes = client.watch(service).wait_for_ready().await?;
    while let Some(status) = changes.next().await {
        serving.set(status? == HealthStatus::Serving);
    }
    Ok(())
}

/// The server has no health service.
fn is_unhealthful(status: &Status) -> bool {
    matches!(status.code(), Code::SERVICE_NOT_FOUND | Code::METHOD_NOT_FOUND | Code::UNIMPLEMENTED)
}
