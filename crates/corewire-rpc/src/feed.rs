//! What an attempt at a call was sent of the requests that are kept.

use std::task::{Context, Poll, ready};

use crate::replay::{Next, Replay};
use crate::sink::Sink;

#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Fed {
    /// Requests that were sent.
    sent: usize,
    half: Half,
}

/// The half of the requests.
#[derive(Debug, Default)]
enum Half {
    #[default]
    Open,
    Ended,
    /// It takes no more: the responses tell why.
    Broken,
}

impl Fed {
    /// Sends what there is. Ready when that is nothing more.
    pub(crate) fn poll<T>(
        &mut self,
        replay: &Replay,
        sink: &mut Sink<T>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        while matches!(self.half, Half::Open) {
            match replay.next(self.sent) {
                Next::Request(request) => match ready!(sink.poll_message(&request, context)) {
                    Ok(()) => self.sent += 1,
                    Err(_) => self.half = Half::Broken,
                },
                Next::End => {
                    // As above.
                    let _ = ready!(sink.poll_finish(context));
                    self.half = Half::Ended;
                }
                Next::Nothing => break,
            }
        }
        Poll::Ready(())
    }

    /// Gives the sink to the caller, once there is nothing more to be sent before.
    pub(crate) fn give<T>(&self, replay: &Replay, sink: &mut Option<Sink<T>>) -> bool {
        let sent = match self.half {
            Half::Open => Some(self.sent),
            Half::Broken => None,
            Half::Ended => return true,
        };
        match sink.take() {
            None => true,
            Some(given) => {
                let mut given = Some(given);
                let is_given = replay.give_sink(sent, || given.take().map(Sink::into_handle));
                *sink = given;
                is_given
            }
        }
    }
}
