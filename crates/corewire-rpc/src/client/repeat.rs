//! Calls that may be made more than once: retries within a budget, and hedging.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_proto::rpc::Code;
use corewire_runtime::sleep;

use super::Channel;
use super::local;
use super::settings::Retry;
use super::start::Plan;
use super::unary::{Answer, Unary};
use crate::status::Status;

/// Makes a call, on the channel's worker: several times if that is allowed and of use.
pub(super) async fn call(channel: &Channel, mut plan: Plan<'static>) -> Result<Answer, Status> {
    let is_idempotent = plan.options.as_ref().is_some_and(|options| options.is_idempotent);
    let Some((retry, hedge, timeout, is_balanced)) = local::find(channel.key()).map(|local| {
        let settings = &local.settings;
        (settings.retry, settings.hedge, settings.timeout, local.discovered.is_some())
    }) else {
        return Err(Status::closed());
    };
    if !is_idempotent || (retry.is_none() && hedge.is_none()) {
        return made(channel, plan).await;
    }
    // Each attempt goes elsewhere, if there is an elsewhere.
    plan.options().avoided = is_balanced.then(Arc::default);
    let deadline = corewire_driver::clock::now().checked_add(plan.timeout.unwrap_or(timeout));
    let mut attempt = 1;
    loop {
        let result = hedged(channel, || again(&plan, deadline), hedge).await;
        let Some(retry) = retry else { return result };
        let Err(status) = result else {
            refill(channel, &retry);
            return result;
        };
        let may_help = matches!(status.code(), Code::UNAVAILABLE | Code::CONNECTION_CLOSED);
        let is_late = deadline.is_some_and(|deadline| corewire_driver::clock::now() >= deadline);
        if !may_help || is_late || attempt >= retry.attempts || !take(channel) {
            return Err(status);
        }
        let bound = retry.initial_wait.saturating_mul(1 << (attempt - 1).min(10));
        sleep(bound.mul_f64(corewire_driver::entropy::f64())).await;
        attempt += 1;
    }
}

/// One call, made once.
async fn made(channel: &Channel, plan: Plan<'static>) -> Result<Answer, Status> {
    let mut call = Unary::<Bytes>::new(channel, plan).with_metadata();
    poll_fn(|context| call.poll_answer(context)).await
}

/// One more of the same.
fn again(plan: &Plan<'static>, deadline: Option<Instant>) -> Plan<'static> {
    let mut options = plan.options.clone();
    if let Some(options) = &mut options {
        // What is made here is not made several times again.
        options.is_idempotent = false;
    }
    let timeout = deadline.map(|deadline| deadline.saturating_duration_since(corewire_driver::clock::now()));
    let mut again = Plan::new(plan.path.again(), plan.mode, plan.payload.clone());
    (again.timeout, again.options) = (timeout.or(plan.timeout), options);
    again
}

/// The first result of the call and of one more that begins when the first has taken `after`; the other is dropped.
async fn hedged(
    channel: &Channel,
    plan: impl Fn() -> Plan<'static>,
    after: Option<Duration>,
) -> Result<Answer, Status> {
    let first = made(channel, plan());
    let Some(after) = after else { return first.await };
    let second = async {
        sleep(after).await;
        made(channel, plan()).await
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
