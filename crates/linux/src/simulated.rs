//! A kernel that a test makes. What runs in it sends its netlink requests there instead of to the kernel of this thread's
//! network namespace, octet by octet the same, so that a test can read and evaluate them without privileges.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel of a test.
pub trait Kernel: Send {
    /// Takes a datagram of requests for a netlink protocol, and returns the datagrams of the answer.
    fn ask(&mut self, protocol: isize, requests: &[u8]) -> Vec<Vec<u8>>;
}

/// A kernel that sockets share.
pub type Shared = Arc<Mutex<dyn Kernel>>;

thread_local! {
    static CURRENT: RefCell<Option<Shared>> = const { RefCell::new(None) };
}

/// Runs `work` in a kernel of a test: the sockets of batches and connections that it opens lead there for as long as they live.
pub fn run<T>(kernel: &Shared, work: impl FnOnce() -> T) -> T {
    let former = CURRENT.replace(Some(Arc::clone(kernel)));
    let result = work();
    CURRENT.set(former);
    result
}

/// A netlink message as the kernel sends it.
#[cfg(test)]
pub(crate) fn message(kind: i32, flags: i32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap();
    let (kind, flags) = (u16::try_from(kind).unwrap(), u16::try_from(flags).unwrap());
    let head: [&[u8]; 5] = [
        &length.to_ne_bytes(),
        &kind.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &sequence.to_ne_bytes(),
        &[0; 4], // port
    ];
    [&head.concat()[..], body].concat()
}

/// A socket in a kernel of a test.
pub(crate) struct Socket {
    protocol: isize,
    kernel: Shared,
    answers: Mutex<VecDeque<Vec<u8>>>,
}

impl Socket {
    /// Opens a socket, if this thread runs in a kernel of a test.
    pub(crate) fn open(protocol: isize) -> Option<Self> {
        let kernel = CURRENT.with_borrow(Clone::clone)?;
        Some(Self { protocol, kernel, answers: Mutex::default() })
    }

    /// Sends a datagram of requests.
    pub(crate) fn send(&self, requests: &[u8]) -> io::Result<()> {
        let answers = self.kernel.lock().unwrap_or_else(PoisonError::into_inner).ask(self.protocol, requests);
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
        Ok(())
    }

    /// Receives a datagram of answers. Where the kernel of a host would let the caller wait, it is an error.
    pub(crate) fn receive(&self, answers: &mut [u8]) -> io::Result<usize> {
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let next = next.ok_or(io::ErrorKind::UnexpectedEof)?;
        let place = answers.get_mut(..next.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        place.copy_from_slice(&next);
        Ok(next.len())
    }
}
