//! In what the versions of the protocol differ beside their bytes: the machine asks here, and `emit` writes.

use crate::rpc::body::{CancelBody, MethodRef, RequestBody};
use crate::rpc::header::{Flags, FrameType, Mode, Version};

impl Version {
    /// There are SETTINGS, PING and GOAWAY; version 1 gives heartbeat and error frames no meaning.
    #[inline]
    pub(super) const fn has_control(self) -> bool {
        matches!(self, Self::V2)
    }

    /// A message needs credit. Without it, one sender cannot be stopped alone.
    #[inline]
    pub(super) const fn has_credit(self) -> bool {
        matches!(self, Self::V2)
    }

    /// Frames can have extension blocks.
    #[inline]
    pub(super) const fn has_extensions(self) -> bool {
        matches!(self, Self::V2)
    }

    /// Calls and streams are numbered from one sequence that increases.
    #[inline]
    pub(super) const fn ids_increase(self) -> bool {
        matches!(self, Self::V2)
    }

    /// A method is named once, and then has a number.
    #[inline]
    pub(super) const fn numbers_methods(self) -> bool {
        matches!(self, Self::V2)
    }

    /// Frames that follow the first of a call say so. In version 1 they repeat its names, and only its id, which stays in
    /// use until its last frame, tells them from a new call.
    #[inline]
    pub(super) const fn marks_continuation(self) -> bool {
        matches!(self, Self::V2)
    }

    /// CANCEL ends a call of either family, and the server answers it. In version 1 it ends streams only.
    #[inline]
    pub(super) const fn cancels_calls(self) -> bool {
        matches!(self, Self::V2)
    }

    /// A frame can end a half without a message, and begin a call without one.
    #[inline]
    pub(super) const fn has_empty_frames(self) -> bool {
        matches!(self, Self::V2)
    }

    /// A client sends on a stream only after the server has accepted it.
    #[inline]
    pub(super) const fn waits_for_acceptance(self) -> bool {
        matches!(self, Self::V1)
    }

    /// The frame means nothing, and is stepped over.
    #[inline]
    pub(super) const fn ignores(self, kind: FrameType) -> bool {
        matches!((self, kind), (Self::V1, FrameType::Ping | FrameType::Error))
    }

    /// Whether a message ends a half that has many of them, or only one. Of the latter version 1 says nothing.
    #[inline]
    pub(super) const fn is_last(self, flags: Flags, has_many: bool) -> bool {
        flags.has(Flags::END) || (matches!(self, Self::V1) && !has_many)
    }

    /// Whether a frame that is not the first of a half of many carries no message. Version 1 has no flag for it: there an
    /// empty last one does not.
    #[inline]
    pub(super) const fn is_empty(self, flags: Flags, payload: &[u8], is_first: bool) -> bool {
        match self {
            Self::V1 => flags.has(Flags::END) && payload.is_empty() && !is_first,
            Self::V2 => flags.has(Flags::EMPTY),
        }
    }

    /// The flags of a frame that ends a half of many without a message.
    pub(super) const fn end_flags(self, mode: Mode) -> Flags {
        match self {
            Self::V1 => mode.flags().with(Flags::END),
            Self::V2 => mode.flags().with(Flags::END).with(Flags::EMPTY),
        }
    }

    /// What a CANCEL says. That is for people: one that cannot be read cancels all the same.
    pub(super) fn read_cancel(self, body: &[u8]) -> CancelBody<'_> {
        match self {
            Self::V1 => CancelBody::default(),
            Self::V2 => CancelBody::parse(body).unwrap_or_default(),
        }
    }

    /// What later frames are told by to belong to the same call; nothing where they say so themselves.
    #[inline]
    pub(super) fn names_hash(self, request: &RequestBody<'_>) -> u32 {
        match (self, request.method) {
            (Self::V1, MethodRef::Names { service, method, .. }) => hash_names(service, method),
            _ => 0,
        }
    }
}

/// A short hash (FNV-1a) that tells names apart without keeping them.
fn hash_names(service: &[u8], method: &[u8]) -> u32 {
    let bytes = service.iter().chain(&[0xff]).chain(method);
    bytes.fold(0x811c_9dc5, |hash: u32, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
