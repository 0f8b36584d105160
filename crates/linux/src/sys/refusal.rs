//! What happens at a system call that seccomp does not allow: one line on standard error for each number, and EPERM.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check;

/// Numbers of system calls that are distinguished.
const NUMBERS: usize = 512;

/// The numbers that were logged, one bit each.
static LOGGED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Logs refused system calls from now on, and makes them return EPERM.
pub(crate) fn log() -> io::Result<()> {
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = refused;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: `action` is a live structure whose handler has the signature of SA_SIGINFO and calls only what
    // signal-safety(7) allows.
    check(unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) }).map(drop)
}

/// The part of `siginfo_t` that belongs to SIGSYS, on machines of 64 bits.
#[repr(C)]
struct Info {
    signal: [libc::c_int; 4],
    address: usize,
    number: libc::c_int,
    architecture: libc::c_uint,
}

extern "C" fn refused(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a live `siginfo_t`, which is larger than `Info`; SIGSYS comes from seccomp alone.
    let number = unsafe { (*info.cast::<Info>()).number };
    // SAFETY: the kernel passes a live `ucontext_t` of the interrupted call, which is ours to change.
    unsafe { set_result(context.cast(), -libc::EPERM) };
    let at = usize::try_from(number).unwrap_or(NUMBERS);
    let Some(word) = LOGGED.get(at / 64) else { return };
    let bit = 1 << (at % 64);
    if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let mut line = Line::default();
    line.put(b"signalboxd: seccomp refused the system call ");
    line.number(at);
    line.put(b" with EPERM (this line comes once for each number); report it, or set system_calls = false in [privileges]\n");
    // SAFETY: the address and the length are those of a live buffer. Nothing can be done if standard error is closed.
    unsafe { libc::write(libc::STDERR_FILENO, line.octets.as_ptr().cast(), line.length) };
}

#[cfg(target_arch = "x86_64")]
unsafe fn set_result(context: *mut libc::ucontext_t, result: libc::c_int) {
    // SAFETY: the caller passes a live context.
    unsafe { (&mut (*context).uc_mcontext.gregs)[libc::REG_RAX as usize] = result.into() };
}

#[cfg(target_arch = "aarch64")]
unsafe fn set_result(context: *mut libc::ucontext_t, result: libc::c_int) {
    // SAFETY: the caller passes a live context.
    unsafe { (*context).uc_mcontext.regs[0] = i64::from(result).cast_unsigned() };
}

/// A line that is composed without allocation.
struct Line {
    octets: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { octets: [0; 256], length: 0 }
    }
}

impl Line {
    fn put(&mut self, text: &[u8]) {
        for (to, from) in self.octets.iter_mut().skip(self.length).zip(text) {
            *to = *from;
            self.length += 1;
        }
    }

    fn number(&mut self, number: usize) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.put(&[b'0' + (number % 10) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_number_and_an_end() {
        let mut line = Line::default();
        line.put(b"call ");
        line.number(4070);
        assert_eq!(&line.octets[..line.length], b"call 4070");
        line.put(&[b'x'; 300]);
        assert_eq!(line.length, 256);
    }
}
