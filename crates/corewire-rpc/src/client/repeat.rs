//! Calls that may be made more than once: retries within a budget, and hedging.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_proto::rpc::Code;
use corewire_runtime::sleep;

use super::Channel;
use super::attempt::Attempt;
use super::call::Shape;
use super::local;
use super::settings::Retry;
use crate::status::Status;

/// Makes a call, on the channel's worker: several times if that is allowed and of use.
pub(super) async fn run<S: Shape>(mut call: Attempt) -> Result<S::Sent, Status> {
    if !call.is_repeated() {
        return made::<S>(call).await;
    }
    let Some((retry, hedge, timeout, is_balanced)) = local::find(call.channel.key()).map(|local| {
        let settings = &local.settings;
        (settings.retry, settings.hedge, settings.timeout, local.discovered.is_some())
    }) else {
        return Err(Status::closed().unprocessed());
    };
    // Each attempt goes elsewhere, if there is an elsewhere.
    call.request.options().avoided = is_balanced.then(Arc::default);
    let deadline = corewire_driver::clock::now().checked_add(call.request.timeout.unwrap_or(timeout));
    let mut attempt = 1;
    loop {
        let result = hedged::<S>(&call, deadline, hedge).await;
        let Some(retry) = retry else { return result };
        let Err(status) = result else {
            refill(&call.channel, &retry);
            return result;
        };
        let may_help = matches!(status.code(), Code::UNAVAILABLE | Code::CONNECTION_CLOSED);
        let is_late = deadline.is_some_and(|deadline| corewire_driver::clock::now() >= deadline);
        if !may_help || is_late || attempt >= retry.attempts || !take(&call.channel) {
            return Err(status);
        }
        let bound = retry.initial_wait.saturating_mul(1 << (attempt - 1).min(10));
        sleep(bound.mul_f64(corewire_driver::entropy::f64())).await;
        attempt += 1;
    }
}

/// One call, made once.
async fn made<S: Shape>(mut attempt: Attempt) -> Result<S::Sent, Status> {
    poll_fn(|context| S::poll_local(&mut attempt, context)).await
}

/// One more of the same.
fn again(call: &Attempt, deadline: Option<Instant>) -> Attempt {
    let mut request = call.request.again();
    let left = deadline.map(|deadline| deadline.saturating_duration_since(corewire_driver::clock::now()));
    request.timeout = left.or(request.timeout);
    let mut again = Attempt::new(call.channel.clone(), request);
    if call.noted.is_some() {
        again.noted = Some(Box::default());
    }
    again
}

/// The first result of the call and of one more that begins when the first has taken `after`; the other is dropped.
async fn hedged<S: Shape>(
    call: &Attempt,
    deadline: Option<Instant>,
    after: Option<Duration>,
) -> Result<S::Sent, Status> {
    let first = made::<S>(again(call, deadline));
    let Some(after) = after else { return first.await };
    let second = async {
        sleep(after).await;
        made::<S>(again(call, deadline)).await
    };
    // A failure is told as it comes: hedging is against slowness only.
    futures_lite::future::or(first, second).await
}

/// Takes a token for a retry.
fn take(channel: &Channel) -> bool {
    local::find(channel.key()).is_some_and(|local| {
        let left = local.budget.get().checked_sub(1_000);
        left.inspect(|left| local.budget.set(*left)).is_some()
    })
}

fn refill(channel: &Channel, retry: &Retry) {
    if let Some(local) = local::find(channel.key()) {
        let full = u64::from(retry.budget) * 1_000;
        local.budget.set((local.budget.get() + u64::from(retry.refill)).min(full));
    }
}
