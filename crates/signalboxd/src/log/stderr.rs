//! Lines of the log on their way to standard error.
//!
//! Standard error may be a pipe whose reader is slow. So a thread of its own writes, and who logs only copies the line into a buffer of
//! limited size. What finds no room is left out and counted. The first line wakes the thread, which writes what a few milliseconds
//! bring at once. The thread starts after the daemon has given up its privileges, so that
//! it has none either; before that each line is written at once.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Octets that wait, at most.
const ROOM: usize = 8 << 20;
/// How long the thread lets lines gather after the first one.
const GATHER: Duration = Duration::from_millis(2);
/// How long the end of the daemon waits for the reader of the log.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Buffer {
    /// Whether the thread runs.
    runs: bool,
    /// Lines, one after the other.
    waiting: VecDeque<u8>,
    /// Octets that the thread has taken and not written yet.
    taken: bool,
    /// The thread waits for a line to wake it.
    sleeps: bool,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    /// It waits, and its writer wakes the thread.
    First,
    /// It waits for the thread, which is awake.
    Behind,
    /// There is no room for it.
    LeftOut,
}

impl Buffer {
    fn put(&mut self, line: &[u8]) -> Put {
        if self.waiting.len() + line.len() > ROOM {
            return Put::LeftOut;
        }
        self.waiting.extend(line);
        if core::mem::take(&mut self.sleeps) { Put::First } else { Put::Behind }
    }
}

static BUFFER: Mutex<Buffer> =
    Mutex::new(Buffer { runs: false, waiting: VecDeque::new(), taken: false, sleeps: false });
static CHANGED: Condvar = Condvar::new();

fn buffer() -> MutexGuard<'static, Buffer> {
    // A line is copied as a whole: the buffer is complete, also after a panic of another thread.
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes from now on in a thread of its own.
pub(crate) fn start() -> io::Result<()> {
    thread::Builder::new().name("log".into()).spawn(run)?;
    buffer().runs = true;
    Ok(())
}

fn run() {
    loop {
        let mut waiting = buffer();
        if waiting.waiting.is_empty() {
            while waiting.waiting.is_empty() {
                waiting.sleeps = true;
                waiting = CHANGED.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            drop(waiting);
            thread::sleep(GATHER);
            waiting = buffer();
        }
        waiting.taken = true;
        let octets: Vec<u8> = std::mem::take(&mut waiting.waiting).into();
        drop(waiting);
        // Where no program reads the log, there is no place to report it.
        let _ = io::stderr().write_all(&octets);
        buffer().taken = false;
        CHANGED.notify_all();
    }
}

/// Waits until all lines are written, for a second at most.
fn flush() {
    let end = Instant::now() + PATIENCE;
    let mut waiting = buffer();
    while waiting.runs && (waiting.taken || !waiting.waiting.is_empty()) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        waiting = CHANGED.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Waits at its end, also by a panic, until all lines are written, for a second at most.
#[derive(Debug)]
pub(crate) struct Flush;

impl Drop for Flush {
    fn drop(&mut self) {
        flush();
    }
}

/// Where lines go; each is written as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferedStderr;

impl Write for BufferedStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = buffer();
        if !waiting.runs {
            drop(waiting);
            return io::stderr().write(line);
        }
        match waiting.put(line) {
            Put::First => CHANGED.notify_all(),
            Put::Behind => {}
            Put::LeftOut => super::leave_out(),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for BufferedStderr {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_wakes_the_thread_only_if_it_sleeps() {
        let mut buffer = Buffer { sleeps: true, ..Buffer::default() };
        let put: Vec<_> = (0..4).map(|_| buffer.put(b"a line\n")).collect();
        assert_eq!(put, [Put::First, Put::Behind, Put::Behind, Put::Behind]);
        assert_eq!(buffer.waiting.len(), 4 * 7);
        assert_eq!(buffer.put(&[b'x'; ROOM]), Put::LeftOut);
        assert_eq!(buffer.waiting.len(), 4 * 7);
    }
}
