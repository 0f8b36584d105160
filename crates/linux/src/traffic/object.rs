//! The compiled program in the repository: an ELF object, from which this module reads the instructions and the places
//! that refer to maps.

use std::os::fd::RawFd;

use crate::sys::bpf::INSTRUCTION;

/// The object, built by `make bpf` from `bpf/traffic.c`.
pub(super) const OBJECT: &[u8] = include_bytes!("../../bpf/traffic.o");

/// Octets of a section header, a symbol and a relocation.
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 16;
/// The value of `src_reg` of a 64-bit load whose number is a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;
/// A 64-bit load of a constant, two instructions long.
const LOAD_CONSTANT: u8 = 0x18;

/// An object file of 64-bit ELF, little endian.
#[derive(Clone, Copy)]
pub(super) struct Object<'a>(&'a [u8]);

#[derive(Clone, Copy)]
struct Section<'a> {
    name: &'a [u8],
    data: &'a [u8],
    link: usize,
}

impl<'a> Object<'a> {
    /// Wraps `octets` as an object; `None` if they do not begin as one does.
    pub(super) fn new(octets: &'a [u8]) -> Option<Self> {
        octets.starts_with(b"\x7fELF\x02\x01").then_some(Self(octets))
    }

    /// The content of the section `name`.
    pub(super) fn section(&self, name: &str) -> Option<&'a [u8]> {
        self.find(name).map(|section| section.data)
    }

    /// The instructions of the section `name`, with the descriptors of their maps inserted.
    pub(super) fn program(&self, name: &str, fd_of: impl Fn(&str) -> Option<RawFd>) -> Option<Vec<u8>> {
        let mut code = self.section(name)?.to_vec();
        if !code.len().is_multiple_of(INSTRUCTION) {
            return None;
        }
        for relocation in self.section(&format!(".rel{name}"))?.chunks_exact(RELOCATION) {
            let at = usize::try_from(u64_at(relocation, 0)?).ok()?;
            let symbol = usize::try_from(u64_at(relocation, 8)? >> 32).ok()?;
            let instruction = code.get_mut(at..)?.first_chunk_mut::<INSTRUCTION>()?;
            let [LOAD_CONSTANT, registers, ..] = instruction else { return None };
            *registers = (*registers & 0x0f) | PSEUDO_MAP_FD << 4;
            let fd = fd_of(self.symbol(symbol)?)?;
            instruction.get_mut(4..8)?.copy_from_slice(&fd.to_ne_bytes());
        }
        Some(code)
    }

    /// The data of the symbol `name`, `length` octets of the section `section`.
    #[cfg(test)]
    pub(super) fn data_of(&self, section: &str, name: &str, length: usize) -> Option<&'a [u8]> {
        let symbols = self.find(".symtab")?.data.len() / SYMBOL;
        let number = (0..symbols).find(|number| self.symbol(*number) == Some(name))?;
        let value = u64_at(self.find(".symtab")?.data, number * SYMBOL + 8)?;
        self.section(section)?.get(usize::try_from(value).ok()?..)?.get(..length)
    }

    fn symbol(&self, number: usize) -> Option<&'a str> {
        let table = self.find(".symtab")?;
        let name = u32_at(table.data, number.checked_mul(SYMBOL)?)?;
        let strings = self.section_at(table.link)?.0;
        std::str::from_utf8(c_string(strings, name)?).ok()
    }

    fn find(&self, name: &str) -> Option<Section<'a>> {
        let count = usize::from(u16_at(self.0, 0x3c)?);
        let (names, _) = self.section_at(usize::from(u16_at(self.0, 0x3e)?))?;
        (0..count)
            .filter_map(|number| {
                let (data, header) = self.section_at(number)?;
                let name = c_string(names, u32_at(header, 0)?)?;
                Some(Section { name, data, link: usize::try_from(u32_at(header, 40)?).ok()? })
            })
            .find(|section| section.name == name.as_bytes())
    }

    /// Data and header of a section.
    fn section_at(&self, number: usize) -> Option<(&'a [u8], &'a [u8])> {
        let headers = usize::try_from(u64_at(self.0, 0x28)?).ok()?;
        let at = headers.checked_add(number.checked_mul(SECTION)?)?;
        let header = self.0.get(at..)?.get(..SECTION)?;
        let offset = usize::try_from(u64_at(header, 24)?).ok()?;
        let size = usize::try_from(u64_at(header, 32)?).ok()?;
        Some((self.0.get(offset..)?.get(..size)?, header))
    }
}

fn c_string(strings: &[u8], at: u32) -> Option<&[u8]> {
    strings.get(usize::try_from(at).ok()?..)?.split(|octet| *octet == 0).next()
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|v| u16::from_le_bytes(*v))
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|v| u32::from_le_bytes(*v))
}

fn u64_at(octets: &[u8], at: usize) -> Option<u64> {
    octets.get(at..)?.first_chunk().map(|v| u64::from_le_bytes(*v))
}

#[cfg(test)]
mod tests {
    use ring::digest::{SHA256, digest};

    use super::*;

    /// The compiled object in the repository is that of the source in the repository.
    #[test]
    fn object_and_source_belong_together() {
        let sums = include_str!("../../bpf/traffic.sum");
        for (name, octets) in
            [("traffic.c", &include_bytes!("../../bpf/traffic.c")[..]), ("traffic.o", OBJECT)]
        {
            let sum: String =
                digest(&SHA256, octets).as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
            let line = format!("{sum}  {name}");
            assert!(sums.lines().any(|known| known == line), "{name} has changed: run `make bpf`");
        }
    }

    #[test]
    fn maps_are_put_in_and_others_refused() {
        let object = Object::new(OBJECT).unwrap();
        let code = object.program("classifier", |_| Some(0x1234_5678)).unwrap();
        let named = code.chunks_exact(8).filter(|i| i[0] == 0x18 && i[1] >> 4 == 1);
        assert!(named.clone().count() >= 4);
        assert!(named.clone().all(|i| i[4..] == 0x1234_5678_i32.to_ne_bytes()));
        assert_eq!(object.program("classifier", |name| (name != "flows").then_some(3)), None);
        assert_eq!(object.program("nothing", |_| Some(3)), None);
        assert!(Object::new(b"#!/bin/sh").is_none());
    }

    #[test]
    fn an_object_that_is_cut_or_broken_is_refused() {
        for cut in (0..OBJECT.len()).step_by(7) {
            if let Some(object) = Object::new(&OBJECT[..cut]) {
                assert_eq!(object.program("classifier", |_| Some(3)), None);
            }
        }
        for at in (6..OBJECT.len()).step_by(5) {
            let mut broken = OBJECT.to_vec();
            broken[at] ^= 0xff;
            let _ = Object::new(&broken).unwrap().program("classifier", |_| Some(3));
        }
    }
}
