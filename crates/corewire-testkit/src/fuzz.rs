//! Bodies of the fuzz targets.
//!
//! Each takes any bytes and panics where something is wrong. They run under `cargo fuzz` (see `fuzz/`), and in
//! ordinary tests over the committed corpus and a fixed sequence of random inputs ([`replay`]).

mod calls;

use std::path::Path;

use corewire_proto::codec::{
    ByteOrder, Codec, DelimiterCodec, FixedLengthCodec, JsonCodec, LengthFieldCodec, LineCodec, LineEnding,
    Overlong, Pipeline, PipelineDecoded, RawCodec, StandardCodec, Varint32Codec,
};

use crate::framing::{Event, cut, frame, frames_of};
use crate::rng::Rng;

pub use calls::call_table;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Target); 9] = [
    ("raw", raw),
    ("standard", standard),
    ("length_field", length_field),
    ("varint32", varint32),
    ("line", line),
    ("delimiter", delimiter),
    ("fixed_length", fixed_length),
    ("json_lines", json_lines),
    ("call_table", call_table),
];

/// The codec without framing: all bytes come out, whatever the chunks.
pub fn raw(data: &[u8]) {
    let transcript = frames_of(&mut RawCodec, data.chunks(3));
    assert_eq!(transcript.payloads().concat(), data);
}

/// SRMP, with a limit that is easily broken.
pub fn standard(data: &[u8]) {
    decoder(|| StandardCodec::new().frame_limit(70_000).expect("within the format"), data);
}

/// Length-field framing; the first eight bytes are the settings.
pub fn length_field(data: &[u8]) {
    let Some((settings, stream)) = data.split_first_chunk::<8>() else { return };
    let [width, offset, flags, strip, adjustment, limit, prepend, _] = *settings;
    let mut builder = LengthFieldCodec::builder()
        .max_frame_length(usize::from(limit) * 4)
        .field_offset(usize::from(offset % 8))
        .length_adjustment(i32::from(adjustment as i8))
        .length_includes_field(flags & 1 != 0)
        .byte_order(if flags & 2 != 0 { ByteOrder::Big } else { ByteOrder::Little })
        .overlong(if flags & 4 != 0 { Overlong::SkipThenFail } else { Overlong::FailFast });
    builder = if width % 10 == 0 { builder.varint() } else { builder.field_width(usize::from(width % 10)) };
    if flags & 8 != 0 {
        builder = builder.strip(usize::from(strip % 16));
    }
    let symmetric = flags & 24 == 0;
    if flags & 16 != 0 {
        builder = builder.prepend(i32::from(prepend as i8), flags & 32 != 0);
    }
    let Ok(codec) = builder.build() else { return };
    if symmetric {
        decoder(|| codec.clone(), stream);
    } else {
        split(|| codec.clone(), stream);
        // Whatever is written, nothing may panic.
        let _ = frame(&mut codec.clone(), codec.request_head(0), stream);
    }
}

/// Varint framing.
pub fn varint32(data: &[u8]) {
    decoder(|| Varint32Codec::with_frame_limit(300).expect("large enough"), data);
}

/// Lines; the first byte is the settings.
pub fn line(data: &[u8]) {
    let Some((settings, stream)) = data.split_first() else { return };
    let ending = if settings & 1 != 0 { LineEnding::CrLf } else { LineEnding::Lf };
    let overlong = if settings & 2 != 0 { Overlong::SkipThenFail } else { Overlong::FailFast };
    let limit = usize::from(settings >> 2);
    decoder(|| LineCodec::new().frame_limit(limit).ending(ending).overlong(overlong), stream);
}

/// Delimiters; the first bytes are the settings and the delimiters themselves.
pub fn delimiter(data: &[u8]) {
    let Some((&[settings, first, second], rest)) = data.split_first_chunk::<3>() else { return };
    let (first, second) = (usize::from(first % 4) + 1, usize::from(second % 4));
    if rest.len() < first + second {
        return;
    }
    let (first, rest) = rest.split_at(first);
    let (second, stream) = rest.split_at(second);
    let delimiters = if second.is_empty() { vec![first] } else { vec![first, second] };
    let Ok(codec) = DelimiterCodec::any_of(&delimiters) else { return };
    let overlong = if settings & 2 != 0 { Overlong::SkipThenFail } else { Overlong::FailFast };
    let codec = codec.frame_limit(usize::from(settings >> 2)).overlong(overlong);
    decoder(|| codec.clone(), stream);
}

