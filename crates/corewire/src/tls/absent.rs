//! What stands for the reading of files where the feature `tls` is off.

use super::{ClientTls, ServerName, ServerTls, TlsConfigError, TlsFiles};

pub(super) fn server(_: &TlsFiles) -> Result<ServerTls, TlsConfigError> {
    Err(TlsConfigError::NotBuilt)
}

pub(super) fn reload(_: &TlsFiles, server: &ServerTls) -> Result<(), TlsConfigError> {
    server.never()
}

pub(super) fn client(_: &TlsFiles) -> Result<ClientTls, TlsConfigError> {
    Err(TlsConfigError::NotBuilt)
}

pub(crate) fn system_client() -> Result<ClientTls, TlsConfigError> {
    Err(TlsConfigError::NotBuilt)
}

pub(crate) fn name_of(tls: &ClientTls, _: &str) -> Result<ServerName, TlsConfigError> {
    tls.never()
}
