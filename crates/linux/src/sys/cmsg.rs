//! Control messages of a datagram, written and read as octets in the layout of `cmsg(3)`.

const ALIGN: usize = size_of::<usize>();
const HEADER: usize = size_of::<libc::cmsghdr>();

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGN)
}

/// Octets that a control message with `length` octets of data occupies.
pub(crate) const fn space(length: usize) -> usize {
    aligned(HEADER) + aligned(length)
}

/// Appends a control message to `buffer`.
pub(crate) fn push(buffer: &mut Vec<u8>, level: i32, kind: i32, data: &[u8]) {
    let start = buffer.len();
    buffer.extend_from_slice(&(aligned(HEADER) + data.len()).to_ne_bytes());
    buffer.extend_from_slice(&level.to_ne_bytes());
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.resize(start + aligned(HEADER), 0);
    buffer.extend_from_slice(data);
    buffer.resize(start + space(data.len()), 0);
}

/// An iterator over control messages, up to the first malformed one.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    /// Level, kind, data.
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.0.split_first_chunk::<{ size_of::<usize>() }>()?;
        let length = usize::from_ne_bytes(*length);
        let (level, rest) = rest.split_first_chunk::<4>()?;
        let (kind, _) = rest.split_first_chunk::<4>()?;
        let data = self.0.get(aligned(HEADER)..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or(&[]);
        Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), data))
    }
}

/// The `int` in the data of a control message. Some options have one octet only.
pub(crate) fn int(data: &[u8]) -> Option<i32> {
    match data {
        [octet] => Some(i32::from(*octet)),
        _ => data.first_chunk::<4>().map(|v| i32::from_ne_bytes(*v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = Vec::new();
        push(&mut buffer, 1, 2, &[9]);
        push(&mut buffer, 3, 4, &7_i32.to_ne_bytes());
        assert_eq!(buffer.len(), space(1) + space(4));
        let read: Vec<_> = Messages(&buffer).map(|(l, k, d)| (l, k, int(d).unwrap())).collect();
        assert_eq!(read, [(1, 2, 9), (3, 4, 7)]);
    }

    #[test]
    fn a_broken_message_ends_the_list() {
        let mut buffer = Vec::new();
        push(&mut buffer, 1, 2, &[9; 30]);
        for cut in 0..46 {
            assert_eq!(Messages(&buffer[..cut]).count(), 0, "{cut}");
        }
        buffer[0] = 3;
        assert_eq!(Messages(&buffer).count(), 0);
    }
}
