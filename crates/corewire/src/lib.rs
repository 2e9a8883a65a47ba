//! Fast TCP, UDP and RPC services.
#![forbid(unsafe_code)]

pub mod uri;
