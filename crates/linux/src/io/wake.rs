//! A handle by which another thread ends the loop's wait.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::sys;

/// A handle that ends [`super::Io::wait`] from any thread. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Waker(Arc<File>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        sys::eventfd().map(|fd| Self(Arc::new(File::from(fd))))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Ends the present wait, or the next one if no thread waits. Several calls before it count as one.
    pub fn wake(&self) {
        // The write fails only if the counter is at its limit, and then the wait ends all the same.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    /// Discards the calls so far, for loops that do not use [`super::Io::wait`].
    pub fn clear(&self) {
        let _ = (&*self.0).read(&mut [0; 8]);
    }
}
