//! The octets of a message.

/// The number at the start of each message. The interception asks for it.
pub(crate) const MAGIC: u32 = u32::from_be_bytes(*b"TRL1");

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From the sender to the destination: each node on the way notes the trail.
    Mark,
    /// From the destination to the sender.
    Answer,
}

/// A message: magic number, kind, count of nodes, number of the trail; 14 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// Nodes with the protocol that the mark has passed, its destination included.
    pub(crate) nodes: u8,
    /// The sender's number of the trail.
    pub(crate) trail: u64,
}

impl Message {
    /// Reads a payload; `None`: it is no message. Octets behind it are ignored.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (magic, rest) = payload.split_first_chunk()?;
        let ([kind, nodes], rest) = rest.split_first_chunk()?;
        let kind = match kind {
            0 => Kind::Mark,
            1 => Kind::Answer,
            _ => return None,
        };
        let trail = u64::from_be_bytes(*rest.first_chunk()?);
        (u32::from_be_bytes(*magic) == MAGIC).then_some(Self { kind, nodes: *nodes, trail })
    }

    /// Its octets.
    pub(crate) fn octets(self) -> Vec<u8> {
        let mut octets = MAGIC.to_be_bytes().to_vec();
        octets.extend([u8::from(self.kind == Kind::Answer), self.nodes]);
        octets.extend(self.trail.to_be_bytes());
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_composed_is_read_and_nothing_shorter() {
        let message = Message { kind: Kind::Answer, nodes: 3, trail: 0x0102_0304_0506_0708 };
        let octets = message.octets();
        assert_eq!(Message::parse(&octets), Some(message));
        assert!((0..octets.len()).all(|length| Message::parse(&octets[..length]).is_none()));
        let mut other = octets;
        other[4] = 2;
        assert_eq!(Message::parse(&other), None, "no such kind");
    }
}
