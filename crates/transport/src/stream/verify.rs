//! Verification of the peer by TLS. Names are not compared here: the authorised peer database does that, for each flow
//! (RFC 5971 §5.7.3.1).

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::config::TlsConfigError;

/// Accepts servers whose certificate chains to a trust anchor (RFC 5280 §6), with any name.
#[derive(Debug)]
pub(super) struct AnchoredServer {
    pub(super) anchors: Arc<RootCertStore>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// `None`: there are no revocation lists.
    pub(super) revoked: Option<Revoked>,
}

/// The revocation lists that servers' certificates are compared with. rustls does so for clients, and for servers only
/// together with their name.
#[derive(Debug)]
pub(super) struct Revoked {
    lists: Vec<CertRevocationList<'static>>,
    strict: bool,
}

impl Revoked {
    /// Reads the lists; `None` if there are none.
    pub(super) fn new(
        lists: &[CertificateRevocationListDer<'_>],
        strict: bool,
    ) -> Result<Option<Self>, TlsConfigError> {
        let lists = lists.iter().map(|list| OwnedCertRevocationList::from_der(list).map(Into::into));
        let lists = lists.collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error: webpki::Error| TlsConfigError::Revocation(error.to_string()))?;
        Ok((!lists.is_empty()).then_some(Self { lists, strict }))
    }

    /// Refuses a chain that has a revoked certificate.
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        (anchors, algorithms): (&RootCertStore, WebPkiSupportedAlgorithms),
        now: UnixTime,
    ) -> Result<(), Error> {
        let refused = |error: webpki::Error| {
            Error::InvalidCertificate(match error {
                webpki::Error::CertRevoked => CertificateError::Revoked,
                webpki::Error::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
                webpki::Error::CrlExpired { time, next_update } => {
                    CertificateError::ExpiredRevocationListContext { time, next_update }
                }
                other => CertificateError::Other(OtherError(Arc::new(other))),
            })
        };
        let lists: Vec<_> = self.lists.iter().collect();
        let Ok(options) = RevocationOptionsBuilder::new(&lists) else { return Ok(()) };
        let (status, expiration) = if self.strict {
            (UnknownStatusPolicy::Deny, ExpirationPolicy::Enforce)
        } else {
            (UnknownStatusPolicy::Allow, ExpirationPolicy::Ignore)
        };
        let options = options.with_status_policy(status).with_expiration_policy(expiration).build();
        let certificate = EndEntityCert::try_from(end_entity).map_err(refused)?;
        let usage = KeyUsage::server_auth();
        certificate
            .verify_for_usage(algorithms.all, &anchors.roots, intermediates, now, usage, Some(options), None)
            .map(drop)
            .map_err(refused)
    }
}

impl ServerCertVerifier for AnchoredServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.anchors,
            intermediates,
            now,
            algorithms,
        )?;
        if let Some(revoked) = &self.revoked {
            revoked.check(end_entity, intermediates, (&self.anchors, self.algorithms), now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Accepts clients and servers whose raw public key (RFC 7250) is in the configuration. TLS 1.3 only.
#[derive(Debug)]
pub(super) struct KnownKeys {
    pub(super) keys: Vec<SubjectPublicKeyInfoDer<'static>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    pub(super) require_client: bool,
}

impl KnownKeys {
    /// `presented` is a SubjectPublicKeyInfo in the place of a certificate.
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        let known = self.keys.iter().any(|key| key.as_ref() == presented.as_ref());
        if known {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// This node does not offer raw keys in TLS 1.2.
fn not_in_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("raw public key in TLS 1.2".to_owned()))
}

impl ServerCertVerifier for KnownKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        not_in_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for KnownKeys {
    fn client_auth_mandatory(&self) -> bool {
        self.require_client
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        not_in_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
