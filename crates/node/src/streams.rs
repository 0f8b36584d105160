//! Streams: whose they are.

use std::collections::BTreeMap;

use signalbox_core::node::{Output, StreamId, StreamKind};

use crate::composition::Place;

/// Where the driver's number of an opened stream has the place of its protocol in the node. The bits below are the
/// protocol's own number: a protocol that opens a million streams a second does not need more of them in 2,000 years.
const SHIFT: u32 = 56;

/// Streams by protocol. Each protocol chooses odd numbers of its own for the streams that it opens; the driver gets the
/// node's, which name the protocol too. A stream that a peer opened keeps the driver's even number, and belongs to the
/// protocol that listens at its port.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    listeners: Vec<(StreamKind, u16, Place)>,
    /// Streams that peers opened and that are not closed: no more than the driver holds.
    accepted: BTreeMap<StreamId, Place>,
}

/// Whether the protocol chose the number.
const fn is_opened(stream: StreamId) -> bool {
    !stream.0.is_multiple_of(2)
}

impl Streams {
    /// Puts the driver's number into an output of a protocol, and notes where the protocol listens.
    #[inline]
    pub(crate) fn give<E>(&mut self, protocol: Place, output: &mut Output<'_, E>) {
        match output {
            Output::StreamListen { kind, port } => self.listen(protocol, *kind, *port),
            Output::StreamOpen { stream, .. }
            | Output::StreamWrite { stream, .. }
            | Output::StreamMessage { stream, .. }
            | Output::StreamRead { stream, .. } => Self::outside(protocol, stream),
            Output::StreamClose { stream, .. } => {
                self.accepted.remove(stream);
                Self::outside(protocol, stream);
            }
            Output::Transmit(_)
            | Output::RouteLookup { .. }
            | Output::MulticastLookup { .. }
            | Output::MulticastRelease { .. }
            | Output::Reserve { .. }
            | Output::Release { .. }
            | Output::OpenPinhole { .. }
            | Output::ClosePinhole { .. }
            | Output::FindFlow { .. }
            | Output::Event(_) => {}
        }
    }

    fn outside(protocol: Place, stream: &mut StreamId) {
        if is_opened(*stream) {
            debug_assert_eq!(stream.0 >> SHIFT, 0, "protocols count from 1");
            stream.0 |= (protocol.index() as u64) << SHIFT;
        }
    }

    fn listen(&mut self, protocol: Place, kind: StreamKind, port: u16) {
        if self.listener(kind, port).is_none() {
            self.listeners.push((kind, port, protocol));
        }
    }

    /// The protocol that listens at a port.
    pub(crate) fn listener(&self, kind: StreamKind, port: u16) -> Option<Place> {
        self.listeners.iter().find(|(k, p, _)| (*k, *p) == (kind, port)).map(|(.., protocol)| *protocol)
    }

    /// Whether a peer's stream can have this number: a driver chooses even numbers, and none twice.
    pub(crate) fn is_new(&self, stream: StreamId) -> bool {
        !is_opened(stream) && !self.accepted.contains_key(&stream)
    }

    /// A peer opened a stream to a port: whose it is; `None`: no protocol listens there.
    pub(crate) fn accept(&mut self, stream: StreamId, kind: StreamKind, port: u16) -> Option<Place> {
        let protocol = self.listener(kind, port)?;
        self.accepted.insert(stream, protocol);
        Some(protocol)
    }

    /// Whose the driver's stream is, and the protocol's own number of it.
    pub(crate) fn owner(&self, stream: StreamId) -> Option<(Place, StreamId)> {
        if is_opened(stream) {
            return Some((Place::of(stream.0 >> SHIFT)?, StreamId(stream.0 & ((1 << SHIFT) - 1))));
        }
        self.accepted.get(&stream).map(|protocol| (*protocol, stream))
    }

    /// A stream has ended.
    pub(crate) fn end(&mut self, stream: StreamId) {
        self.accepted.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::ProtocolId;

    type Given<'a> = Output<'a, ()>;

    fn opened(streams: &mut Streams, protocol: Place, own: u64) -> StreamId {
        let mut output = Given::StreamRead { stream: StreamId(own), on: true };
        streams.give(protocol, &mut output);
        let Output::StreamRead { stream, .. } = output else { panic!("another output") };
        stream
    }

    #[test]
    fn equal_numbers_of_two_protocols_are_distinguished() {
        let mut streams = Streams::default();
        let first = opened(&mut streams, ProtocolId::Gist.place(), 7);
        let second = opened(&mut streams, ProtocolId::Rsvp.place(), 7);
        assert_ne!(first, second);
        assert_eq!(streams.owner(first), Some((ProtocolId::Gist.place(), StreamId(7))));
        assert_eq!(streams.owner(second), Some((ProtocolId::Rsvp.place(), StreamId(7))));
        assert_eq!(streams.owner(StreamId(u64::MAX)), None, "no protocol has this place");
    }

    #[test]
    fn a_stream_of_a_peer_belongs_to_the_listener_until_it_is_closed() {
        let mut streams = Streams::default();
        let tcp = StreamKind::Tcp;
        streams.give(ProtocolId::Qos.place(), &mut Given::StreamListen { kind: tcp, port: 80 });
        streams.give(ProtocolId::Gist.place(), &mut Given::StreamListen { kind: tcp, port: 270 });
        assert_eq!(streams.accept(StreamId(2), tcp, 270), Some(ProtocolId::Gist.place()));
        assert_eq!(streams.accept(StreamId(4), tcp, 80), Some(ProtocolId::Qos.place()));
        assert_eq!(streams.accept(StreamId(6), StreamKind::Sctp, 80), None, "another transport");
        assert!(!streams.is_new(StreamId(4)) && !streams.is_new(StreamId(7)) && streams.is_new(StreamId(8)));
        assert_eq!(streams.owner(StreamId(2)), Some((ProtocolId::Gist.place(), StreamId(2))));
        assert_eq!(streams.owner(StreamId(4)), Some((ProtocolId::Qos.place(), StreamId(4))));
        streams.give(ProtocolId::Gist.place(), &mut Given::StreamClose { stream: StreamId(2), abort: true });
        streams.end(StreamId(4));
        assert_eq!((streams.owner(StreamId(2)), streams.owner(StreamId(4))), (None, None));
    }
}
