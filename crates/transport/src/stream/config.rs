//! The configuration that all TLS channels share: credentials, trust anchors, versions and time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use signalbox_core::Time;

use super::verify::{AnchoredServer, KnownKeys, Revoked};
use signalbox_core::security::Fingerprint;

/// The credentials by which nodes authenticate. All texts are PEM.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// X.509 certificates (RFC 5971 §5.7.3). A node is client of some peers and server of others: an extended key usage,
    /// if the certificate has one, must allow both.
    Certificates {
        /// The certificate of this node, then the intermediate certificates.
        chain: &'a [u8],
        /// Its private key: PKCS #8, PKCS #1 or SEC 1.
        key: &'a [u8],
        /// Trust anchors: certificates of authorities that may sign peers' certificates.
        anchors: &'a [u8],
    },
    /// Raw public keys (RFC 7250), in TLS 1.3.
    RawKeys {
        /// The private key of this node.
        key: &'a [u8],
        /// Public keys (`PUBLIC KEY`) of all peers.
        peers: &'a [u8],
    },
}

impl core::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Certificates { .. } => "Certificates(secret)",
            Self::RawKeys { .. } => "RawKeys(secret)",
        })
    }
}

/// Certificates that authorities have revoked (RFC 5280 §5). It concerns peers with certificates, not raw keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revocation<'a> {
    /// Lists of authorities (`X509 CRL`), as PEM; empty: no certificate is revoked.
    pub lists: &'a [u8],
    /// Whether each authority of a chain needs a list that has not expired. Otherwise lists that are missing or old are no
    /// reason to refuse a peer.
    pub strict: bool,
}

/// TLS versions to negotiate; the highest version that both ends have is used (RFC 5971 §5.7.3). Versions before 1.2
/// are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Versions {
    /// TLS 1.2 and 1.3.
    #[default]
    Both,
    /// TLS 1.2 only.
    Only12,
    /// TLS 1.3 only.
    Only13,
}

/// Settings of a [`TlsConfig`].
#[derive(Debug, Clone, Copy)]
pub struct TlsSettings<'a> {
    /// Credentials of this node, and trust anchors or keys of peers.
    pub credentials: Credentials<'a>,
    /// Whether a client must authenticate. The server requests it in any case (RFC 5971 §5.7.3).
    pub require_client: bool,
    /// Versions to negotiate. Raw keys imply 1.3.
    pub versions: Versions,
    /// Certificates that are not valid any more.
    pub revocation: Revocation<'a>,
    /// Unix time in microseconds at `Time` 0, for the validity of certificates.
    pub wall_clock_us: u64,
}

/// The longest time for which a peer with certificates is not judged again.
const JUDGED_AGAIN: Duration = Duration::from_secs(3600);

/// The reason why the settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsConfigError {
    /// A text contains no usable PEM section of the required kind.
    #[error("[tls-pem] {what}: {cause}; give PEM with {wanted}")]
    Pem {
        /// The setting.
        what: &'static str,
        /// The cause.
        cause: String,
        /// Labels of usable sections.
        wanted: &'static str,
    },
    /// The private key is of an unknown kind or not that of the certificate.
    #[error(
        "[tls-key] the private key cannot be used: {0}; it must be ECDSA P-256/P-384, Ed25519 or RSA and belong to the certificate"
    )]
    Key(String),
    /// A trust anchor is not a certificate.
    #[error("[tls-anchor] a trust anchor cannot be used: {0}")]
    Anchor(String),
    /// A revocation list cannot be used.
    #[error(
        "[tls-crl] a revocation list cannot be used: {0}; give complete lists (not delta or indirect ones) as PEM"
    )]
    Revocation(String),
    /// Raw keys need TLS 1.3.
    #[error("[tls-versions] raw public keys need TLS 1.3; allow it or use certificates")]
    Versions,
}

/// The configuration of all TLS channels of a node. Clones share it.
///
/// TLS sessions are never resumed: each association is authenticated against the trust anchors in force. There is no
/// early data, and rustls has no renegotiation.
#[derive(Clone)]
pub struct TlsConfig {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    pub(super) raw_keys: bool,
    judge: Judge,
    clock: Arc<Clock>,
    key: Fingerprint,
}

impl core::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TlsConfig")
            .field("key", &self.key)
            .field("raw_keys", &self.raw_keys)
            .finish_non_exhaustive()
    }
}

