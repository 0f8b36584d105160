//! The Length Header, by which a stream is split into messages (section 4.1 of the draft).

use crate::error::FramingError;

/// Octets of the Length Header.
pub const LENGTH_HEADER: usize = 4;
/// The shortest message with its Length Header that splits a stream.
const SHORTEST: u32 = 24;

/// The length of the first message of a stream, Length Header included, as soon as the octets contain the header.
///
/// # Errors
/// No message has this length: the stream cannot be split any more.
pub fn frame(octets: &[u8], max: u32) -> Result<Option<usize>, FramingError> {
    let Some(length) = octets.first_chunk::<LENGTH_HEADER>().copied().map(u32::from_be_bytes) else {
        return Ok(None);
    };
    if length < SHORTEST || !length.is_multiple_of(4) || length > max {
        return Err(FramingError { length, max });
    }
    Ok(usize::try_from(length).ok())
}

/// Appends a Length Header and the message that `message` writes. If it fails, nothing is appended.
///
/// # Errors
/// The error of `message`.
pub fn framed<E>(octets: &mut Vec<u8>, message: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    let start = octets.len();
    octets.extend_from_slice(&[0; LENGTH_HEADER]);
    if let Err(error) = message(octets) {
        octets.truncate(start);
        return Err(error);
    }
    let length = u32::try_from(octets.len() - start).unwrap_or(u32::MAX);
    if let Some(header) = octets.get_mut(start..start + LENGTH_HEADER) {
        header.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}
