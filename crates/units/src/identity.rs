//! Identities of peers.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use signalbox_core::security::Fingerprint;

use crate::{BadText, Form};

/// Peers, by the identity that they proved (RFC 5971 §4.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// `any`: every peer, with or without an identity.
    Any,
    /// `authenticated`: every peer that proved an identity.
    Authenticated,
    /// `dns:NAME`: a DNS name in lower case. The left-most label may be `*`, which stands for one label.
    Dns(String),
    /// `address:ADDRESS`: an address of the certificate.
    Address(IpAddr),
    /// `key:FINGERPRINT`: SHA-256 of the public key in hexadecimal.
    Key(Fingerprint),
}

impl Identity {
    /// Its text.
    pub const FORM: Form = Form {
        what: "an identity",
        parts: "any, authenticated, dns:NAME, address:ADDRESS or key:FINGERPRINT with 64 hexadecimal digits",
        example: "dns:*.example.org",
    };
}

impl FromStr for Identity {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fail = || Self::FORM.bad(text);
        match text.split_once(':') {
            None if text == "any" => Ok(Self::Any),
            None if text == "authenticated" => Ok(Self::Authenticated),
            Some(("dns", name)) if is_pattern(name) => Ok(Self::Dns(name.to_ascii_lowercase())),
            Some(("address", address)) => address.parse().map(Self::Address).map_err(|_| fail()),
            Some(("key", print)) => print.parse().map(Self::Key).map_err(|_| fail()),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Authenticated => f.write_str("authenticated"),
            Self::Dns(name) => write!(f, "dns:{name}"),
            Self::Address(address) => write!(f, "address:{address}"),
            Self::Key(print) => write!(f, "key:{print}"),
        }
    }
}

/// Whether it is a DNS name whose left-most label may be `*` (RFC 6125 §6.4.3). An address is not a name.
fn is_pattern(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    let label = |label: &str| {
        let octets = label.as_bytes();
        (1..=63).contains(&octets.len())
            && octets.iter().all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(octet))
            && octets.first() != Some(&b'-')
            && octets.last() != Some(&b'-')
    };
    let number = rest.rsplit('.').next().is_some_and(|last| last.bytes().all(|octet| octet.is_ascii_digit()));
    name.len() <= 253 && !number && rest.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_prefix() {
        let print = "ab".repeat(32);
        for text in ["any", "authenticated", "dns:*.example.org", "dns:r1", "address:2001:db8::1"] {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(identity.to_string(), text);
        }
        assert_eq!("dns:R1.Example".parse(), Ok(Identity::Dns("r1.example".to_owned())));
        assert_eq!(format!("key:{print}").parse(), Ok(Identity::Key(Fingerprint([0xab; 32]))));
    }

    #[test]
    fn other_texts_are_refused_with_an_example() {
        for text in [
            "",
            "r1.example.org",
            "dns:",
            "dns:*",
            "dns:a.*.b",
            "dns:-a",
            "dns:10.0.0.1",
            "dns:a..b",
            "key:12",
            "address:r1",
            "address:",
            "name:r1",
            "Any",
        ] {
            let error = text.parse::<Identity>().unwrap_err().to_string();
            assert!(error.contains("such as \"dns:*.example.org\""), "{text}: {error}");
        }
    }
}
