//! Octets as hexadecimal text.

use core::fmt::{self, Write as _};

/// The octets in lower-case hexadecimal, two digits for each octet.
#[must_use]
pub fn hex(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len() * 2);
    for octet in octets {
        // Writing to a String cannot fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

/// The reason why a text is not hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HexError {
    /// A character is not a hexadecimal digit; its position in characters.
    NotADigit(char, usize),
    /// The number of digits is odd.
    Odd,
}

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADigit(c, at) => write!(f, "{c:?} at column {} is not a hexadecimal digit", at + 1),
            Self::Odd => f.write_str("an odd number of hexadecimal digits"),
        }
    }
}

impl core::error::Error for HexError {}

/// Parses hexadecimal digits of either case; white space and colons between them are skipped.
///
/// # Errors
/// [`HexError`]: a character is wrong, or a digit is missing.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, HexError> {
    let mut octets = Vec::with_capacity(text.len() / 2);
    let mut high: Option<u8> = None;
    for (at, c) in text.chars().enumerate() {
        if c.is_whitespace() || c == ':' {
            continue;
        }
        let digit = c.to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(HexError::NotADigit(c, at))?;
        match high.take() {
            None => high = Some(digit),
            Some(h) => octets.push(h << 4 | digit),
        }
    }
    if high.is_some() { Err(HexError::Odd) } else { Ok(octets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_there_and_back() {
        assert_eq!(parse_hex("4e:04 BDa5").as_deref(), Ok(&[0x4e, 0x04, 0xbd, 0xa5][..]));
        assert_eq!(hex(&[0x4e, 0x04]), "4e04");
        assert_eq!(parse_hex("4"), Err(HexError::Odd));
        assert_eq!(parse_hex("4g"), Err(HexError::NotADigit('g', 1)));
    }
}
