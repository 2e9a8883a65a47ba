use super::session::Failure;
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs a future whose panic is a failure like any other. The client panics on answers it does not know, such as a
/// kind of event from a later etcd; the registry must outlive that.
pub(super) async fn contained<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled,
        // It is not polled again.
        Err(panic) => Poll::Ready(Err(Failure(format!("the client panicked: {}", message(&*panic))))),
    })
    .await
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, yield_now};

    #[test]
    fn a_panic_is_a_failure_that_says_what_it_said() {
        let Err(Failure(why)) = block_on(contained(async {
            yield_now().await;
            let unknown: i32 = "7".parse().unwrap();
            if unknown > 1 {
                panic!("unknown event {unknown}");
            }
            Ok(())
        })) else {
            panic!("it went well");
        };
        assert_eq!(why, "the client panicked: unknown event 7");
        assert!(matches!(block_on(contained(async { Ok(1) })), Ok(1)));
    }
}
