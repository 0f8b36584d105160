//! Values that TOML has no type of its own for.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use signalbox_core::node::Prefix;
use signalbox_node::gist::apd::Name;

/// Reads a duration written as a number and a unit: `"500ms"`, `"30s"`, `"5m"`, `"1h"`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Duration;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration in quotes, a number and a unit, such as \"500ms\", \"30s\" or \"5m\"")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_str(Text)
}

/// The duration that `text` gives; `None` if it is not a duration.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let microseconds: u64 = match unit.trim() {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(number.parse::<u64>().ok()?.checked_mul(microseconds)?))
}

/// Reads an address and a port to listen at: `"127.0.0.1:9464"`.
pub(crate) fn listener<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let no_address = || {
        de::Error::custom(format!(
            "{text:?} is no address with a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\""
        ))
    };
    text.parse().map(Some).map_err(|_| no_address())
}

/// An address prefix written as `"10.0.0.0/8"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PrefixText(pub(crate) Prefix);

impl TryFrom<String> for PrefixText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let prefix = text.split_once('/').and_then(|(addr, len)| {
            let addr: IpAddr = addr.parse().ok()?;
            let len: u8 = len.parse().ok()?;
            (len <= if addr.is_ipv4() { 32 } else { 128 }).then_some(Prefix { addr, len })
        });
        prefix.map(Self).ok_or_else(|| format!("{text:?} is no prefix, such as \"10.0.0.0/8\""))
    }
}

/// Reads the peers that an entry of the authorised peer database is about: `"any"`, `"authenticated"`, `"dns:NAME"`,
/// `"key:FINGERPRINT"` or `"address:ADDRESS"`.
pub(crate) fn peer_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.split_once(':') {
        None if text == "any" => Ok(Name::Any),
        None if text == "authenticated" => Ok(Name::Authenticated),
        Some(("dns", name)) => name.parse().map(Name::Dns).map_err(de::Error::custom),
        Some(("key", print)) => print.parse().map(Name::Key).map_err(de::Error::custom),
        Some(("address", address)) => address.parse().map(Name::Address).map_err(de::Error::custom),
        _ => Err(de::Error::custom(format!(
            "{text:?} names no peer: \"any\", \"authenticated\", \"dns:NAME\", \"key:FINGERPRINT\" or \
             \"address:ADDRESS\""
        ))),
    }
}

/// Reads file permissions written in octal: `"0660"`.
pub(crate) fn file_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = u32;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("file permissions in quotes, in octal, such as \"0660\"")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<u32, E> {
            u32::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o777 && text.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_str(Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, us) in [
            ("250us", 250),
            ("500ms", 500_000),
            ("1 s", 1_000_000),
            ("30s", 30_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_micros(us)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "30", "s", "-1s", "1.5s", "1d", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
