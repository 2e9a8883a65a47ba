//! Workers without tokio's context: the feature `tokio` is off, and nobody can make one.

use crate::error::BuildError;

/// What to do when a library of tokio finds no context.
pub(crate) const ADVICE: &str = "a library made for tokio was used on a worker: enable the feature `tokio` of corewire, and \
     call `.tokio(TokioContext::own())` on the server or on the runtime's builder";

#[derive(Debug, Clone)]
pub(crate) enum TokioContext {}

impl TokioContext {
    pub(crate) fn start(self, _: &str) -> Result<Entrance, BuildError> {
        match self {}
    }
}

#[derive(Clone)]
pub(crate) enum Entrance {}

impl Entrance {
    pub(crate) fn enter(&self) {
        match *self {}
    }
}
