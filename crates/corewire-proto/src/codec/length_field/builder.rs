use super::super::{ConfigError, DEFAULT_FRAME_LIMIT, Prefix};
use super::field::{ByteOrder, Field};
use super::{LengthFieldCodec, MAX_FRAME_LENGTH, Overlong, Writer};

/// The parameters of a [`LengthFieldCodec`].
///
/// A frame on the wire is `offset bytes | length field | the rest`, and the rest is as many bytes as the
/// field's value plus the adjustment. What is shown of it begins after the stripped bytes.
///
/// | parameter | Netty's name | default |
/// |---|---|---|
/// | [`max_frame_length`](Self::max_frame_length) | `maxFrameLength` | 16 MiB |
/// | [`field_offset`](Self::field_offset) | `lengthFieldOffset` | 0 |
/// | [`field_width`](Self::field_width) / [`varint`](Self::varint) | `lengthFieldLength` | 2 |
/// | [`byte_order`](Self::byte_order) | `byteOrder` | little-endian, as NewLife (Netty: big-endian) |
/// | [`length_adjustment`](Self::length_adjustment) | `lengthAdjustment` of the decoder | 0 |
/// | [`length_includes_field`](Self::length_includes_field) | `lengthIncludesLengthFieldLength` | false |
/// | [`strip`](Self::strip) | `initialBytesToStrip` | offset and field (Netty: 0) |
/// | [`overlong`](Self::overlong) | `failFast` | [`Overlong::FailFast`] |
/// | [`prepend`](Self::prepend) | `LengthFieldPrepender` | what this reader reads |
///
/// Writing is the reverse of reading: `offset` zero bytes, the field, zero bytes for what is stripped after
/// the field, the payload. A reader that strips less than offset and field shows header bytes that the writer
/// would add again; for such pairs set [`prepend`](Self::prepend).
#[derive(Debug, Clone)]
pub struct LengthFieldBuilder {
    max_frame_length: usize,
    offset: usize,
    width: usize,
    varint: bool,
    order: ByteOrder,
    adjustment: i32,
    includes_field: bool,
    strip: Option<usize>,
    overlong: Overlong,
    prepend: Option<(i32, bool)>,
}

impl Default for LengthFieldBuilder {
    fn default() -> Self {
        Self {
            max_frame_length: DEFAULT_FRAME_LIMIT,
            offset: 0,
            width: 2,
            varint: false,
            order: ByteOrder::Little,
            adjustment: 0,
            includes_field: false,
            strip: None,
            overlong: Overlong::FailFast,
            prepend: None,
        }
    }
}

impl LengthFieldBuilder {
    /// The most bytes of a whole frame on the wire, header included, for what is received and what is sent:
    /// at most 2^62. 16 MiB if not set.
    pub fn max_frame_length(mut self, bytes: usize) -> Self {
        self.max_frame_length = bytes;
        self
    }

    /// Bytes before the length field: ignored when read, zero when written. 0 if not set.
    pub fn field_offset(mut self, bytes: usize) -> Self {
        self.offset = bytes;
        self
    }

    /// Bytes of the length field: 1, 2, 3, 4 or 8. 2 if not set. An 8-byte field is signed.
    pub fn field_width(mut self, bytes: usize) -> Self {
        self.width = bytes;
        self.varint = false;
        self
    }

    /// The length field is a LEB128 varint of 1 to 5 bytes, up to 32 bits.
    pub fn varint(mut self) -> Self {
        self.varint = true;
        self
    }

    /// The order of the field's bytes. Little-endian if not set.
    pub fn byte_order(mut self, order: ByteOrder) -> Self {
        self.order = order;
        self
    }

    /// What is added to the value of the field to get the number of bytes that follow the field: negative where
    /// the length also counts the header, positive where bytes before the payload are not counted. 0 if not
    /// set.
    pub fn length_adjustment(mut self, bytes: i32) -> Self {
        self.adjustment = bytes;
        self
    }

    /// The length counts the field itself too (but not the bytes before it). False if not set; not for varints.
    pub fn length_includes_field(mut self, includes: bool) -> Self {
        self.includes_field = includes;
        self
    }

    /// Bytes at the front of a frame that are not shown. If not set: the offset and the field, so that the
    /// payload is shown.
    pub fn strip(mut self, bytes: usize) -> Self {
        self.strip = Some(bytes);
        self
    }

