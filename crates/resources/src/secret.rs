//! Secrets of keys that are not written down with other settings.

use core::fmt;

/// The secret of a key. It is printed and serialized as a mark, by which the right secret can be recognised. After
/// deserializing, [`Secret::reveal`] must give it its octets before an engine can be created.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    octets: Option<Box<[u8]>>,
    mark: u64,
}

/// The mark allows guessing of weak secrets, as does any signed message.
fn mark(octets: &[u8]) -> u64 {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, octets);
    let tag = ring::hmac::sign(&key, b"signalbox: which key is this?");
    tag.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

impl Secret {
    /// A secret with these octets.
    #[must_use]
    pub fn new(octets: impl Into<Box<[u8]>>) -> Self {
        let octets = octets.into();
        Self { mark: mark(&octets), octets: Some(octets) }
    }

    /// The secret in a file: its contents without one end of line.
    #[must_use]
    pub fn from_file(content: &[u8]) -> Self {
        let line = content.strip_suffix(b"\n").unwrap_or(content);
        Self::new(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Takes the octets of `other` if they are the missing ones; whether they are.
    pub fn reveal(&mut self, other: &Self) -> bool {
        let fits = self.mark == other.mark && other.octets.is_some();
        if fits {
            self.octets.clone_from(&other.octets);
        }
        fits
    }

    /// The octets; `None`: they are missing.
    #[must_use]
    pub fn octets(&self) -> Option<&[u8]> {
        self.octets.as_deref()
    }

    /// Whether the octets are there.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.octets.is_some()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:016x})", self.mark)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:016x}", self.mark))
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mark = u64::from_str_radix(&text, 16)
            .map_err(|_| serde::de::Error::custom("not the mark of a secret, 16 hexadecimal digits"))?;
        Ok(Self { octets: None, mark })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_its_mark_only() {
        let secret = Secret::from_file(b"correct horse\r\n");
        assert_eq!(secret, Secret::new(*b"correct horse"));
        assert!(!format!("{secret:?}").contains("horse"));
        let mut lost = Secret { octets: None, mark: secret.mark };
        assert!(!lost.reveal(&Secret::new(*b"another")) && !lost.is_known());
        assert!(lost.reveal(&secret) && lost == secret);
    }
}
