//! The log as entries of journald, by its native protocol: each field of a line is a field of the entry.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends each line to journald. A line that journald does not take at once is left out: nothing waits for it.
#[derive(Debug)]
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// Connects to journald.
    pub(super) fn connect() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SOCKET)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if self.0.send(&entry(event)).is_err() {
            super::leave_out();
        }
    }
}

/// The octets of an entry.
fn entry(event: &Event<'_>) -> Vec<u8> {
    let metadata = event.metadata();
    let priority = match *metadata.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut entry = Entry::default();
    entry.put("PRIORITY", priority);
    entry.put("SYSLOG_IDENTIFIER", "signalboxd");
    entry.put("SIGNALBOX_MODULE", metadata.target());
    event.record(&mut entry);
    entry.octets
}

#[derive(Debug, Default)]
struct Entry {
    octets: Vec<u8>,
}

impl Entry {
    /// Adds a field. A value with a line feed has its length in front.
    fn put(&mut self, name: &str, value: &str) {
        self.octets.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            self.octets.push(b'\n');
            self.octets.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.octets.push(b'=');
        }
        self.octets.extend_from_slice(value.as_bytes());
        self.octets.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return self.put("MESSAGE", value);
        }
        self.put(&format!("SIGNALBOX_{}", field.name().to_ascii_uppercase()), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_lines_has_its_length_in_front() {
        let mut entry = Entry::default();
        entry.put("MESSAGE", "reservation refused");
        entry.put("SIGNALBOX_REASON", "two\nlines");
        let expected = b"MESSAGE=reservation refused\nSIGNALBOX_REASON\n\x09\0\0\0\0\0\0\0two\nlines\n";
        assert_eq!(entry.octets, expected);
    }
}