    /// When the error for a frame over the limit comes. At once if not set.
    pub fn overlong(mut self, overlong: Overlong) -> Self {
        self.overlong = overlong;
        self
    }

    /// Writes as Netty's `LengthFieldPrepender` with these parameters does, whatever is read: only the field,
    /// whose value is the payload's length plus `adjustment`, plus the field's width if `includes_field`.
    pub fn prepend(mut self, adjustment: i32, includes_field: bool) -> Self {
        self.prepend = Some((adjustment, includes_field));
        self
    }

    /// Checks the parameters against each other.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the parameter at fault.
    pub fn build(self) -> Result<LengthFieldCodec, ConfigError> {
        let field = self.field()?;
        let header = self.header(field)?;
        let adjustment = i64::from(self.adjustment) - included(field, self.includes_field);
        Ok(LengthFieldCodec {
            field,
            offset: self.offset,
            adjustment,
            strip: self.strip,
            max_frame_length: self.max_frame_length,
            overlong: self.overlong,
            writer: self.writer(field, header, adjustment)?,
            skip: None,
        })
    }

    fn field(&self) -> Result<Field, ConfigError> {
        if self.varint {
            let includes = self.includes_field || self.prepend.is_some_and(|(_, includes)| includes);
            return if includes {
                Err(ConfigError::Conflict("a varint cannot count its own width: use a fixed width"))
            } else {
                Ok(Field::Varint)
            };
        }
        match self.width {
            1 | 2 | 3 | 4 | 8 => Ok(Field::Fixed { width: self.width as u8, order: self.order }),
            width => Err(ConfigError::OutOfRange {
                setting: "field_width",
                value: width as i128,
                allowed: "1, 2, 3, 4 or 8 bytes",
            }),
        }
    }

    /// The most bytes before a payload that is written.
    fn header(&self, field: Field) -> Result<usize, ConfigError> {
        if i64::try_from(self.max_frame_length).map_or(true, |bytes| bytes > MAX_FRAME_LENGTH) {
            return Err(ConfigError::OutOfRange {
                setting: "max_frame_length",
                value: self.max_frame_length as i128,
                allowed: "at most 4611686018427387904 bytes",
            });
        }
        let through_field = self.offset.saturating_add(field.max_width());
        let header = through_field.max(self.strip.unwrap_or(0));
        let limit = Prefix::CAPACITY.min(self.max_frame_length);
        if header > limit {
            return Err(ConfigError::HeaderTooLong { header, limit });
        }
        Ok(header)
    }

    fn writer(&self, field: Field, header: usize, adjustment: i64) -> Result<Writer, ConfigError> {
        let (lead, tail, add) = match self.prepend {
            Some((adjustment, includes)) => (0, 0, i64::from(adjustment) + included(field, includes)),
            None => {
                let tail = match field {
                    Field::Fixed { width, .. } => header - self.offset - usize::from(width),
                    Field::Varint if self.strip.is_none() => 0,
                    Field::Varint => return self.stripped_varint(field, adjustment),
                };
                (self.offset, tail, tail as i64 - adjustment)
            }
        };
        let fits = i128::from(field.max_value()) - i128::from(add);
        let room = (self.max_frame_length - lead - field.max_width() - tail) as i128;
        let max_payload = usize::try_from(fits.min(room)).map_err(|_| ConfigError::OutOfRange {
            setting: "length_adjustment",
            value: i128::from(self.adjustment),
            allowed: "small enough for the field to say the length of an empty payload",
        })?;
        Ok(Writer { lead, tail, add, max_payload })
    }

    /// How many bytes are stripped after a varint depends on its width: only reading it alone is of use.
    fn stripped_varint(&self, field: Field, adjustment: i64) -> Result<Writer, ConfigError> {
        if self.strip.unwrap_or(0) > self.offset {
            return Err(ConfigError::Conflict(
                "a fixed number of bytes to strip cannot end inside or after a varint: leave `strip` out",
            ));
        }
        let plain = Self { strip: None, ..self.clone() };
        plain.writer(field, self.offset + field.max_width(), adjustment)
    }
}

fn included(field: Field, includes: bool) -> i64 {
    if includes { field.max_width() as i64 } else { 0 }
}
