//! The cursor for decoding.

use core::fmt;

/// The octets end inside a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Offset of the field from the start of the outermost buffer, in octets.
    pub offset: usize,
    /// Octets that the field needs.
    pub needed: usize,
    /// Octets that were left.
    pub left: usize,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets needed at offset {}, {} left", self.needed, self.offset, self.left)
    }
}

impl core::error::Error for Short {}

/// A cursor over received octets. It counts its offset in the outermost buffer, so that offsets in errors are offsets in
/// the whole message.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `octets`, which is offset 0.
    #[must_use]
    #[inline]
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { rest: octets, offset: 0 }
    }

    /// A cursor at the start of `octets`, which are at `offset` in a larger buffer.
    #[must_use]
    #[inline]
    pub const fn at(octets: &'a [u8], offset: usize) -> Self {
        Self { rest: octets, offset }
    }

    /// Offset of the next octet in the outermost buffer.
    #[must_use]
    #[inline]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Number of octets left.
    #[must_use]
    #[inline]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether no octet is left.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All octets left, without consuming them.
    #[must_use]
    #[inline]
    pub const fn peek_rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Consumes and returns all octets left.
    #[inline]
    pub fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.offset += rest.len();
        self.rest = &[];
        rest
    }

    /// Consumes `n` octets.
    ///
    /// # Errors
    /// [`Short`] if fewer are left; nothing is consumed then.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let Some((head, tail)) = self.rest.split_at_checked(n) else {
            return Err(Short { offset: self.offset, needed: n, left: self.rest.len() });
        };
        self.rest = tail;
        self.offset += n;
        Ok(head)
    }

    /// Consumes `N` octets as an array.
    ///
    /// # Errors
    /// [`Short`] if fewer are left; nothing is consumed then.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(Short { offset: self.offset, needed: N, left: self.rest.len() });
        };
        self.rest = tail;
        self.offset += N;
        Ok(*head)
    }

    /// Consumes one octet.
    ///
    /// # Errors
    /// [`Short`] if none is left.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Short> {
        self.array::<1>().map(|[b]| b)
    }

    /// Consumes 16 bits in network order.
    ///
    /// # Errors
    /// [`Short`] if fewer than two octets are left.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    /// Consumes 32 bits in network order.
    ///
    /// # Errors
    /// [`Short`] if fewer than four octets are left.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    /// Consumes 64 bits in network order.
    ///
    /// # Errors
    /// [`Short`] if fewer than eight octets are left.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }

    /// A cursor over the next `n` octets, which this cursor consumes.
    ///
    /// # Errors
    /// [`Short`] if fewer are left; nothing is consumed then.
    #[inline]
    pub fn sub(&mut self, n: usize) -> Result<Reader<'a>, Short> {
        let offset = self.offset;
        self.take(n).map(|octets| Reader::at(octets, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_take_consumes_nothing() {
        let mut r = Reader::new(&[1, 2, 3]);
        assert_eq!(r.u8(), Ok(1));
        assert_eq!(r.u32(), Err(Short { offset: 1, needed: 4, left: 2 }));
        assert_eq!(r.u16(), Ok(0x0203));
        assert!(r.is_empty());
    }

    #[test]
    fn sub_keeps_outer_offsets() {
        let mut r = Reader::new(&[0, 0, 9, 8, 7]);
        r.take(2).unwrap();
        let mut s = r.sub(2).unwrap();
        assert_eq!(s.offset(), 2);
        assert_eq!(s.take_rest(), &[9, 8]);
        assert_eq!(s.u8(), Err(Short { offset: 4, needed: 1, left: 0 }));
        assert_eq!(r.u8(), Ok(7));
    }
}
