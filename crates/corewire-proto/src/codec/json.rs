use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DecodeError, EncodeError, FrameHead, ObjectCodec};

/// One JSON text per payload: reads an `In`, writes an `Out` (the same type if not said).
///
/// What follows the value in a payload must be white space; nesting is limited to 128 levels (by `serde_json`),
/// size by the framing codec.
#[derive(Debug)]
pub struct JsonCodec<In, Out = In> {
    types: PhantomData<fn(Out) -> In>,
}

impl<In, Out> JsonCodec<In, Out> {
    /// A codec; it keeps no state.
    pub const fn new() -> Self {
        Self { types: PhantomData }
    }
}

impl<In, Out> Default for JsonCodec<In, Out> {
    fn default() -> Self {
        Self::new()
    }
}

impl<In, Out> Clone for JsonCodec<In, Out> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<In, Out> ObjectCodec for JsonCodec<In, Out>
where
    In: DeserializeOwned + 'static,
    Out: Serialize + 'static,
{
    type In = In;
    type Out = Out;

    fn decode(&mut self, _: FrameHead, payload: &[u8]) -> Result<In, DecodeError> {
        serde_json::from_slice(payload).map_err(|error| DecodeError::Payload(error.to_string()))
    }

    fn encode(&mut self, value: &Out, payload: &mut Vec<u8>) -> Result<(), EncodeError> {
        serde_json::to_writer(payload, value).map_err(|error| EncodeError::Value(error.to_string()))
    }
}
