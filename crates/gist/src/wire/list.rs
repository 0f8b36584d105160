//! Lists inside objects: parsed in place from received octets, or a slice of entries to be composed.

use core::fmt;

use signalbox_wire::{LengthOverflow, Reader, Short, Writer};

use crate::error::EncodeError;

/// An entry of a [`List`].
pub trait Item<'a>: Copy + PartialEq + fmt::Debug {
    /// Reads one entry with its padding.
    ///
    /// # Errors
    /// [`Short`] if the octets end within it.
    fn read(r: &mut Reader<'a>) -> Result<Self, Short>;

    /// Appends one entry with its padding.
    ///
    /// # Errors
    /// [`EncodeError`] for values that the format forbids.
    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError>;
}

/// A list without copies: a slice of entries, or received octets that were checked.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Source<'a, T>);

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Given(&'a [T]),
    Received { octets: &'a [u8], count: u8 },
}

impl<'a, T: Item<'a>> List<'a, T> {
    /// No entries.
    pub const EMPTY: Self = Self::of(&[]);

    /// The entries of a slice.
    #[must_use]
    pub const fn of(items: &'a [T]) -> Self {
        Self(Source::Given(items))
    }

    /// `count` entries from received octets, consuming them from `r`.
    pub(crate) fn read(r: &mut Reader<'a>, count: u8) -> Result<Self, Short> {
        let octets = r.peek_rest();
        for _ in 0..count {
            T::read(r)?;
        }
        let used = octets.len() - r.left();
        Ok(Self(Source::Received { octets: octets.get(..used).unwrap_or_default(), count }))
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Given(items) => items.len(),
            Source::Received { count, .. } => count as usize,
        }
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries in order.
    #[must_use]
    pub fn iter(&self) -> ListIter<'a, T> {
        let (given, octets, left) = match self.0 {
            Source::Given(items) => (items, &[][..], 0),
            Source::Received { octets, count } => (&[][..], octets, count),
        };
        ListIter { given: given.iter(), octets: Reader::new(octets), left }
    }

    /// The number of entries for the 8-bit count of an object.
    pub(crate) fn count_u8(&self) -> Result<u8, EncodeError> {
        let max = usize::from(u8::MAX);
        Ok(u8::try_from(self.len()).map_err(|_| LengthOverflow { length: self.len(), max })?)
    }

    /// Appends all entries.
    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.iter().try_for_each(|item| item.write(w))
    }
}

impl<'a, T: Item<'a>> Default for List<'a, T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<'a, T: Item<'a>> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Item<'a>> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Item<'a>> IntoIterator for &List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The entries of a [`List`].
#[derive(Debug, Clone)]
pub struct ListIter<'a, T> {
    given: core::slice::Iter<'a, T>,
    octets: Reader<'a>,
    left: u8,
}

impl<'a, T: Item<'a>> Iterator for ListIter<'a, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        if let Some(item) = self.given.next() {
            return Some(*item);
        }
        self.left = self.left.checked_sub(1)?;
        T::read(&mut self.octets).ok()
    }
}

/// Zeros that are missing to whole words.
pub(crate) const fn padding(octets: usize) -> usize {
    octets.wrapping_neg() & 3
}

/// Appends `octets` and zeros up to the next word boundary.
pub(crate) fn write_padded(w: &mut Writer<'_>, octets: &[u8]) {
    w.bytes(octets);
    if padding(octets.len()) > 0 {
        w.bytes([0; 3].get(..padding(octets.len())).unwrap_or_default());
    }
}

/// Consumes `n` octets and the padding up to the next word boundary. The padding is ignored.
pub(crate) fn take_padded<'a>(r: &mut Reader<'a>, n: usize) -> Result<&'a [u8], Short> {
    let octets = r.take(n)?;
    r.take(padding(n))?;
    Ok(octets)
}
