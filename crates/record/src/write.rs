//! Writing a recording.

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

/// Writes a recording, up to a limit. Each line goes out by one write, so that what was written is whole
/// unless the write itself broke.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    line: Vec<u8>,
    /// Octets that may still be written, the last line set aside; `None` once the recording has ended.
    left: Option<u64>,
}

impl<W: io::Write> Writer<W> {
    /// Starts a recording of at most `limit` octets of a node made from `config` (anything that serializes to
    /// JSON) and `seed`.
    ///
    /// # Errors
    /// If the header cannot be written, or the limit is too small for it.
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

    /// Records an input; call it before the node handles it. False: the recording has ended, by its limit or
    /// an earlier error, and this input is not in it.
    ///
    /// # Errors
    /// If the line cannot be written or the command not serialized; the recording has then ended.
    pub fn record<C: Serialize>(&mut self, now: Time, input: &Input<'_, C>) -> io::Result<bool> {
        self.put(&Line { t: now.as_micros(), input })
    }

    /// Whether inputs are still recorded.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.left.is_some()
    }

    /// Hands what was recorded on to the device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the recording and gives back what it was written to.
    ///
    /// # Errors
    /// Those of the last flush.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, line: &impl Serialize) -> io::Result<bool> {
        // Taken while writing: an error leaves the recording ended, for a broken line must be the last.
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