/// Frames of one length; the first byte is the length.
pub fn fixed_length(data: &[u8]) {
    let Some((length, stream)) = data.split_first() else { return };
    let Ok(codec) = FixedLengthCodec::new(usize::from(*length)) else { return };
    decoder(|| codec.clone(), stream);
}

/// JSON values on lines, through a pipeline.
pub fn json_lines(data: &[u8]) {
    let new = || Pipeline::new(LineCodec::new().frame_limit(64), JsonCodec::<Vec<Option<String>>>::new());
    let mut pipeline = new();
    let mut at = 0;
    let mut failed_at = None;
    while at < data.len() {
        match pipeline.decode(&data[at..]) {
            Ok(PipelineDecoded::Value { head, value, consumed }) => {
                at += consumed;
                let mut bytes = Vec::new();
                // Escapes can make it longer than it was.
                if new().encode(head, &value, &mut bytes).is_ok() {
                    let consumed = bytes.len();
                    assert_eq!(new().decode(&bytes), Ok(PipelineDecoded::Value { head, value, consumed }));
                }
            }
            Ok(PipelineDecoded::Skipped { consumed }) => at += consumed,
            Ok(PipelineDecoded::Incomplete { needed }) => {
                assert!(needed > data.len() - at);
                return;
            }
            Err(error) => {
                assert!(error.is_recoverable(), "{error}");
                assert_ne!(failed_at, Some(at), "the same error twice: {error}");
                failed_at = Some(at);
            }
        }
    }
}

/// Runs a target over its committed corpus and over `rounds` random inputs.
///
/// # Panics
/// When the corpus is missing or empty, or the target panics; the message names the input.
pub fn replay(corpus: &Path, target: Target, rounds: u64) {
    let directory = corpus.read_dir().unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut seeds = Vec::new();
    for file in directory {
        let path = file.expect("a readable directory").path();
        seeds.push(std::fs::read(&path).expect("a readable file"));
        target(seeds.last().expect("just pushed"));
    }
    assert!(!seeds.is_empty(), "{} holds no seeds", corpus.display());
    for round in 0..rounds {
        let mut rng = Rng::new(round);
        let mut input = rng.bytes(64);
        if round % 2 == 0 {
            // A seed, bent a little and followed by noise.
            let mut seed = seeds[rng.below(seeds.len() as u64) as usize].clone();
            if !seed.is_empty() {
                let at = rng.below(seed.len() as u64) as usize;
                seed[at] = rng.next_u64() as u8;
            }
            seed.append(&mut input);
            input = seed;
        }
        target(&input);
    }
}

/// What holds for every framing codec that reads what it writes.
fn decoder<C: Codec>(new: impl Fn() -> C, stream: &[u8]) {
    let events = split(&new, stream);
    for event in events {
        let Event::Frame(head, payload) = event else { continue };
        // Not every payload that can be read can be written (a line that ends in a carriage return), but what
        // is written is read again.
        if let Ok(bytes) = frame(&mut new(), head, &payload) {
            let again = frames_of(&mut new(), [bytes]);
            assert_eq!(again.events, [Event::Frame(head, payload)]);
            assert!(again.left_over.is_empty());
        }
    }
    if let Ok(bytes) = frame(&mut new(), new().request_head(1), stream) {
        let again = frames_of(&mut new(), [bytes]);
        assert_eq!(again.payloads(), [stream]);
        assert_eq!(again.events.len(), 1);
    }
}

fn split<C: Codec>(new: impl Fn() -> C, stream: &[u8]) -> Vec<Event> {
    let whole = frames_of(&mut new(), [stream]);
    assert_eq!(whole, frames_of(&mut new(), stream.chunks(1)), "byte by byte");
    let at = stream.first().copied().unwrap_or_default();
    let parts = cut(stream, &[usize::from(at), usize::from(at) / 2, 7]);
    assert_eq!(whole, frames_of(&mut new(), parts), "in four parts");
    whole.events
}
