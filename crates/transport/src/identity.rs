//! The identity of a peer, taken from the certificate or key that TLS verified.

use signalbox_core::security::{Fingerprint, Identity};

use crate::der;

/// The SHA-256 fingerprint of a DER-encoded SubjectPublicKeyInfo (RFC 5280 §4.1).
#[must_use]
pub fn fingerprint(spki: &[u8]) -> Fingerprint {
    let mut octets = [0; 32];
    let digest = ring::digest::digest(&ring::digest::SHA256, spki);
    for (to, from) in octets.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    Fingerprint(octets)
}

/// The identity in a certificate that was verified (RFC 5280); `None` if the octets are not a certificate.
#[must_use]
pub fn of_certificate(der: &[u8]) -> Option<Identity> {
    let names = der::certificate(der)?;
    Some(Identity {
        dns: names.dns.into_iter().map(str::to_owned).collect(),
        common_name: names.common_name.map(str::to_owned),
        addresses: names.addresses,
        key: fingerprint(names.spki),
    })
}

/// The last second in which a certificate is valid, since 1970; `None` if the octets are not a certificate.
#[must_use]
pub fn not_after(der: &[u8]) -> Option<u64> {
    der::certificate(der).map(|names| names.not_after)
}

/// The identity of a raw public key, a SubjectPublicKeyInfo (RFC 7250).
#[must_use]
pub fn of_key(spki: &[u8]) -> Identity {
    Identity::of_key(fingerprint(spki))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_a_sha_256() {
        // FIPS 180-2, appendix B.1
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint(b"abc").to_string(), abc);
    }
}
