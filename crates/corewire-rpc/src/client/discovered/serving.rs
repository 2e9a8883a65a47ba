//! Whether endpoints say that they take calls.

use std::cell::Cell;
use std::fmt;
use std::rc::{Rc, Weak};

use corewire_runtime::{JoinHandle, WorkerHandle};

use crate::client::pool::Pool;
use crate::client::settings::Settings;

/// What an endpoint says of itself, as who watches it tells. It takes no calls until it has said so.
#[derive(Clone)]
pub(crate) struct Serving {
    is_serving: Rc<Cell<bool>>,
    waiting: Weak<Pool>,
}

impl Serving {
    /// Calls that wait are placed when this becomes true.
    pub(crate) fn set(&self, is_serving: bool) {
        if !self.is_serving.replace(is_serving)
            && is_serving
            && let Some(waiting) = self.waiting.upgrade()
        {
            waiting.wake_all();
        }
    }
}

/// Starts a task that watches the health of an endpoint, by a connection with these settings.
pub(crate) struct WatchHealth(Box<Watch>);

type Watch = dyn Fn(Settings, &WorkerHandle, Serving) -> Option<JoinHandle<()>> + Send;

impl WatchHealth {
    pub(in crate::client) fn new(
        watch: impl Fn(Settings, &WorkerHandle, Serving) -> Option<JoinHandle<()>> + Send + 'static,
    ) -> Self {
        Self(Box::new(watch))
    }

    /// For those who wait in this pool.
    pub(super) fn start(&self, settings: Settings, waiting: &Rc<Pool>) -> Option<Watched> {
        let serving = Serving { is_serving: Rc::default(), waiting: Rc::downgrade(waiting) };
        let is_serving = serving.is_serving.clone();
        Some(Watched { is_serving, task: Some((self.0)(settings, &waiting.home, serving)?) })
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
