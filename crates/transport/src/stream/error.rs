//! Errors of channels.

use rustls::{AlertDescription, CertificateError, Error};

/// The reason why a channel failed. The identifier in brackets is for operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The connection broke: reset, unreachable, timed out. Applications receive a notification (RFC 5971 §5.7.2).
    #[error("[channel-lost] connection lost: {0}")]
    Lost(String),
    /// The byte stream ended without the close_notify of TLS (RFC 8446 §6.1): an attacker may have cut it.
    #[error("[channel-truncated] TLS stream ended without close_notify")]
    Truncated,
    /// The handshake took too long.
    #[error("[tls-handshake-timeout] TLS handshake not done in time")]
    HandshakeTimeout,
    /// The peer's certificate or key is not trusted, or the peer does not have the private key.
    #[error("[tls-untrusted-peer] the peer's certificate or key is refused: {0}")]
    Untrusted(String),
    /// The peer sent no certificate, but the configuration requires one.
    #[error("[tls-no-certificate] the peer showed no certificate")]
    NoCertificate,
    /// No version, suite, or kind of certificate in common.
    #[error("[tls-incompatible] nothing in common with the peer: {0}")]
    Incompatible(String),
    /// The peer sent this alert (RFC 8446 §6). It may arrive after `Connected`: in TLS 1.3 the handshake of a client ends
    /// before the server has verified its certificate.
    #[error("[tls-alert] the peer refused: {name} ({code})")]
    Alert {
        /// Code point of the alert.
        code: u8,
        /// Its name.
        name: String,
    },
    /// Octets that are not TLS, were changed on the path, or violate the protocol.
    #[error("[tls-malformed] broken TLS from the peer: {0}")]
    Malformed(String),
    /// An error of this node.
    #[error("[tls-internal] {0}")]
    Internal(String),
}

impl From<Error> for ChannelError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(CertificateError::Other(reason)) => Self::Untrusted(reason.to_string()),
            Error::InvalidCertificate(reason) => Self::Untrusted(reason.to_string()),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::PeerIncompatible(reason) => Self::Incompatible(format!("{reason:?}")),
            Error::AlertReceived(alert) => Self::Alert { code: u8::from(alert), name: format!("{alert:?}") },
            Error::General(reason) => Self::Internal(reason),
            Error::FailedToGetCurrentTime | Error::FailedToGetRandomBytes | Error::EncryptError => {
                Self::Internal(error.to_string())
            }
            other => Self::Malformed(other.to_string()),
        }
    }
}

impl ChannelError {
    /// Whether the peer refused the certificate or key of this node.
    #[must_use]
    pub fn refused_our_key(&self) -> bool {
        const ABOUT_CERTIFICATES: [AlertDescription; 8] = [
            AlertDescription::BadCertificate,
            AlertDescription::UnsupportedCertificate,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateUnknown,
            AlertDescription::UnknownCA,
            AlertDescription::DecryptError, // a wrong signature
            AlertDescription::CertificateRequired,
        ];
        matches!(self, Self::Alert { code, .. } if ABOUT_CERTIFICATES.iter().any(|a| u8::from(*a) == *code))
    }
}

/// The reason why octets were not accepted for sending. No octet was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full. Try again when octets have left it.
    #[error("send buffer full: {room} octets of room")]
    Full {
        /// Octets that would be accepted now.
        room: usize,
    },
    /// The channel is closing, closed or failed.
    #[error("channel closed")]
    Closed,
}
