//! The few bpf(2) commands that a packet classifier and its maps need.
//!
//! The crate uses no library: its program needs neither BTF nor a skeleton, and six commands suffice. The available
//! libraries are an order of magnitude longer than this crate.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_MAP_GET_NEXT_KEY: libc::c_int = 4;
const BPF_PROG_LOAD: libc::c_int = 5;
/// The commands on elements of maps. They need no capability (since Linux 6.0), and are what a confined process uses.
pub(crate) const ELEMENTS: [libc::c_int; 4] =
    [BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM, BPF_MAP_GET_NEXT_KEY];
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// Octets of one instruction.
pub(crate) const INSTRUCTION: usize = 8;
/// Number of times that loading is tried again.
const ATTEMPTS: u32 = 5;
/// Octets of the verifier's log that are kept.
const LOG: usize = 64 * 1024;

/// The kind of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
}

/// A map. Its memory is freed with the last reference, loaded programs included.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

/// `struct { … } map` of `union bpf_attr`, as far as it is used. The kernel reads zero for the fields that are left
/// out.
#[repr(C)]
struct CreateMap {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa: u32,
    name: [u8; 16],
}

#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
}

/// Calls bpf(2) with `attributes`, any one of the structures above.
///
/// # Safety
/// `T` must be laid out as the member of `union bpf_attr` that `command` reads, and each address in it must be
/// good for what the command does with it, for as long as the call takes.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the pointer and the size are those of a live structure; the caller answers for what is in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    super::check(libc::c_int::try_from(result).map_err(io::Error::other)?)
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel made this descriptor a moment ago, for us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name.iter_mut().take(15).zip(text.bytes()).for_each(|(to, from)| *to = from);
    name
}

fn address<T>(of: *const T) -> u64 {
    of.addr() as u64
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

impl Map {
    /// Creates a map.
    pub(crate) fn create(
        text: &str,
        kind: MapKind,
        key: usize,
        value: usize,
        entries: u32,
    ) -> io::Result<Self> {
        let size = |octets| u32::try_from(octets).map_err(io::Error::other);
        let mut attributes = CreateMap {
            kind: kind as u32,
            key: size(key)?,
            value: size(value)?,
            entries,
            flags: 0,
            inner: 0,
            numa: 0,
            name: name(text),
        };
        // SAFETY: laid out as the kernel reads it, without addresses.
        let fd = unsafe { bpf(BPF_MAP_CREATE, &mut attributes) }?;
        Ok(Self { fd: owned(fd), key, value })
    }

    /// Writes an element, whether or not it exists.
    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key || value.len() != self.value {
            return Err(wrong("an element of another size"));
        }
        let mut element = Element {
            map: self.number(),
            pad: 0,
            key: address(key.as_ptr()),
            value: address(value.as_ptr()),
            flags: 0,
        };
        // SAFETY: the kernel reads `key` and `value`, which have the sizes that the map was made with.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut element) }.map(drop)
    }

    /// Removes an element. A missing element is no error.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<()> {
        if key.len() != self.key {
            return Err(wrong("a key of another size"));
        }
        let mut element =
            Element { map: self.number(), pad: 0, key: address(key.as_ptr()), value: 0, flags: 0 };
        // SAFETY: the kernel reads `key`, which has the size that the map was made with.
        match unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut element) } {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Reads an element.
    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        if key.len() != self.key || value.len() != self.value {
            return Err(wrong("an element of another size"));
        }
        let mut element = Element {
            map: self.number(),
            pad: 0,
            key: address(key.as_ptr()),
            value: address(value.as_mut_ptr()),
            flags: 0,
        };
        // SAFETY: the kernel reads `key` and writes `value`, which have the sizes that the map was made with
        // (values of arrays are multiples of eight octets, so that nothing is rounded up).
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut element) }.map(drop)
    }

    /// Removes all elements of a map that has `most` at most.
    pub(crate) fn clear(&self, most: u32) -> io::Result<()> {
        let mut first = vec![0; self.key];
        for _ in 0..=most {
            // Without a key the kernel gives the first one.
            let mut element =
                Element { map: self.number(), pad: 0, key: 0, value: address(first.as_mut_ptr()), flags: 0 };
            // SAFETY: the kernel writes a key into `first`, which has the size that the map was made with.
            match unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &mut element) } {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
                result => result?,
            };
            self.delete(&first)?;
        }
        Ok(())
    }

    /// Another descriptor of the same map.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, key: self.key, value: self.value })
    }

    /// The descriptor by which instructions refer to the map.
    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn number(&self) -> u32 {
        self.raw().unsigned_abs()
    }
}

/// Loads a classifier. A refusal's error ends with the verifier's last line.
pub(crate) fn load_classifier(text: &str, code: &[u8], license: &[u8]) -> io::Result<OwnedFd> {
    if license.last() != Some(&0) {
        return Err(wrong("a licence that does not end"));
    }
    let mut attributes = LoadProgram {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        instructions: u32::try_from(code.len() / INSTRUCTION).map_err(io::Error::other)?,
        code: address(code.as_ptr()),
        license: address(license.as_ptr()),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
        name: name(text),
    };
    let mut attempts = 0;
    let error = loop {
        // SAFETY: `code` holds the number of whole instructions given, `license` ends with a zero octet.
        match unsafe { bpf(BPF_PROG_LOAD, &mut attributes) } {
            Ok(fd) => return Ok(owned(fd)),
            // A signal interrupts the verifier.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < ATTEMPTS => attempts += 1,
            Err(error) => break error,
        }
    };
    let mut log = vec![0_u8; LOG];
    (attributes.log_level, attributes.log_size) = (1, LOG as u32);
    attributes.log = address(log.as_mut_ptr());
    // SAFETY: as before; the kernel writes into `log`, at most the size given.
    if let Ok(fd) = unsafe { bpf(BPF_PROG_LOAD, &mut attributes) } {
        return Ok(owned(fd));
    }
    let said = String::from_utf8_lossy(&log);
    let said = said.trim_end_matches(['\0', '\n']).lines().rfind(|line| !line.starts_with("processed"));
    match said {
        Some(said) if !said.is_empty() => Err(io::Error::new(error.kind(), format!("{error}: {said}"))),
        _ => Err(error),
    }
}
