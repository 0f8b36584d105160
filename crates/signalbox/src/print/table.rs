//! Tables.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Table, presets};
use serde_json::Value;
use tonic::Streaming;

use super::json_array;
use crate::client::refusal;

/// Rows of one table. A longer answer continues in a further table, so that memory stays bounded.
const ROWS: usize = 1000;
/// Hexadecimal digits of a session identifier or peer identity that a table shows.
pub(crate) const DIGITS: usize = 16;

/// Prints `rows` as they arrive: as one JSON array, or as a table, where `cells` makes one row or more of each.
pub(crate) async fn rows<T, const N: usize>(
    mut rows: Streaming<T>,
    as_json: bool,
    columns: &[&str; N],
    cells: impl Fn(&T) -> Vec<[String; N]>,
    to_json: impl Fn(&T) -> Value,
) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if as_json {
        json_array(&mut out, rows, to_json).await?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = new(columns);
    while let Some(row) = rows.message().await.map_err(refusal)? {
        table.add_rows(cells(&row));
        if table.row_count() >= ROWS {
            writeln!(out, "{}", table.trim_fmt())?;
            table = new(columns);
        }
    }
    if table.row_count() > 0 {
        writeln!(out, "{}", table.trim_fmt())?;
    } else {
        writeln!(out, "none")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// An empty table.
pub(crate) fn new(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|name| name.to_uppercase()));
    table
}

/// A span of time in its two largest units.
pub(crate) fn time(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{}.{} s", s, ms % 1000 / 100),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (ms, text) in [
            (0, "0.0 s"),
            (12_345, "12.3 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(time(ms), text);
        }
    }
}
