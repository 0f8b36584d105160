//! What a node that ends leaves to the node that starts in its place.
//!
//! It consists of parts, one for each protocol, and a part is a list of entries. Only the protocol understands its entries.
//! It judges each of them like a message, since another version, or another configuration, may have written it.
//!
//! ```
//! use signalbox_core::handover::{Entries, parts, write_part};
//!
//! let mut entries = Entries::default();
//! assert!(entries.push(b"session 1") && entries.push(b"session 2"));
//! let mut octets = Vec::new();
//! write_part(&mut octets, "gist", &entries);
//!
//! let (name, mut read) = parts(&octets).next().unwrap();
//! assert_eq!((name, read.take()), ("gist", Some(&b"session 1"[..])));
//! assert_eq!(read.take(), Some(&b"session 2"[..]));
//! assert_eq!(read.take(), None);
//! ```

/// Most octets of a part. What does not fit is left out, and comes back with the refreshes of neighbors.
pub const LIMIT: usize = 32 << 20;

/// The entries of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    octets: Vec<u8>,
    /// Where the next entry begins.
    at: usize,
}

impl Entries {
    /// Appends an entry. False: it is too long, or the part is full.
    pub fn push(&mut self, entry: &[u8]) -> bool {
        let Ok(length) = u16::try_from(entry.len()) else { return false };
        if self.octets.len() + entry.len() + 2 > LIMIT {
            return false;
        }
        self.octets.extend_from_slice(&length.to_be_bytes());
        self.octets.extend_from_slice(entry);
        true
    }

    /// The next entry; `None` after the last one. An entry that is cut ends the list.
    pub fn take(&mut self) -> Option<&[u8]> {
        let next = self.octets.get(self.at..).and_then(|left| {
            let (length, left) = left.split_first_chunk::<2>()?;
            let length = usize::from(u16::from_be_bytes(*length));
            (length <= left.len()).then_some(self.at + 2..self.at + 2 + length)
        });
        match next {
            Some(range) => {
                self.at = range.end;
                self.octets.get(range)
            }
            None => {
                *self = Self::default();
                None
            }
        }
    }

    /// Whether all entries are taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at >= self.octets.len()
    }
}

/// Appends the part of a protocol. A part without entries is left out.
pub fn write_part(to: &mut Vec<u8>, name: &str, entries: &Entries) {
    let (Ok(name_length), Ok(length)) = (u8::try_from(name.len()), u32::try_from(entries.octets.len()))
    else {
        return;
    };
    if entries.octets.is_empty() {
        return;
    }
    to.push(name_length);
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(&entries.octets);
}

/// The parts, each with the name of its protocol. A part that is cut ends the list.
pub fn parts(octets: &[u8]) -> impl Iterator<Item = (&str, Entries)> {
    let mut left = octets;
    core::iter::from_fn(move || {
        let (name_length, rest) = left.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*name_length))?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| *length <= LIMIT)?;
        let (entries, rest) = rest.split_at_checked(length)?;
        left = rest;
        Some((core::str::from_utf8(name).ok()?, Entries { octets: entries.to_vec(), at: 0 }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[&[u8]]) -> Entries {
        let mut entries = Entries::default();
        assert!(list.iter().all(|entry| entries.push(entry)));
        entries
    }

    fn read(octets: &[u8]) -> Vec<(String, Vec<Vec<u8>>)> {
        parts(octets)
            .map(|(name, mut entries)| {
                let list = core::iter::from_fn(|| entries.take().map(<[u8]>::to_vec)).collect();
                assert!(entries.is_empty());
                (name.to_owned(), list)
            })
            .collect()
    }

    #[test]
    fn parts_come_back_as_they_were_written() {
        let mut octets = Vec::new();
        write_part(&mut octets, "gist", &entries(&[b"one", b"", b"three"]));
        write_part(&mut octets, "none", &Entries::default());
        write_part(&mut octets, "rsvp", &entries(&[&[7; 300]]));
        let expected = vec![
            ("gist".to_owned(), vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]),
            ("rsvp".to_owned(), vec![vec![7; 300]]),
        ];
        assert_eq!(read(&octets), expected);
    }

    /// A file that was cut, or that somebody changed, gives some entries or no entry, and never more octets than it has.
    #[test]
    fn damaged_octets_are_read_as_far_as_they_go() {
        let mut octets = Vec::new();
        write_part(&mut octets, "gist", &entries(&[b"one", b"two"]));
        for end in 0..octets.len() {
            assert!(read(&octets[..end]).is_empty(), "a part is complete or left out");
        }
        for at in 0..octets.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = octets.clone();
                changed[at] = value;
                let octets_read: usize = read(&changed).iter().flat_map(|(_, list)| list).map(Vec::len).sum();
                assert!(octets_read < octets.len());
            }
        }
    }

    #[test]
    fn a_part_has_a_limit() {
        let mut entries = Entries::default();
        let entry = [0; 0xffff];
        let count = (0..1000).take_while(|_| entries.push(&entry)).count();
        assert_eq!(count, LIMIT / (entry.len() + 2));
        assert!(!Entries::default().push(&[0; 0x1_0000]));
    }
}
