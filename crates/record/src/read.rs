//! Reading a recording.

use core::marker::PhantomData;
use std::io::{self, BufRead, Read as _};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use signalbox_core::Time;
use signalbox_core::node::OwnedInput;
use signalbox_core::octets::Octets;
use thiserror::Error;

use crate::VERSION;

/// Longest line that is read, in octets: no honest one comes near.
const LONGEST_LINE: u64 = 16 << 20;

/// What is wrong with a recording.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("line {line}: {source}")]
    Io {
        /// Line, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("line {line}: {source}")]
    Line {
        /// Line, from 1.
        line: u64,
        /// What is wrong, and at which column.
        source: serde_json::Error,
    },
    /// There is not even a header.
    #[error("line 1: empty, but a recording begins with its header {{\"signalbox-recording\":{VERSION},…}}")]
    Empty,
    /// The header names a version that this program does not read.
    #[error("line 1: recording of version {0}, but this program reads version {VERSION}")]
    Version(u32),
    /// The header's seed has not 32 octets.
    #[error("line 1: a seed of {0} octets, but a seed has 32")]
    Seed(usize),
    /// The last line is cut off: whoever wrote it was stopped.
    #[error("line {line}: cut off; remove it to use what is before it")]
    Torn {
        /// Line, from 1.
        line: u64,
    },
    /// A line is far too long for a recording.
    #[error("line {line}: longer than {LONGEST_LINE} octets; this is no recording")]
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
    /// When the node got it.
    pub at: Time,
    /// What it got.
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

/// Any version's header, to tell a wrong version from a wrong line.
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

/// Why a recording ended before its node did.
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
    /// If there is none, or none that this version understands.
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

    /// What the node was made from.
    #[must_use]
    pub const fn config(&self) -> &serde_json::Value {
        &self.config
    }

    /// The node's seed.
    #[must_use]
    pub const fn seed(&self) -> [u8; 32] {
        self.seed
    }

    /// Whether the recording ended at its limit; known once all of it was read.
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

    /// Reads a line into the buffer; false at the end.
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
