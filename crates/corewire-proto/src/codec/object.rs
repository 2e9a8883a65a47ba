use super::{Codec, DecodeError, Decoded, EncodeError, FrameHead, Prefix};

/// Turns payloads into values and values into payloads; the layer above framing.
///
/// One instance serves one connection. What is read and what is written may be of different types: a server
/// reads requests and writes replies. `JsonCodec` (feature `json`) is an example.
pub trait ObjectCodec: 'static {
    /// What is read.
    type In;
    /// What is written.
    type Out;

    /// Reads the payload of one whole frame.
    ///
    /// # Errors
    /// [`DecodeError::Payload`]: the bytes are not such a value. The stream stays in step.
    fn decode(&mut self, head: FrameHead, payload: &[u8]) -> Result<Self::In, DecodeError>;

    /// Appends `value` to `payload`.
    ///
    /// # Errors
    /// [`EncodeError::Value`]: the value cannot be written. What was appended until then is thrown away by the
    /// caller.
    fn encode(&mut self, value: &Self::Out, payload: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// A framing codec with an object codec behind it: bytes in, values out, and the reverse.
#[cfg_attr(
    feature = "json",
    doc = r#"
```
use corewire_proto::codec::{JsonCodec, LineCodec, Pipeline, PipelineDecoded};

let mut pipeline = Pipeline::new(LineCodec::new(), JsonCodec::<Vec<u32>>::new());
let mut wire = Vec::new();
pipeline.encode(Default::default(), &vec![1, 2], &mut wire)?;
assert_eq!(wire, b"[1,2]\n");

let PipelineDecoded::Value { value, consumed, .. } = pipeline.decode(&wire)? else { panic!() };
assert_eq!((value, consumed), (vec![1, 2], 6));
# Ok::<(), Box<dyn std::error::Error>>(())
```
"#
)]
#[derive(Debug, Clone)]
pub struct Pipeline<F, O> {
    framing: F,
    object: O,
    /// The length of a frame whose payload could not be read, until it has been stepped over.
    unreadable: usize,
    scratch: Vec<u8>,
}

/// What a [`Pipeline`] found at the front of the bytes it was shown; as [`Decoded`], with a value in place of a
/// payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineDecoded<T> {
    /// One whole frame.
    Value {
        /// What the frame's header said.
        head: FrameHead,
        /// What its payload said.
        value: T,
        /// How many bytes to step over; at least 1.
        consumed: usize,
    },
    /// Bytes that make no value: step over them. At least 1.
    Skipped {
        /// How many bytes to step over.
        consumed: usize,
    },
    /// Show the same bytes again once there are at least `needed` of them.
    Incomplete {
        /// Total bytes below which another call is of no use.
        needed: usize,
    },
}

impl<F: Codec, O: ObjectCodec> Pipeline<F, O> {
    /// Puts `object` behind `framing`.
    pub const fn new(framing: F, object: O) -> Self {
        Self { framing, object, unreadable: 0, scratch: Vec::new() }
    }

    /// Looks at the front of `input` (never empty).
    ///
    /// # Errors
    /// Those of both codecs. After one for which [`DecodeError::is_recoverable`] is true, call again with the
    /// same input: the frame is stepped over.
    #[inline]
    pub fn decode(&mut self, input: &[u8]) -> Result<PipelineDecoded<O::In>, DecodeError> {
        if self.unreadable > 0 {
            let consumed = std::mem::take(&mut self.unreadable);
            return Ok(PipelineDecoded::Skipped { consumed });
        }
        match self.framing.decode(input)? {
            Decoded::Frame { head, payload, consumed } => match self.object.decode(head, &input[payload]) {
                Ok(value) => Ok(PipelineDecoded::Value { head, value, consumed }),
                Err(error) => {
                    self.unreadable = consumed;
                    Err(error)
                }
            },
            Decoded::Skipped { consumed } => Ok(PipelineDecoded::Skipped { consumed }),
            Decoded::Incomplete { needed } => Ok(PipelineDecoded::Incomplete { needed }),
        }
    }

    /// Appends the whole frame for `value` to `out`.
    ///
    /// # Errors
    /// Those of both codecs; `out` is left as it was.
    pub fn encode(&mut self, head: FrameHead, value: &O::Out, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.scratch.clear();
        self.object.encode(value, &mut self.scratch)?;
        let mut prefix = Prefix::new();
        self.framing.encode(head, &self.scratch, &mut prefix)?;
        out.extend_from_slice(prefix.as_slice());
        out.extend_from_slice(&self.scratch);
        out.extend_from_slice(self.framing.suffix());
        Ok(())
    }

    /// The framing codec: heads of requests, the way of matching.
    pub const fn framing(&self) -> &F {
        &self.framing
    }

    /// The two codecs, for a connection that does the framing itself.
    pub fn into_parts(self) -> (F, O) {
        (self.framing, self.object)
    }
}
