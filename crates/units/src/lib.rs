//! Times, rates, sizes, shares, services and identities as text.
//!
//! The configuration of the daemon, the arguments of the command and the scenarios of the lab use this grammar:
//!
//! | type | text | examples |
//! |---|---|---|
//! | [`Span`] | a number and `us`, `ms`, `s`, `m` or `min`, `h`, `d` | `500ms`, `1.5s`, `2min`, `1d` |
//! | [`BitRate`] | a number and `bit`, `kbit`, `mbit`, `gbit`, in any case, with or without `/s` | `64kbit`, `2.5mbit` |
//! | [`Size`] | octets, or a number and `k`, `M`, `G`, `KiB`, `MiB`, `GiB` | `1400`, `64KiB`, `1.5M` |
//! | [`PerSecond`] | a whole number and `/s` | `20000/s` |
//! | [`Percent`] | a number from 0 to 100 and `%` | `75%`, `12.5%` |
//! | [`Service`] | `cl` or `controlled-load`, `guaranteed`, `ef`, `dscp:N` | `dscp:46` |
//! | [`Identity`] | `any`, `authenticated`, `dns:NAME`, `address:ADDRESS`, `key:FINGERPRINT` | `dns:*.example.org` |
//!
//! The arithmetic is exact: a number that is not a whole number of nanoseconds, bits or octets is refused. Each type
//! displays as a text that reads back as the same value.
//!
#![doc = include_str!("../README.md")]

mod identity;
mod number;
mod quantity;
mod service;
mod span;

pub use identity::Identity;
pub use quantity::{BitRate, PerSecond, Percent, Size};
pub use service::Service;
pub use span::Span;

use core::fmt;

/// A text that is no value of the type, with the form that is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadText {
    text: String,
    form: Form,
    why: Option<&'static str>,
}

/// The form of a type's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// The type, with its article: "a duration".
    pub what: &'static str,
    /// The parts of the text.
    pub parts: &'static str,
    /// One text that is right.
    pub example: &'static str,
}

impl Form {
    fn bad(self, text: &str) -> BadText {
        // A very long text is cut, because it becomes part of one line.
        BadText { text: text.chars().take(80).collect(), form: self, why: None }
    }

    fn because(self, text: &str, why: &'static str) -> BadText {
        BadText { why: Some(why), ..self.bad(text) }
    }
}

impl BadText {
    /// What is wrong, without the form that is right.
    #[must_use]
    pub fn problem(&self) -> String {
        let Self { text, form: Form { what, .. }, why } = self;
        why.map_or_else(|| format!("{text:?} is not {what}"), |why| format!("{text:?} {why}"))
    }
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Form { parts, example, .. } = self.form;
        write!(f, "{}: write {parts}, such as {example:?}", self.problem())
    }
}

impl core::error::Error for BadText {}

/// Reads and writes a type as the text that it displays as.
#[cfg(feature = "serde")]
macro_rules! as_text {
    ($($name:ident),*) => { $(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}
#[cfg(feature = "serde")]
as_text!(BitRate, Identity, PerSecond, Percent, Service, Size, Span);
