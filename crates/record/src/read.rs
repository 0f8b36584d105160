//! Reader of recordings.

use core::marker::PhantomData;
use std::io::{self, BufRead, Read as _};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use signalbox_core::Time;
use signalbox_core::node::OwnedInput;
use signalbox_core::octets::Octets;
use thiserror::Error;

use crate::VERSION;

/// Limit on the length of a line, in octets. Valid recordings stay far below it.
const LONGEST_LINE: u64 = 16 << 20;

/// Error in a recording.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("line {line} cannot be read")]
    Io {
        /// Line, from 1.
        line: u64,
        /// Error of the source.
        source: io::Error,
    },
    /// A line has the wrong form.
    #[error("line {line} is no line of a recording")]
    Line {
        /// Line, from 1.
        line: u64,
        /// Description of the error, with its column.
        source: serde_json::Error,
    },
    /// The file is empty: it has no header.
    #[error("line 1: empty, but a recording begins with its header {{\"signalbox-recording\":{VERSION},…}}")]
    Empty,
    /// The program cannot read the version that the header gives.
    #[error("line 1: recording of version {0}, but this program reads version {VERSION}")]
    Version(u32),
    /// The header's seed does not have 32 octets.
    #[error("line 1: a seed of {0} octets, but a seed has 32")]
    Seed(usize),
    /// The last line is incomplete: the recording process was stopped while writing it.
    #[error("line {line}: cut off; remove this line to use the lines before it")]
    Torn {
        /// Line, from 1.
        line: u64,
    },
    /// A line is longer than any line of a recording can be.
    #[error("line {line}: longer than {LONGEST_LINE} octets; this is not a recording")]
    TooLong {
        /// Line, from 1.
        line: u64,
    },
    /// An input is older than the one before it.
    #[error("line {line}: t is {t}, but the line before was at {before}; time never runs backwards")]
    Backwards {
        /// Line, from 1.
        line: u64,
        /// Its time, in microseconds.
        t: u64,
        /// The time of the line before.
        before: u64,
    },
}

/// An input and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded<C> {
    /// Time at which the node received it.
    pub at: Time,
    /// The input.
    pub input: OwnedInput<C>,
}

/// Reads a recording: an iterator of inputs that ends with the first error. `C` is the node's command type.
#[derive(Debug)]
pub struct Reader<R, C> {
    source: R,
    line: u64,
    buffer: Vec<u8>,
    before: u64,
    ended: bool,
    cut: bool,
    config: serde_json::Value,
    seed: [u8; 32],
    commands: PhantomData<fn() -> C>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(rename = "signalbox-recording")]
    _version: u32,
    config: serde_json::Value,
    seed: Octets,
}

/// A header of any version, to distinguish a wrong version from a malformed line.
#[derive(Deserialize)]
struct AnyHeader {
    #[serde(rename = "signalbox-recording")]
    version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: Reason,
}

/// Reason why a recording ended before its node stopped.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reason {
    Limit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "C: Deserialize<'de>"))]
struct Line<C> {
    t: u64,
    input: OwnedInput<C>,
}

impl<R: BufRead, C: DeserializeOwned> Reader<R, C> {
    /// Reads the header.
    ///
    /// # Errors
    /// It returns an error if there is no header, or if this version cannot read it.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let mut reader = Self {
            source,
            line: 0,
            buffer: Vec::new(),
            before: 0,
            ended: false,
            cut: false,
            config: serde_json::Value::Null,
            seed: [0; 32],
            commands: PhantomData,
        };
        if !reader.next_line()? {
            return Err(ReadError::Empty);
        }
        let version = reader.parse::<AnyHeader>()?.version;
        if version != VERSION {
            return Err(ReadError::Version(version));
        }
        let header: Header = reader.parse()?;
        let seed = header.seed.as_slice();
        reader.seed = seed.try_into().map_err(|_| ReadError::Seed(seed.len()))?;
        reader.config = header.config;
        Ok(reader)
    }

    /// Configuration of the node.
    #[must_use]
    pub const fn config(&self) -> &serde_json::Value {
        &self.config
    }

    /// Seed of the node.
    #[must_use]
    pub const fn seed(&self) -> [u8; 32] {
        self.seed
    }

    /// Whether the recording ended at its limit. It is valid once the whole recording was read.
    #[must_use]
    pub const fn reached_limit(&self) -> bool {
        self.cut
    }

    fn advance(&mut self) -> Result<Option<Recorded<C>>, ReadError> {
        if !self.next_line()? {
            return Ok(None);
        }
        if let Ok(End { end: Reason::Limit }) = self.parse() {
            self.cut = true;
            return Ok(None);
        }
        let Line { t, input } = self.parse()?;
        if t < self.before {
            return Err(ReadError::Backwards { line: self.line, t, before: self.before });
        }
        self.before = t;
        Ok(Some(Recorded { at: Time::from_micros(t), input }))
    }

    /// Reads a line into the buffer; false at the end of the file.
    fn next_line(&mut self) -> Result<bool, ReadError> {
        self.line += 1;
        self.buffer.clear();
        let line = self.line;
        let mut limited = (&mut self.source).take(LONGEST_LINE);
        limited.read_until(b'\n', &mut self.buffer).map_err(|source| ReadError::Io { line, source })?;
        match self.buffer.last() {
            None => Ok(false),
            Some(b'\n') => Ok(true),
            Some(_) if self.buffer.len() as u64 == LONGEST_LINE => Err(ReadError::TooLong { line }),
            Some(_) => Err(ReadError::Torn { line }),
        }
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T, ReadError> {
        serde_json::from_slice(&self.buffer).map_err(|source| ReadError::Line { line: self.line, source })
    }
}

impl<R: BufRead, C: DeserializeOwned> Iterator for Reader<R, C> {
    type Item = Result<Recorded<C>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
