//! Whether endpoints say that they take calls.

use std::cell::Cell;
use std::fmt;
use std::rc::{Rc, Weak};

use corewire_runtime::JoinHandle;

use crate::client::Channel;
use crate::client::local::LocalChannel;

/// What an endpoint says of itself, as who watches it tells. It takes no calls until it has said so.
#[derive(Clone)]
pub(crate) struct Serving {
    is_serving: Rc<Cell<bool>>,
    channel: Weak<LocalChannel>,
}

impl Serving {
    /// Calls that wait are placed when this becomes true.
    pub(crate) fn set(&self, is_serving: bool) {
        if !self.is_serving.replace(is_serving)
            && is_serving
            && let Some(channel) = self.channel.upgrade()
        {
            channel.wake_all();
        }
    }
}

/// Starts a task that watches the health of an endpoint over a channel to it.
pub(crate) struct WatchHealth(Box<dyn Fn(Channel, Serving) -> JoinHandle<()> + Send>);

impl WatchHealth {
    pub(crate) fn new(watch: impl Fn(Channel, Serving) -> JoinHandle<()> + Send + 'static) -> Self {
        Self(Box::new(watch))
    }

    /// Of the channel whose calls wait for it.
    pub(super) fn start(&self, endpoint: Channel, of: &Weak<LocalChannel>) -> Watched {
        let serving = Serving { is_serving: Rc::default(), channel: of.clone() };
        Watched { is_serving: serving.is_serving.clone(), task: Some((self.0)(endpoint, serving)) }
    }
}

impl fmt::Debug for WatchHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchHealth")
    }
}

/// An endpoint whose health is watched, until this is dropped.
pub(super) struct Watched {
    is_serving: Rc<Cell<bool>>,
    task: Option<JoinHandle<()>>,
}

impl Watched {
    pub(super) fn is_serving(&self) -> bool {
        self.is_serving.get()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(JoinHandle::abort);
    }
}
