//! What a message's payload is made of.

use bytes::Bytes;
use corewire_proto::rpc::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::status::Status;

/// A type that is the payload of a message: [`Bytes`] as they are, or a value in one of the wrappers [`Compact`],
/// [`Json`] and (feature `prost`) `Proto`.
pub trait Message: Sized + 'static {
    /// The payload of this value.
    ///
    /// # Errors
    /// The value cannot be written; the code is [`Code::SERIALIZATION`].
    fn encode(self) -> Result<Bytes, Status>;

    /// The value of a payload.
    ///
    /// # Errors
    /// The payload is no such value; the code is [`Code::DESERIALIZATION`].
    fn decode(payload: Bytes) -> Result<Self, Status>;
}

impl Message for Bytes {
    #[inline]
    fn encode(self) -> Result<Bytes, Status> {
        Ok(self)
    }

    #[inline]
    fn decode(payload: Bytes) -> Result<Self, Status> {
        Ok(payload)
    }
}

impl Message for () {
    fn encode(self) -> Result<Bytes, Status> {
        Ok(Bytes::new())
    }

    fn decode(_: Bytes) -> Result<Self, Status> {
        Ok(())
    }
}

/// A serde value in a compact binary format ([postcard](https://docs.rs/postcard)), which does not describe itself:
/// both sides need the same type.
///
/// ```
/// use corewire_rpc::{Compact, Message};
///
/// let payload = Compact((7_u32, "seven".to_owned())).encode()?;
/// assert_eq!(payload.len(), 7);
/// let Compact(read) = Compact::<(u32, String)>::decode(payload)?;
/// assert_eq!(read, (7, "seven".to_owned()));
/// # Ok::<(), corewire_rpc::Status>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compact<T>(pub T);

impl<T: Serialize + DeserializeOwned + 'static> Message for Compact<T> {
    fn encode(self) -> Result<Bytes, Status> {
        postcard::to_allocvec(&self.0).map(Bytes::from).map_err(unwritable)
    }

    fn decode(payload: Bytes) -> Result<Self, Status> {
        let (value, rest) = postcard::take_from_bytes(&payload).map_err(unreadable)?;
        if rest.is_empty() {
            return Ok(Self(value));
        }
        Err(unreadable(format_args!("{} bytes follow the value", rest.len())))
    }
}

/// A serde value as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned + 'static> Message for Json<T> {
    fn encode(self) -> Result<Bytes, Status> {
        serde_json::to_vec(&self.0).map(Bytes::from).map_err(unwritable)
    }

    fn decode(payload: Bytes) -> Result<Self, Status> {
        serde_json::from_slice(&payload).map(Self).map_err(unreadable)
    }
}

/// A prost message.
#[cfg(feature = "prost")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proto<T>(pub T);

#[cfg(feature = "prost")]
impl<T: prost::Message + Default + 'static> Message for Proto<T> {
    fn encode(self) -> Result<Bytes, Status> {
        Ok(self.0.encode_to_vec().into())
    }

    fn decode(payload: Bytes) -> Result<Self, Status> {
        T::decode(payload).map(Self).map_err(unreadable)
    }
}

/// Details of a type.
impl Status {
    /// Adds details of a type, as [`typed_details`](Self::typed_details) reads them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn with_typed_details<T: Message>(self, details: T) -> Result<Self, Self> {
        details.encode().map(|details| self.with_details(details))
    }

    /// Its [`details`](Self::details) as a value of this type.
    ///
    /// # Errors
    /// They are no such value, or there are none.
    pub fn typed_details<T: Message>(&self) -> Result<T, Self> {
        T::decode(self.details().clone())
    }
}

fn unwritable(error: impl std::fmt::Display) -> Status {
    Status::new(Code::SERIALIZATION, format!("the message cannot be written: {error}"))
}

fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::new(Code::DESERIALIZATION, format!("the message cannot be read as the type expected: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went_in_both_formats() {
        type Value = (u64, Vec<String>, Option<i32>);
        let value: Value = (1, vec!["a".to_owned()], Some(-5));
        let Compact(read) = Compact::<Value>::decode(Compact(value.clone()).encode().unwrap()).unwrap();
        assert_eq!(read, value);
        let Json(read) = Json::<Value>::decode(Json(value.clone()).encode().unwrap()).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn what_is_no_value_is_an_error_of_its_own_code() {
        let bad = || Bytes::from_static(&[0xff; 3]);
        assert_eq!(Compact::<String>::decode(bad()).unwrap_err().code(), Code::DESERIALIZATION);
        assert_eq!(Json::<String>::decode(bad()).unwrap_err().code(), Code::DESERIALIZATION);
        let two = Compact::<u8>::decode(Bytes::from_static(&[1, 2])).unwrap_err();
        assert!(two.message().contains("1 bytes follow"), "{two}");
    }
}
