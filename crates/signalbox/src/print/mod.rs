//! Output that several commands share.

mod clock;
mod decision;
pub(crate) mod path;
pub(crate) mod style;
pub(crate) mod table;
mod text;
mod time;

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::Serialize;

pub(crate) use clock::{date_time, moment, time_of_day};
pub(crate) use decision::{decision, flows_of};
pub(crate) use text::{enum_text, flow, flows, hex, identifier, or_dash, rate, service, traffic};
pub(crate) use time::duration;

/// Prints a row as a line of JSON.
pub(crate) fn json_row(out: &mut impl Write, row: &impl signalbox_json::Row) -> Result<()> {
    Ok(writeln!(out, "{}", signalbox_json::row(row)?)?)
}

/// Prints an event as a line of JSON. An event that this command does not know has no line.
pub(crate) fn json_event(out: &mut impl Write, event: &impl signalbox_json::Events) -> Result<()> {
    if let Some(line) = signalbox_json::event(event)? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints a line of JSON that no message of the API describes.
pub(crate) fn json_line(out: &mut impl Write, line: &impl Serialize) -> Result<()> {
    Ok(writeln!(out, "{}", serde_json::to_string(line)?)?)
}

/// The time of day in microseconds since 1970.
pub(crate) fn now_unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
