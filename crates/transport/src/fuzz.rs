//! Bodies of the fuzz targets: properties that hold for every input. The tests run them with arbitrary octets.
//!
//! Every function panics if its property does not hold.

use std::net::{IpAddr, SocketAddr};

use core::time::Duration;

use signalbox_core::{IfIndex, Time};

use crate::identity;
use crate::sctp::{Arrival, Config, Delivery, Sctp};
use crate::stream::{Channel, Credentials, Limits, Revocation, TlsConfig, TlsSettings, Versions};

/// Certificates with any content are parsed or refused, and the identity of a parsed one can be printed. Input: DER.
pub fn certificate(data: &[u8]) {
    let Some(identity) = identity::of_certificate(data) else { return };
    assert!(!identity.to_string().chars().any(char::is_control));
    assert!(identity.dns_names().count() <= data.len());
}

/// A listener with one established association takes any packets with bounded state and bounded answers. Input: packets
/// without their common header. Before each packet stand an octet for its source (the low bit: the peer) and its length
/// in words. The function adds a correct header with checksum.
pub fn sctp_packets(data: &[u8]) {
    let (a, b): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let config = Config { port: Some(270), max_associations: 4, ..Config::default() };
    let arrival = |src, dst| Arrival { src, dst, ifindex: IfIndex(1) };
    let mut peer = Sctp::new(config.clone(), [1; 32]);
    let mut node = Sctp::new(config, [2; 32]);
    let mut now = Time::from_secs(5);
    let id = peer.connect(now, SocketAddr::new(a, 5000), SocketAddr::new(b, 270));
    let mut header = [0; 8];
    for _ in 0..4 {
        while let Some(packet) = peer.poll_transmit() {
            node.receive(now, arrival(a, b), &packet.octets, &|_| false);
            for (to, from) in header.iter_mut().zip(&packet.octets) {
                *to = *from;
            }
        }
        while let Some(packet) = node.poll_transmit() {
            peer.receive(now, arrival(b, a), &packet.octets, &|_| false);
        }
    }
    assert!(id.is_ok() && node.len() == 1);
    while let Some(event) = node.poll_event() {
        let _ = node.send(now, event.association, 0, vec![7; 3000], Delivery::default());
    }
    let mut rest = data;
    while let [from, words, after @ ..] = rest {
        let (body, after) = after.split_at(after.len().min(usize::from(*words) * 4));
        rest = after;
        let source = if from & 1 == 1 { a } else { IpAddr::from([198, 51, 100, *from]) };
        let octets = crate::sctp::sealed(&header, body);
        node.receive(now, arrival(source, b), &octets, &|address| address == a);
        now = now + Duration::from_millis(u64::from(from >> 1));
        if node.next_deadline().is_some_and(|due| due <= now) {
            node.handle_timer(now);
        }
        let mut answered = 0;
        while let Some(packet) = node.poll_transmit() {
            answered += packet.octets.len();
        }
        assert!(answered < 200_000, "{answered}");
        while node.poll_event().is_some() {}
        assert!(node.len() <= 4);
    }
}

/// The key of both ends: an Ed25519 key whose secret is 32 times the octet 7. It protects nothing.
const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH
-----END PRIVATE KEY-----
";
/// Its public half.
const PUBLIC_KEY: &[u8] = b"-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=
-----END PUBLIC KEY-----
";

/// Two ends of a TLS channel whose octets are changed, cut or replaced on the way deliver only what the other end sent,
/// and hold a bounded number of octets. Input: operations of three octets: the end (low bit), what happens to its octets
/// (next two bits: delivered, changed, cut, replaced), and two numbers for it.
pub fn tls_octets(data: &[u8]) {
    let settings = TlsSettings {
        credentials: Credentials::RawKeys { key: KEY, peers: PUBLIC_KEY },
        require_client: true,
        versions: Versions::Both,
        revocation: Revocation::default(),
        wall_clock_us: 1_800_000_000_000_000,
    };
    let Ok(config) = TlsConfig::new(&settings) else { panic!("the keys are valid") };
    let peer: IpAddr = [192, 0, 2, 1].into();
    let mut now = Time::from_secs(5);
    let limits = Limits::default();
    let ends = (Channel::client(&config, peer, limits, now), Channel::server(&config, limits, now));
    let (Ok(mut client), Ok(mut server)) = ends else { panic!("both ends start") };
    let mut flight = Vec::new();
    for [control, at, value] in data.as_chunks::<3>().0.iter().take(200) {
        let (from, to) =
            if control & 1 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
        let _ = from.send(b"forty-two");
        flight.clear();
        from.poll_transmit(&mut flight);
        assert!(flight.len() < 40_000, "{} octets in one flight", flight.len());
        match control >> 1 & 3 {
            0 => {}
            1 => {
                if let Some(octet) = flight.get_mut(usize::from(*at) * 4 + usize::from(control >> 6)) {
                    *octet ^= *value;
                }
            }
            2 => flight.truncate(usize::from(*at)),
            _ => flight.splice(0..0, [*at, 3, 3, 0, *value]).for_each(drop),
        }
        let _ = to.receive(now, &flight);
        assert!(
            to.received().chunks(9).all(|chunk| chunk == b"forty-two"),
            "octets that the peer did not send"
        );
        assert!(to.received().len() <= limits.receive);
        to.consume(to.received().len());
        while to.poll_event().is_some() {}
        now = now + Duration::from_millis(u64::from(control >> 3));
        to.handle_timer(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Chunks, mostly of known kinds and with correct lengths.
    fn chunk() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![8 => 0u8..15, 1 => Just(192), 1 => any::<u8>()];
        (kind, any::<u8>(), prop::collection::vec(any::<u8>(), 0..60), 0u8..20).prop_map(
            |(kind, flags, mut value, off)| {
                let length = value.len() + 4 - usize::from(off == 0);
                value.splice(0..0, [kind, flags & 7, 0, u8::try_from(length).unwrap_or(u8::MAX)]);
                value.resize(value.len().next_multiple_of(4), 0);
                value
            },
        )
    }

    proptest! {
        #[test]
        fn certificates(data in prop::collection::vec(any::<u8>(), 0..300)) {
            certificate(&data);
        }

        #[test]
        fn records(data in prop::collection::vec(any::<u8>(), 0..120)) {
            tls_octets(&data);
        }

        #[test]
        fn packets(packets in prop::collection::vec((any::<u8>(), prop::collection::vec(chunk(), 1..4)), 0..20)) {
            let mut data = Vec::new();
            for (from, chunks) in packets {
                let body = chunks.concat();
                data.extend([from | u8::from(from & 6 != 0), u8::try_from(body.len() / 4).unwrap()]);
                data.extend(body);
            }
            sctp_packets(&data);
        }

        #[test]
        fn noise(data in prop::collection::vec(any::<u8>(), 0..300)) {
            sctp_packets(&data);
        }
    }
}
