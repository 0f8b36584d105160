//! The proved identity of a peer. Channels authenticate it, and GIST authorises peers by it (RFC 5971
//! §4.4.2).

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// SHA-256 over a SubjectPublicKeyInfo. It identifies a key, with or without a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fingerprint(pub [u8; 32]);

/// Writes 64 hexadecimal digits.
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

/// Parses what `Display` writes, in upper or lower case. Colons between octets are allowed, as other tools
/// print them.
impl FromStr for Fingerprint {
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

/// Error for a text that is not the fingerprint of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadFingerprint;

impl fmt::Display for BadFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a SHA-256 fingerprint: 64 hexadecimal digits are wanted")
    }
}

impl core::error::Error for BadFingerprint {}

/// Identity of an authenticated peer, as the handshake proved it. Names come from the certificate. A raw
/// public key (RFC 7250) has no names; its fingerprint identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Identity {
    /// subjectAltName entries of type dNSName, in the certificate's order.
    pub dns: Vec<String>,
    /// Most specific Common Name of the subject. It is used only if `dns` is empty (RFC 5971 §5.7.3.1).
    pub common_name: Option<String>,
    /// subjectAltName entries of type iPAddress.
    pub addresses: Vec<IpAddr>,
    /// The key that the peer proved to hold.
    pub key: Fingerprint,
}

impl Identity {
    /// Identity of a peer that has a raw public key only.
    #[must_use]
    pub const fn of_key(key: Fingerprint) -> Self {
        Self { dns: Vec::new(), common_name: None, addresses: Vec::new(), key }
    }

    /// The names to compare with DNS identities of the authorised peer database: every dNSName or, if the
    /// certificate has no dNSName, the Common Name (RFC 5971 §5.7.3.1).
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        let fallback = if self.dns.is_empty() { self.common_name.as_deref() } else { None };
        self.dns.iter().map(String::as_str).chain(fallback)
    }
}

/// Writes the first dNSName or the Common Name, else the first address, else the fingerprint.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.dns_names().next() {
            // A name from a certificate may contain any character; control characters must not get into logs.
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
        let print = Fingerprint(core::array::from_fn(|at| u8::try_from(at * 8).unwrap()));
        let text = print.to_string();
        assert_eq!(text.parse(), Ok(print));
        assert_eq!(text.to_uppercase().parse(), Ok(print));
        let octets: Vec<_> = (0..32).map(|at| &text[2 * at..2 * at + 2]).collect();
        assert_eq!(octets.join(":").parse(), Ok(print));
        for bad in ["", "ab", &format!("{text}0"), &text.replace('f', "g")] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(BadFingerprint), "{bad}");
        }
    }

    #[test]
    fn the_common_name_counts_only_without_dns_names() {
        let mut peer = Identity::of_key(Fingerprint([0; 32]));
        assert_eq!(peer.to_string(), format!("key {}", "00".repeat(32)));
        peer.addresses.push("192.0.2.1".parse().unwrap());
        assert_eq!(peer.to_string(), "192.0.2.1");
        peer.common_name = Some("a\nb".to_owned());
        assert_eq!(
            (peer.dns_names().collect::<Vec<_>>(), peer.to_string()),
            (vec!["a\nb"], "a\\nb".to_owned())
        );
        peer.dns.push("node.example".to_owned());
        assert_eq!(peer.dns_names().collect::<Vec<_>>(), ["node.example"]);
    }
}
