//! What `rustls` and alerts say, in words that tell what to do.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use crate::secured::TlsError;

/// The configuration of this side is at fault.
pub(super) fn local(error: &Error) -> TlsError {
    TlsError::Local(error.to_string())
}

/// A handshake has failed with what has come in `incoming`.
pub(super) fn of_handshake(error: &Error, incoming: &[u8]) -> TlsError {
    match error {
        Error::InvalidMessage(_) if !looks_like_tls(incoming) => {
            let start = String::from_utf8_lossy(&incoming[..incoming.len().min(16)]).into_owned();
            TlsError::NotTls { start }
        }
        Error::InvalidCertificate(certificate) => TlsError::Certificate(of_certificate(certificate)),
        Error::NoCertificatesPresented => TlsError::Certificate(
            "it sent none, and this side asks for one: give the client a certificate and its key (cert= and key=)"
                .to_owned(),
        ),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(reason) => TlsError::Incompatible(incompatible(reason)),
        Error::NoApplicationProtocol => {
            TlsError::Incompatible("none of the ALPN protocols that it offers is served here".to_owned())
        }
        Error::DecryptError => TlsError::Corrupted,
        Error::PeerMisbehaved(what) => TlsError::Protocol(format!("{what:?}")),
        Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => {
            TlsError::Protocol("a message of the handshake has more than 64 KiB".to_owned())
        }
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerSentOversizedRecord => TlsError::Protocol(error.to_string()),
        other => local(other),
    }
}

/// A record of a handshake or an alert.
fn looks_like_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=23, 3, ..] | [20..=23] | [])
}

fn incompatible(reason: &PeerIncompatible) -> String {
    match reason {
        PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::ServerDoesNotSupportTls12Or13 => {
            format!("no version of TLS ({reason:?})")
        }
        PeerIncompatible::NoCipherSuitesInCommon => "no cipher suite".to_owned(),
        PeerIncompatible::NoKxGroupsInCommon => "no key exchange group".to_owned(),
        PeerIncompatible::NoSignatureSchemesInCommon => "no signature scheme".to_owned(),
        other => format!("{other:?}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{error}: renew it (or set the clock of this machine)")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{error}: set the clock of this machine, or wait")
        }
        CertificateError::UnknownIssuer => {
            "it was issued by nobody that this side trusts: name the certificate of its CA (ca= for clients, client-ca= \
             for servers), and have the peer send the certificates between the two"
                .to_owned()
        }
        CertificateError::BadSignature => {
            "it was not signed by the CA that this side knows under this name, which may have been made anew: give both \
             sides its certificate of now"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{error}: connect by a name that it is for, or say which one to expect (server-name=)")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("{error}: have one issued for servers (serverAuth) or clients (clientAuth), as its use is")
        }
        other => other.to_string(),
    }
}

/// The peer has sent an alert.
pub(super) fn of_alert(alert: AlertDescription) -> TlsError {
    let hint = match alert {
        AlertDescription::UnknownCA => {
            "it does not trust who issued the certificate of this side: give it that CA (ca= for clients, client-ca= for \
             servers)"
        }
        AlertDescription::CertificateRequired => {
            "it wants a certificate of this side: give one and its key (cert= and key=)"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => {
            "it does not accept the certificate of this side: its issuer, its names or its purpose may not be what the peer expects"
        }
        AlertDescription::CertificateExpired => "the certificate of this side has expired: renew it",
        AlertDescription::CertificateRevoked => "the certificate of this side was revoked: get another",
        AlertDescription::ProtocolVersion => "the two sides have no version of TLS in common",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "the two sides have no cipher suite, key exchange or signature in common, or it wants a certificate"
        }
        AlertDescription::NoApplicationProtocol => "it serves none of the ALPN protocols that were offered",
        AlertDescription::UnrecognisedName => "it has no certificate for the name that was asked for",
        AlertDescription::DecodeError | AlertDescription::UnexpectedMessage => {
            "it may not speak this protocol"
        }
        _ => "",
    };
    TlsError::Alert { alert: format!("{alert:?}"), hint }
}
