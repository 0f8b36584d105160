//! Settings of channels.

use core::fmt;
use core::time::Duration;

use signalbox_transport::sctp;
use signalbox_transport::stream::{self, Revocation, TlsConfig, TlsConfigError, TlsSettings, Versions};

/// Settings of channels. Which transports there are follows from the ports in the settings of their protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ChannelConfig {
    /// Keys and certificates; needed where the protocol has a TLS port.
    pub tls: Option<Tls>,
    /// Time that a TLS handshake may take, at least 1 s; default 10 s.
    pub handshake: Duration,
    /// Most TLS handshakes with peers that connected, at one time; more are reset. At least 1; default 256.
    pub max_handshakes: u32,
    /// Settings of the SCTP endpoints of this process. Their port is in the settings of the protocol.
    pub sctp: sctp::Config,
    /// Use the kernel's SCTP, whose associations are streams of the driver. [`ChannelConfig::sctp`] has no effect then.
    pub kernel_sctp: bool,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            tls: None,
            handshake: Duration::from_secs(10),
            max_handshakes: 256,
            sctp: sctp::Config::default(),
            kernel_sctp: false,
        }
    }
}

/// Settings of TLS channels. The header of a recording holds them whole, the private key included.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Tls {
    /// Our own credentials, and those of the peers that we trust.
    pub credentials: Credentials,
    /// Whether a client must authenticate itself. It is asked to in any case (RFC 5971 §5.7.3).
    pub require_client: bool,
    /// Versions to negotiate. Raw keys imply 1.3.
    pub versions: Versions,
    /// Revocation lists of authorities, as PEM; empty: none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub revocation_lists: String,
    /// Whether each authority of a peer's chain needs a revocation list that has not expired.
    #[cfg_attr(feature = "serde", serde(default))]
    pub revocation_strict: bool,
}

/// Credentials of a node. All texts are PEM.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub enum Credentials {
    /// X.509 (RFC 5971 §5.7.3).
    Certificates {
        /// Our certificate first, then the intermediates.
        chain: String,
        /// Its private key: PKCS #8, PKCS #1 or SEC 1.
        key: String,
        /// Certificates of the authorities that sign the peers' certificates.
        anchors: String,
    },
    /// Raw public keys (RFC 7250), in TLS 1.3.
    RawKeys {
        /// Our private key.
        key: String,
        /// Public keys (`PUBLIC KEY`) of all peers.
        peers: String,
    },
}

/// Leaves the secrets out.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrowed().fmt(f)
    }
}

impl Credentials {
    fn borrowed(&self) -> stream::Credentials<'_> {
        match self {
            Self::Certificates { chain, key, anchors } => stream::Credentials::Certificates {
                chain: chain.as_bytes(),
                key: key.as_bytes(),
                anchors: anchors.as_bytes(),
            },
            Self::RawKeys { key, peers } => {
                stream::Credentials::RawKeys { key: key.as_bytes(), peers: peers.as_bytes() }
            }
        }
    }
}

impl Tls {
    /// Clients must authenticate, both versions are offered, and no certificate is revoked.
    #[must_use]
    pub const fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            require_client: true,
            versions: Versions::Both,
            revocation_lists: String::new(),
            revocation_strict: false,
        }
    }

    /// Reads keys and certificates; `wall_clock_us` is Unix time in microseconds at `Time` 0.
    ///
    /// # Errors
    /// [`TlsConfigError`], with a remedy, if something is missing, broken, or does not fit together.
    pub fn load(&self, wall_clock_us: u64) -> Result<TlsConfig, TlsConfigError> {
        let (require_client, versions) = (self.require_client, self.versions);
        let credentials = self.credentials.borrowed();
        let revocation =
            Revocation { lists: self.revocation_lists.as_bytes(), strict: self.revocation_strict };
        TlsConfig::new(&TlsSettings { credentials, require_client, versions, revocation, wall_clock_us })
    }
}