/// What verifies peers, for channels that stand.
#[derive(Debug, Clone)]
struct Judge {
    servers: Arc<dyn ServerCertVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

/// The wall clock of certificate checks, in microseconds since 1970.
#[derive(Debug)]
struct Clock {
    start_us: AtomicU64,
    now_us: AtomicU64,
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_micros(self.now_us.load(Ordering::Relaxed))))
    }
}

impl TlsConfig {
    /// Parses keys and certificates (RFC 7468).
    ///
    /// # Errors
    /// [`TlsConfigError`] names the setting that is missing or wrong, and what is required.
    pub fn new(settings: &TlsSettings<'_>) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clock = Arc::new(Clock {
            start_us: AtomicU64::new(settings.wall_clock_us),
            now_us: AtomicU64::new(settings.wall_clock_us),
        });
        let (client, server, key, judge) = match settings.credentials {
            Credentials::Certificates { chain, key, anchors } => {
                certificates(&provider, &clock, settings, [chain, key, anchors])?
            }
            Credentials::RawKeys { key, peers } => raw_keys(&provider, &clock, settings, key, peers)?,
        };
        let raw_keys = matches!(settings.credentials, Credentials::RawKeys { .. });
        let (client, server) = (Arc::new(without_resumption(client)), Arc::new(no_sessions(server)));
        Ok(Self { client, server, raw_keys, judge, clock, key })
    }

    /// Fingerprint of this node's key, for the authorised peer databases of its peers.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.key
    }

    /// Corrects the wall clock: Unix time in microseconds at `Time` 0. All clones have it from their next handshake on;
    /// channels that stand need [`Channel::judge`](super::Channel::judge).
    pub fn set_wall_clock(&self, wall_clock_us: u64) {
        self.clock.start_us.store(wall_clock_us, Ordering::Relaxed);
    }

    /// Judges a peer as a handshake would do it now.
    ///
    /// # Errors
    /// Its certificate has expired, was revoked, or is of an authority that this configuration does not have.
    pub(super) fn judge(
        &self,
        is_server: bool,
        chain: &[CertificateDer<'_>],
        now: Time,
    ) -> Result<(), rustls::Error> {
        self.set_time(now);
        let Some((first, rest)) = chain.split_first() else { return Ok(()) };
        let Some(time) = self.clock.current_time() else { return Ok(()) };
        if is_server {
            // Names are not compared.
            let name = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            self.judge.servers.verify_server_cert(first, rest, &name, &[], time).map(drop)
        } else {
            self.judge.clients.verify_client_cert(first, rest, time).map(drop)
        }
    }

    /// When a peer that was accepted at `now` is judged again: when the first certificate of its chain expires, and an hour
    /// from now at the latest, because revocation lists expire as well. `None`: raw keys do not expire.
    pub(super) fn valid_until(&self, chain: &[CertificateDer<'_>], now: Time) -> Option<Time> {
        if self.raw_keys {
            return None;
        }
        let start = self.clock.start_us.load(Ordering::Relaxed);
        let ends = chain.iter().filter_map(|one| crate::identity::not_after(one));
        let ends = ends.map(|second| {
            Time::from_micros(second.saturating_add(1).saturating_mul(1_000_000).saturating_sub(start))
        });
        Some(ends.filter(|end| *end > now).fold(now + JUDGED_AGAIN, Time::min))
    }

    /// Sets the time of certificate checks.
    pub(super) fn set_time(&self, now: Time) {
        let start = self.clock.start_us.load(Ordering::Relaxed);
        self.clock.now_us.store(start.saturating_add(now.as_micros()), Ordering::Relaxed);
    }
}

type Configs = (ClientConfig, ServerConfig, Fingerprint, Judge);

fn certificates(
    provider: &Arc<CryptoProvider>,
    clock: &Arc<Clock>,
    settings: &TlsSettings<'_>,
    [chain, key, anchors]: [&[u8]; 3],
) -> Result<Configs, TlsConfigError> {
    let versions = versions(settings.versions);
    let chain: Vec<CertificateDer<'static>> = all(chain, "certificate chain", "CERTIFICATE")?;
    let mut roots = RootCertStore::empty();
    for anchor in all::<CertificateDer<'_>>(anchors, "trust anchors", "CERTIFICATE")? {
        roots.add(anchor).map_err(|error| TlsConfigError::Anchor(error.to_string()))?;
    }
    let roots = Arc::new(roots);
    let certified_key = Arc::new(
        CertifiedKey::from_der(chain, private_key(key)?, provider)
            .map_err(|e| TlsConfigError::Key(e.to_string()))?,
    );
    let fingerprint = own_fingerprint(&certified_key)?;
    let algorithms = provider.signature_verification_algorithms;
    let Revocation { lists, strict } = settings.revocation;
    let lists: Vec<CertificateRevocationListDer<'static>> =
        if lists.is_empty() { Vec::new() } else { all(lists, "revocation lists", "X509 CRL")? };
    let revoked = Revoked::new(&lists, strict)?;
    let servers = Arc::new(AnchoredServer { anchors: roots.clone(), algorithms, revoked });
    let client = ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(versions)
        .map_err(|e| TlsConfigError::Key(e.to_string()))?
        .dangerous() // names are checked by the authorised peer database, chains by the verifier
        .with_custom_certificate_verifier(servers.clone())
        .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified_key.clone())));
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).with_crls(lists);
    let verifier = if strict {
        verifier.enforce_revocation_expiration()
    } else {
        verifier.allow_unknown_revocation_status()
    };
    let verifier = if settings.require_client { verifier } else { verifier.allow_unauthenticated() };
    let clients = verifier.build().map_err(|e| TlsConfigError::Anchor(e.to_string()))?;
    let server = ServerConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(versions)
        .map_err(|e| TlsConfigError::Key(e.to_string()))?
        .with_client_cert_verifier(clients.clone())
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified_key)));
    Ok((client, server, fingerprint, Judge { servers, clients }))
}

