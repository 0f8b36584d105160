//! The messages of a protocol by named fields, so that checks of all protocols are the same.
//!
//! A reader publishes its messages with one table of fields. Names are those of `signalbox decode --json` where that has the
//! same field.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::Value;

/// A field of the messages of a protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<M: 'static> {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) get: fn(&M) -> Option<Value>,
}

/// A message on a link, as checks read it.
pub(crate) trait Message: Debug {
    /// Since 1970.
    fn at(&self) -> Duration;
    /// When TCP at the other end acknowledged its last octet, since 1970; nothing of a message in a datagram.
    fn acknowledged(&self) -> Option<Duration> {
        None
    }
    /// The link's first end sent it.
    fn outgoing(&self) -> bool;
    /// The number of its frame in the capture of the link, counted from 1.
    fn frame(&self) -> usize;
    /// Returns the value of a field; nothing if the message lacks it.
    fn field(&self, name: &str) -> Option<Value>;
}

/// Returns the value of a field of a table.
pub(crate) fn get<M>(table: &[Field<M>], message: &M, name: &str) -> Option<Value> {
    (table.iter().find(|field| field.name == name)?.get)(message)
}

/// Returns names and meanings of a table.
pub(crate) fn described<M>(table: &'static [Field<M>]) -> Vec<(&'static str, &'static str)> {
    table.iter().map(|field| (field.name, field.meaning)).collect()
}
