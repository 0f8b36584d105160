//! The writer for encoding: it appends octets and fills in length fields.

use core::fmt;

/// A length does not fit into its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthOverflow {
    /// The length, in the unit of the field.
    pub length: usize,
    /// The largest length that fits.
    pub max: usize,
}

impl fmt::Display for LengthOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "length {} does not fit a field that holds at most {}", self.length, self.max)
    }
}

impl core::error::Error for LengthOverflow {}

/// A 16-bit length field without its value; [`Writer::close_u16`] fills it in.
#[derive(Debug)]
#[must_use = "a length field that is not closed stays zero"]
pub struct LengthSlot {
    at: usize,
}

/// Appends octets to a buffer of the caller, which keeps its capacity from message to message.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> Writer<'b> {
    /// A writer that appends after the octets of `buf`.
    #[inline]
    pub const fn new(buf: &'b mut Vec<u8>) -> Self {
        let start = buf.len();
        Self { buf, start }
    }

    /// Number of octets that this writer has written.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.buf.len() - self.start
    }

    /// Whether this writer has written no octets.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends octets.
    #[inline]
    pub fn bytes(&mut self, octets: &[u8]) {
        self.buf.extend_from_slice(octets);
    }

    /// Appends one octet.
    #[inline]
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }

    /// Appends 16 bits in network order.
    #[inline]
    pub fn u16(&mut self, v: u16) {
        self.bytes(&v.to_be_bytes());
    }

    /// Appends 32 bits in network order.
    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.bytes(&v.to_be_bytes());
    }

    /// Appends 64 bits in network order.
    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.bytes(&v.to_be_bytes());
    }

    /// Appends zeros until the number of written octets is a multiple of `n`.
    #[inline]
    pub fn pad_to(&mut self, n: usize) {
        let missing = self.len().next_multiple_of(n) - self.len();
        self.buf.resize(self.buf.len() + missing, 0);
    }

    /// Appends a 16-bit field that [`Writer::close_u16`] fills in later.
    #[inline]
    pub fn open_u16(&mut self) -> LengthSlot {
        let at = self.buf.len();
        self.u16(0);
        LengthSlot { at }
    }

    /// Appends 16 bits in network order, and behind them a 16-bit field that [`Writer::close_u16`] fills in later.
    #[inline]
    pub fn open_u16_behind(&mut self, v: u16) -> LengthSlot {
        let at = self.buf.len() + 2;
        self.u32(u32::from(v) << 16);
        LengthSlot { at }
    }

    /// Octets written after the field of the slot.
    #[must_use]
    #[inline]
    pub const fn since(&self, slot: &LengthSlot) -> usize {
        self.buf.len() - slot.at - 2
    }

    /// Fills in the field: `length`, in the unit of the field and at most `max`, and `high_bits`.
    ///
    /// # Errors
    /// [`LengthOverflow`] if `length` exceeds `max`; the field stays zero, and the message must not be sent.
    #[inline]
    pub fn close_u16(
        &mut self,
        slot: LengthSlot,
        length: usize,
        max: u16,
        high_bits: u16,
    ) -> Result<(), LengthOverflow> {
        let overflow = LengthOverflow { length, max: usize::from(max) };
        let length = u16::try_from(length).ok().filter(|l| *l <= max).ok_or(overflow)?;
        if let Some(field) = self.buf.get_mut(slot.at..slot.at + 2) {
            field.copy_from_slice(&(length | high_bits).to_be_bytes());
        }
        Ok(())
    }

    /// Removes all octets that this writer wrote after its first `len` octets.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(self.start.saturating_add(len));
    }

    /// Removes all octets that this writer wrote, for a message that cannot be finished.
    #[inline]
    pub fn abandon(self) {
        self.buf.truncate(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_patched_and_overflow_is_an_error() {
        let mut buf = vec![0xff];
        let mut w = Writer::new(&mut buf);
        let slot = w.open_u16();
        w.u32(7);
        let words = w.since(&slot) / 4;
        w.close_u16(slot, words, 0xfff, 0).unwrap();
        assert_eq!(w.len(), 6);
        let slot = w.open_u16();
        assert_eq!(w.close_u16(slot, 0x1000, 0xfff, 0), Err(LengthOverflow { length: 0x1000, max: 0xfff }));
        w.abandon();
        assert_eq!(buf, [0xff]);
    }

    #[test]
    fn padding_counts_from_the_writers_start() {
        let mut buf = vec![1];
        let mut w = Writer::new(&mut buf);
        w.bytes(&[2, 3, 4, 5, 6]);
        w.pad_to(4);
        assert_eq!(buf, [1, 2, 3, 4, 5, 6, 0, 0, 0]);
    }
}
