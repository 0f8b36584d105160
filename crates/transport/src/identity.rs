//! Who a peer has proved to be.

use core::fmt;
use std::net::IpAddr;

use crate::der;

/// SHA-256 over a SubjectPublicKeyInfo: names a key, whether it came in a certificate or alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a DER-encoded SubjectPublicKeyInfo.
    #[must_use]
    pub fn of_key(spki: &[u8]) -> Self {
        let mut octets = [0; 32];
        let digest = ring::digest::digest(&ring::digest::SHA256, spki);
        for (to, from) in octets.iter_mut().zip(digest.as_ref()) {
            *to = *from;
        }
        Self(octets)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 64 hexadecimal digits, as `Display` writes them; colons between octets are allowed.
impl core::str::FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let mut digits = text.chars().filter(|c| *c != ':');
        let mut octets = [0; 32];
        for octet in &mut octets {
            for _ in 0..2 {
                let digit = digits.next().and_then(|c| c.to_digit(16)).ok_or(BadFingerprint)?;
                *octet = *octet << 4 | u8::try_from(digit).map_err(|_| BadFingerprint)?;
            }
        }
        if digits.next().is_some() { Err(BadFingerprint) } else { Ok(Self(octets)) }
    }
}

/// A text that is not the fingerprint of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 fingerprint: 64 hexadecimal digits are wanted")]
pub struct BadFingerprint;

/// An authenticated peer, as the handshake proved it. Names come from the certificate; a raw public key
/// (RFC 7250) has none and is known by its fingerprint alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// subjectAltName entries of type dNSName, in the certificate's order.
    pub dns: Vec<String>,
    /// Most specific Common Name of the subject. It counts only if `dns` is empty (RFC 5971 §5.7.3.1).
    pub common_name: Option<String>,
    /// subjectAltName entries of type iPAddress.
    pub addresses: Vec<IpAddr>,
    /// The key that the peer proved to hold.
    pub key: Fingerprint,
}

impl Identity {
    /// From a certificate that has been verified; `None` if it is no certificate.
    #[must_use]
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let names = der::certificate(der)?;
        Some(Self {
            dns: names.dns.into_iter().map(str::to_owned).collect(),
            common_name: names.common_name.map(str::to_owned),
            addresses: names.addresses,
            key: Fingerprint::of_key(names.spki),
        })
    }

    /// From a raw public key (SubjectPublicKeyInfo).
    #[must_use]
    pub fn from_key(spki: &[u8]) -> Self {
        Self { dns: Vec::new(), common_name: None, addresses: Vec::new(), key: Fingerprint::of_key(spki) }
    }

    /// The names that DNS identities of the authorised peer database are compared with: every dNSName or, if
    /// there is none, the Common Name (RFC 5971 §5.7.3.1).
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        let fallback = if self.dns.is_empty() { self.common_name.as_deref() } else { None };
        self.dns.iter().map(String::as_str).chain(fallback)
    }
}

/// The most telling name: the first dNSName or Common Name, else the first address, else the fingerprint.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.dns_names().next() {
            // A name from a certificate may hold anything: no control characters into logs.
            name.escape_debug().fmt(f)
        } else if let Some(address) = self.addresses.first() {
            address.fmt(f)
        } else {
            write!(f, "key {}", self.key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_print_and_parse() {
        let print = Fingerprint::of_key(b"abc");
        // FIPS 180-2, appendix B.1
        assert_eq!(print.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(print.to_string().parse(), Ok(print));
        assert_eq!("ab".parse::<Fingerprint>(), Err(BadFingerprint));
        assert_eq!(format!("{print}0").parse::<Fingerprint>(), Err(BadFingerprint));
    }
}
