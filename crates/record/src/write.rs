//! Writer of recordings.

use std::io;

use serde::Serialize;
use signalbox_core::Time;
use signalbox_core::node::Input;

use crate::VERSION;

/// The last line of a recording that reached its limit.
const LIMIT_LINE: &[u8] = b"{\"end\":\"limit\"}\n";

#[derive(Serialize)]
struct Header<'a, T> {
    #[serde(rename = "signalbox-recording")]
    version: u32,
    config: &'a T,
    #[serde(serialize_with = "signalbox_core::octets::text::serialize")]
    seed: &'a [u8; 32],
}

#[derive(Serialize)]
struct Line<'a, I> {
    t: u64,
    input: &'a I,
}

/// Writes a recording, up to a limit. Each line is written by one call, so that a recording consists of whole
/// lines unless a write fails.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    line: Vec<u8>,
    /// Octets that may still be written, without the last line; `None` once the recording has ended.
    left: Option<u64>,
}

impl<W: io::Write> Writer<W> {
    /// Starts a recording of at most `limit` octets. The node was made from `config` (anything that
    /// serializes to JSON) and `seed`.
    ///
    /// # Errors
    /// It returns an error if the header cannot be written, or if the limit is too small for it.
    pub fn new(out: W, config: &impl Serialize, seed: &[u8; 32], limit: u64) -> io::Result<Self> {
        let left = limit.saturating_sub(LIMIT_LINE.len() as u64);
        let mut writer = Self { out, line: Vec::new(), left: Some(left) };
        if writer.put(&Header { version: VERSION, config, seed })? {
            Ok(writer)
        } else {
            Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the limit is too small for a recording's header",
            ))
        }
    }

    /// Records an input. Call it before the node handles the input. It returns false if the recording has
    /// ended, by its limit or by an earlier error; the input is then not recorded.
    ///
    /// # Errors
    /// It returns an error if the line cannot be written or the command cannot be serialized. The recording
    /// has then ended.
    pub fn record<C: Serialize>(&mut self, now: Time, input: &Input<'_, C>) -> io::Result<bool> {
        self.put(&Line { t: now.as_micros(), input })
    }

    /// Whether the recording is still open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.left.is_some()
    }

    /// Flushes the recording to the device.
    ///
    /// # Errors
    /// It returns the errors of the device.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the recording and returns the object that it was written to.
    ///
    /// # Errors
    /// It returns the errors of the last flush.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, line: &impl Serialize) -> io::Result<bool> {
        // The value is taken while writing, so that an error ends the recording: a broken line must be the
        // last.
        let Some(left) = self.left.take() else { return Ok(false) };
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        let Some(left) = left.checked_sub(self.line.len() as u64) else {
            self.out.write_all(LIMIT_LINE)?;
            return Ok(false);
        };
        self.out.write_all(&self.line)?;
        self.left = Some(left);
        Ok(true)
    }
}
