use super::leases::{LeaseId, Leases, Pace};
use super::session::Failure;
use etcd_client::{Client, Error};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// Renews all leases for as long as there is an answer, beside whatever else the client is used for: a slow request must
/// not cost a lease. Tells which ones etcd does not have any more; returns why others could not be renewed.
pub(super) async fn renew(
    mut client: Client,
    mut leases: watch::Receiver<Leases>,
    gone: UnboundedSender<LeaseId>,
    request_timeout: Duration,
) -> Failure {
    let mut last = Instant::now();
    loop {
        let pace = Pace::of(&leases.borrow_and_update(), request_timeout);
        let due = last + pace.every;
        tokio::select! {
            Ok(()) = leases.changed() => continue,
            () = tokio::time::sleep(due.saturating_duration_since(Instant::now())) => {}
        }
        last = Instant::now();
        let held: Vec<LeaseId> = leases.borrow().values().copied().collect();
        match renew_once(&mut client, &held, pace.answer_max).await {
            Ok(ended) => {
                for lease in ended {
                    // Nobody listens any more when the session is over.
                    let _ = gone.send(lease);
                }
            }
            Err(failure) => return failure,
        }
    }
}

/// Renews these leases, and says which of them are no more.
pub(super) async fn renew_once(
    client: &mut Client,
    leases: &[LeaseId],
    answer_max: Duration,
) -> Result<Vec<LeaseId>, Failure> {
    let mut gone = Vec::new();
    for lease in leases {
        match tokio::time::timeout(answer_max, client.lease_keep_alive(lease.0)).await {
            Ok(Ok(_)) => {}
            // What the client says when etcd answers that there is no such lease.
            Ok(Err(Error::LeaseKeepAliveError(_))) => gone.push(*lease),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Failure(format!("a lease was not renewed within {answer_max:?}"))),
        }
    }
    Ok(gone)
}