fn raw_keys(
    provider: &Arc<CryptoProvider>,
    clock: &Arc<Clock>,
    settings: &TlsSettings<'_>,
    key: &[u8],
    peers: &[u8],
) -> Result<Configs, TlsConfigError> {
    if settings.versions == Versions::Only12 {
        return Err(TlsConfigError::Versions);
    }
    let signer = provider
        .key_provider
        .load_private_key(private_key(key)?)
        .map_err(|error| TlsConfigError::Key(error.to_string()))?;
    let public = signer
        .public_key()
        .ok_or_else(|| TlsConfigError::Key("its public key cannot be derived".to_owned()))?
        .into_owned();
    let fingerprint = crate::identity::fingerprint(&public);
    let certified_key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], signer));
    let verifier = Arc::new(KnownKeys {
        keys: all(peers, "keys of peers", "PUBLIC KEY")?,
        algorithms: provider.signature_verification_algorithms,
        require_client: settings.require_client,
    });
    let client = ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| TlsConfigError::Key(e.to_string()))?
        .dangerous() // raw keys are compared with the configured ones
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified_key.clone())));
    let server = ServerConfig::builder_with_details(provider.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| TlsConfigError::Key(e.to_string()))?
        .with_client_cert_verifier(verifier.clone())
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified_key)));
    Ok((client, server, fingerprint, Judge { servers: verifier.clone(), clients: verifier }))
}

fn without_resumption(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

fn no_sessions(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

const fn versions(versions: Versions) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match versions {
        Versions::Both => &BOTH,
        Versions::Only12 => BOTH.split_at(1).1,
        Versions::Only13 => BOTH.split_at(1).0,
    }
}

fn own_fingerprint(own: &CertifiedKey) -> Result<Fingerprint, TlsConfigError> {
    let identity = own.end_entity_cert().ok().and_then(|c| crate::identity::of_certificate(c));
    identity.map(|identity| identity.key).ok_or_else(|| TlsConfigError::Pem {
        what: "certificate chain",
        cause: "the first certificate cannot be read".to_owned(),
        wanted: "CERTIFICATE",
    })
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| TlsConfigError::Pem {
        what: "private key",
        cause: error.to_string(),
        wanted: "PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY",
    })
}

/// All sections of the kind; at least one.
fn all<T: PemObject>(pem: &[u8], what: &'static str, wanted: &'static str) -> Result<Vec<T>, TlsConfigError> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsConfigError::Pem { what, cause: "no section found".to_owned(), wanted }),
        Err(error) => Err(TlsConfigError::Pem { what, cause: error.to_string(), wanted }),
    }
}
