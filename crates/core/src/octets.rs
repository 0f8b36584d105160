//! Owned octets, and octets as text.

use core::fmt;

use signalbox_wire::hex;

/// Octets; in recordings and logs they are hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Octets(pub Vec<u8>);

impl Octets {
    /// The octets as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Octets {
    fn from(octets: &[u8]) -> Self {
        Self(octets.to_vec())
    }
}

impl fmt::Debug for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Octets({})", hex(&self.0))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Octets {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Octets {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        signalbox_wire::parse_hex(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Octets of any container as hexadecimal text, for `#[serde(with = "…")]`.
#[cfg(feature = "serde")]
pub mod text {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer};
    use signalbox_wire::{hex, parse_hex};

    /// Writes octets in hexadecimal.
    ///
    /// # Errors
    /// It returns the errors of the serializer.
    pub fn serialize<O: AsRef<[u8]>, S: Serializer>(octets: &O, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(octets.as_ref()))
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// It returns an error if the text is not hexadecimal.
    pub fn deserialize<'de, O: From<Vec<u8>>, D: Deserializer<'de>>(deserializer: D) -> Result<O, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse_hex(&text).map(O::from).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_shown_in_hexadecimal() {
        assert_eq!(format!("{:?}", Octets::from(&b"\x00\xff"[..])), "Octets(00ff)");
    }
}
