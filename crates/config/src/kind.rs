//! Kinds of values: how a value is read, its range, and how it is written.

mod list;
mod name;
mod quantity;

pub(crate) use list::list;
pub(crate) use name::{
    address, chain, choice, ip_protocol, listener, network, path, peer, ports, rule_service, service, text,
    time_of_day, trusted,
};
pub(crate) use quantity::{
    code_point, date, duration, factor, file_mode, flag, mark, number, per_second, rate, real, share, size,
    span,
};

use crate::tree::{Place, Tree};

/// Why a value is not of a kind.
#[derive(Debug)]
pub(crate) struct KindError {
    /// Where, if not at the whole value.
    pub(crate) place: Option<Place>,
    /// What is wrong, without the form that is right.
    pub(crate) what: String,
    /// Further mistakes of the same value: a list has one for each wrong element.
    pub(crate) others: Vec<Self>,
}

impl KindError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { place: None, what: what.into(), others: Vec::new() }
    }

    /// A value out of its range.
    pub(crate) fn out_of_range(value: &Tree) -> Self {
        Self::new(format!("{} is out of range", value.value))
    }
}

/// A kind of value.
pub(crate) trait Kind {
    type Value;

    /// Reads a value.
    fn read(&self, value: &Tree) -> Result<Self::Value, KindError>;

    /// The value as TOML.
    fn show(&self, value: &Self::Value) -> String;

    /// The form of a right value: "a duration in quotes, with a unit …".
    fn form(&self) -> String;

    /// The range, if it has one: "10ms to 1m".
    fn range(&self) -> String {
        String::new()
    }

    /// A right value as TOML.
    fn example(&self) -> String;
}

/// A text as TOML.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
