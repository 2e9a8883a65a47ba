//! What the errors of others are as a [`Status`], so that a handler can use `?` on them.

use std::io;
use std::num::{ParseFloatError, ParseIntError};
use std::str::Utf8Error;
use std::string::FromUtf8Error;

use corewire_proto::rpc::{CallError, Code, SendError};
use corewire_runtime::{BlockingError, Elapsed, JoinError};

use crate::metadata::MetadataError;
use crate::status::Status;

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        if error == CallError::MessageNeeded {
            let why = "a call of version 1 begins with its first message: add `.first(message)` or `.only(message)`";
            return Self::invalid(why).unprocessed();
        }
        let code = match error {
            CallError::GoingAway => Code::UNAVAILABLE,
            CallError::TooManyCalls { .. } | CallError::TooManyStreams { .. } => Code::RESOURCE_EXHAUSTED,
            _ => Code::INVALID_REQUEST,
        };
        Self::new(code, error.to_string()).unprocessed()
    }
}

impl From<SendError> for Status {
    fn from(error: SendError) -> Self {
        let code = match error {
            SendError::CallOver | SendError::HalfEnded => Code::CANCELLED,
            _ => Code::INVALID_REQUEST,
        };
        Self::new(code, error.to_string())
    }
}

/// [`Code::INTERNAL`]: the handler said what cannot be sent.
impl From<MetadataError> for Status {
    fn from(error: MetadataError) -> Self {
        Self::internal(error.to_string())
    }
}

/// By the kind of the error; its text is the message, which the client sees.
impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::NotFound => Code::NOT_FOUND,
            Kind::AlreadyExists => Code::ALREADY_EXISTS,
            Kind::PermissionDenied => Code::PERMISSION_DENIED,
            Kind::TimedOut => Code::DEADLINE_EXCEEDED,
            Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown => Code::UNAVAILABLE,
            Kind::InvalidInput => Code::INVALID_ARGUMENT,
            Kind::InvalidData => Code::DATA_LOSS,
            Kind::UnexpectedEof => Code::OUT_OF_RANGE,
            Kind::Interrupted => Code::ABORTED,
            Kind::OutOfMemory | Kind::StorageFull | Kind::QuotaExceeded => Code::RESOURCE_EXHAUSTED,
            Kind::Unsupported => Code::UNIMPLEMENTED,
            Kind::DirectoryNotEmpty | Kind::ResourceBusy => Code::FAILED_PRECONDITION,
            _ => Code::UNKNOWN,
        };
        Self::new(code, error.to_string())
    }
}

/// [`Code::DEADLINE_EXCEEDED`].
impl From<Elapsed> for Status {
    fn from(error: Elapsed) -> Self {
        Self::new(Code::DEADLINE_EXCEEDED, error.to_string())
    }
}

/// [`Code::INTERNAL`]: a task of this side did not end as it should. What a panic says is not for the client.
impl From<JoinError> for Status {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Panicked(_) => Self::internal("a task panicked"),
            other => Self::internal(other.to_string()),
        }
    }
}

/// [`Code::INTERNAL`]: blocking work of this side did not end as it should. What a panic says is not for the client.
impl From<BlockingError> for Status {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::Panicked(_) => Self::internal("blocking work panicked"),
            other => Self::internal(other.to_string()),
        }
    }
}

/// [`Code::INVALID_ARGUMENT`].
impl From<Utf8Error> for Status {
    fn from(error: Utf8Error) -> Self {
        Self::new(Code::INVALID_ARGUMENT, error.to_string())
    }
}

/// [`Code::INVALID_ARGUMENT`].
impl From<FromUtf8Error> for Status {
    fn from(error: FromUtf8Error) -> Self {
        Self::new(Code::INVALID_ARGUMENT, error.to_string())
    }
}

/// [`Code::INVALID_ARGUMENT`].
impl From<ParseIntError> for Status {
    fn from(error: ParseIntError) -> Self {
        Self::new(Code::INVALID_ARGUMENT, error.to_string())
    }
}

/// [`Code::INVALID_ARGUMENT`].
impl From<ParseFloatError> for Status {
    fn from(error: ParseFloatError) -> Self {
        Self::new(Code::INVALID_ARGUMENT, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn code(error: impl Into<Status>) -> Code {
        error.into().code()
    }

    #[test]
    fn errors_of_the_system_keep_their_meaning() {
        assert_eq!(code(io::Error::from(io::ErrorKind::NotFound)), Code::NOT_FOUND);
        assert_eq!(code(io::Error::from(io::ErrorKind::ConnectionRefused)), Code::UNAVAILABLE);
        assert_eq!(code(io::Error::from(Elapsed(Duration::from_secs(1)))), Code::DEADLINE_EXCEEDED);
        assert_eq!(code(Elapsed(Duration::from_secs(1))), Code::DEADLINE_EXCEEDED);
        assert_eq!(code("x".parse::<u32>().unwrap_err()), Code::INVALID_ARGUMENT);
        let status = Status::from(JoinError::Panicked("a secret".to_owned()));
        assert_eq!((status.code(), status.message()), (Code::INTERNAL, "a task panicked"));
        let status = Status::from(io::Error::other("the disk is on fire"));
        assert_eq!((status.code(), status.message()), (Code::UNKNOWN, "the disk is on fire"));
    }

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> =
            (0..26).map(|code| Status::from(Code(code)).to_string()).collect();
        assert!(names.len() == 26 && !names.iter().any(|name| name.starts_with("application")), "{names:?}");
    }
}
