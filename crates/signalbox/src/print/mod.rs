//! Output that several commands share: flows, octets, times, JSON arrays and tables.

pub(crate) mod table;

use std::io::{Stdout, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use signalbox_api::v0;
use tonic::Streaming;

use crate::client::refusal;

/// Microseconds as milliseconds.
#[allow(clippy::cast_precision_loss, reason = "times far below 2^53 µs")]
pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// `None` for an empty text, which in the API stands for a value that is not known.
pub(crate) fn none_if_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Octets in hexadecimal.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A flow in one line: `192.0.2.1 > 192.0.2.9:5004 proto 17`.
pub(crate) fn flow_text(flow: &v0::Flow) -> String {
    let end = |address: &str, prefix: u32, port: Option<u32>| {
        let host = if address.contains(':') { 128 } else { 32 };
        let mask = if prefix == host { String::new() } else { format!("/{prefix}") };
        let port = port.map_or_else(String::new, |port| format!(" port {port}"));
        format!("{address}{mask}{port}")
    };
    let mut text = format!(
        "{} > {}",
        end(&flow.source, flow.source_prefix, flow.source_port),
        end(&flow.destination, flow.destination_prefix, flow.destination_port)
    );
    for (name, value) in
        [("proto", flow.protocol), ("dscp", flow.dscp), ("label", flow.flow_label), ("spi", flow.spi)]
    {
        if let Some(value) = value {
            text += &format!(" {name} {value}");
        }
    }
    text
}

/// A flow as JSON.
pub(crate) fn flow_json(flow: &v0::Flow) -> Value {
    json!({
        "method": flow.method,
        "source": flow.source,
        "source_prefix": flow.source_prefix,
        "destination": flow.destination,
        "destination_prefix": flow.destination_prefix,
        "protocol": flow.protocol,
        "dscp": flow.dscp,
        "flow_label": flow.flow_label,
        "spi": flow.spi,
        "source_port": flow.source_port,
        "destination_port": flow.destination_port,
    })
}

/// Writes a JSON array, one element a line, each as it arrives.
pub(crate) struct JsonArray<'a, W> {
    out: &'a mut W,
    empty: bool,
}

impl<'a, W: Write> JsonArray<'a, W> {
    /// Starts an array. Writes nothing before the first element or the end.
    pub(crate) fn new(out: &'a mut W) -> Self {
        Self { out, empty: true }
    }

    /// Writes an element.
    pub(crate) fn push(&mut self, value: &Value) -> Result<()> {
        write!(self.out, "{}{value}", if self.empty { "[" } else { ",\n" })?;
        self.empty = false;
        Ok(())
    }

    /// Writes the end.
    pub(crate) fn end(self) -> Result<()> {
        writeln!(self.out, "{}", if self.empty { "[]" } else { "]" })?;
        Ok(())
    }
}

/// Prints rows as they arrive: as one JSON array, or as text.
pub(crate) async fn rows<T>(
    mut rows: Streaming<T>,
    as_json: bool,
    to_json: impl Fn(&T) -> Value,
    text: impl Fn(&mut Stdout, &T) -> Result<()>,
) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    if as_json {
        json_array(&mut out, rows, to_json).await?;
    } else {
        let mut empty = true;
        while let Some(row) = rows.message().await.map_err(refusal)? {
            empty = false;
            text(&mut out, &row)?;
        }
        if empty {
            writeln!(out, "none")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints rows as one JSON array, each as it arrives.
pub(crate) async fn json_array<T>(
    out: &mut impl Write,
    mut rows: Streaming<T>,
    to_json: impl Fn(&T) -> Value,
) -> Result<()> {
    let mut array = JsonArray::new(out);
    while let Some(row) = rows.message().await.map_err(refusal)? {
        array.push(&to_json(&row))?;
    }
    array.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_shows_what_is_not_a_wildcard() {
        let mut flow = v0::Flow {
            source: "192.0.2.1".into(),
            source_prefix: 32,
            destination: "192.0.2.0".into(),
            destination_prefix: 24,
            ..v0::Flow::default()
        };
        assert_eq!(flow_text(&flow), "192.0.2.1 > 192.0.2.0/24");
        flow.protocol = Some(17);
        flow.destination_port = Some(9);
        assert_eq!(flow_text(&flow), "192.0.2.1 > 192.0.2.0/24 port 9 proto 17");
    }

    #[test]
    fn arrays_are_json_however_long() {
        for length in 0..3 {
            let mut out = Vec::new();
            let mut array = JsonArray::new(&mut out);
            for number in 0..length {
                array.push(&json!(number)).unwrap();
            }
            array.end().unwrap();
            let value: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value.as_array().unwrap().len(), length);
        }
    }
}
