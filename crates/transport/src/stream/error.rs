//! Why a channel failed or refused.

use rustls::{AlertDescription, CertificateError, Error};

/// Why a channel is of no more use. Each has an id for operators, in brackets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The connection broke: reset, unreachable, timed out. RFC 5971 §5.7.2: applications are told.
    #[error("[channel-lost] connection lost: {0}")]
    Lost(String),
    /// The byte stream ended without the close_notify of TLS: somebody may have cut it.
    #[error("[channel-truncated] TLS stream ended without close_notify")]
    Truncated,
    /// The handshake was not done in time.
    #[error("[tls-handshake-timeout] TLS handshake not done in time")]
    HandshakeTimeout,
    /// The peer's certificate or key is not to be trusted, or it cannot prove to hold the key.
    #[error("[tls-untrusted-peer] the peer's certificate or key is refused: {0}")]
    Untrusted(String),
    /// The peer showed no certificate where one is demanded.
    #[error("[tls-no-certificate] the peer showed no certificate")]
    NoCertificate,
    /// No version, suite, or kind of certificate in common.
    #[error("[tls-incompatible] nothing in common with the peer: {0}")]
    Incompatible(String),
    /// The peer broke it off with this alert (RFC 8446 §6). It may come after `Connected`: in TLS 1.3 a
    /// client is done before the server has looked at its certificate.
    #[error("[tls-alert] the peer refused: {name} ({code})")]
    Alert {
        /// Code point of the alert.
        code: u8,
        /// Its name.
        name: String,
    },
    /// Octets that are no TLS, were changed on the way, or break its rules.
    #[error("[tls-malformed] broken TLS from the peer: {0}")]
    Malformed(String),
    /// Failure of our own making.
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
    /// Whether the peer named our certificate or key as the reason.
    #[must_use]
    pub fn refused_us(&self) -> bool {
        const ABOUT_CERTIFICATES: [AlertDescription; 8] = [
            AlertDescription::BadCertificate,
            AlertDescription::UnsupportedCertificate,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateUnknown,
            AlertDescription::UnknownCA,
            AlertDescription::DecryptError, // a signature that does not fit
            AlertDescription::CertificateRequired,
        ];
        matches!(self, Self::Alert { code, .. } if ABOUT_CERTIFICATES.iter().any(|a| u8::from(*a) == *code))
    }
}

/// Why octets were not taken for sending. None of them were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The send buffer has no room: try again after it has drained.
    #[error("send buffer full: {room} octets of room")]
    Full {
        /// Octets that would be taken now.
        room: usize,
    },
    /// The channel is closing, closed or failed.
    #[error("channel closed")]
    Closed,
}
