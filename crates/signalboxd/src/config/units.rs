//! Values that TOML has no type of its own for.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};

/// Reads a duration written as a number and a unit: `"500ms"`, `"30s"`, `"5m"`, `"1h"`.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
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

/// The duration that `text` says; `None` if it is none.
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

/// Reads file permissions written in octal: `"0660"`.
pub(super) fn file_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
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
