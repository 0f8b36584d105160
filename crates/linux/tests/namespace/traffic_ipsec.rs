//! Packets of IPsec at the classifier: their flows are told apart by the SPI (RFC 2207).

use std::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::{FlowFilter, Reservation, ReservationId};
use signalbox_linux::netns::Namespace;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::network::{Addresses, Network, families, until};
use crate::traffic::{config, ifindex, reservation};
use crate::traffic_flows::{close, enforcer};

const ESP: u8 = 50;
const AH: u8 = 51;
const FIRST: u32 = 0x1234_5678;
const SECOND: u32 = 0x1234_5679;
/// An SPI that no reservation has.
const OTHER: u32 = 0x8765_4321;

/// Sends packets of an IP protocol that consist of these words.
fn send(from: &Namespace, to: IpAddr, protocol: u8, words: &[u32], count: usize) {
    let (domain, protocol) = (Domain::for_address((to, 0).into()), Protocol::from(i32::from(protocol)));
    let socket = from.run(|| Socket::new(domain, Type::RAW, Some(protocol))).unwrap().unwrap();
    let payload: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    for _ in 0..count {
        socket.send_to(&payload, &SockAddr::from(std::net::SocketAddr::from((to, 0)))).unwrap();
    }
}

/// A reservation for the packets of a protocol with an SPI.
fn by_spi(ends: Addresses, protocol: u8, spi: u32) -> Reservation {
    let filter = FlowFilter {
        protocol: Some(protocol),
        spi: Some(spi),
        ..FlowFilter::between(Prefix::host(ends.a), Prefix::host(ends.b))
    };
    Reservation { filters: vec![filter], ..reservation(ifindex("rb"), 270) }
}

/// RSVPX-2207-4-06: the classifier finds the SPI in the first word of an ESP header and in the second one of an AH header, and
/// compares all of it. Other words with this value are no SPI, and packets with another SPI have no reservation.
#[test]
fn packets_of_ipsec_are_found_by_their_spi() {
    let net = Network::new("ipsec");
    let flows = [(ESP, FIRST), (ESP, SECOND), (AH, FIRST), (AH, SECOND)];
    for ends in families() {
        let mut enforcer = enforcer(&net, &config(), |enforcer| {
            for (number, (protocol, spi)) in (0..).zip(flows) {
                enforcer.reserve(ReservationId(number), &by_spi(ends, protocol, spi));
            }
        });
        // A sequence number, a word of data, and the first word of AH have the value of an SPI.
        for spi in [FIRST, SECOND] {
            send(&net.a, ends.b, ESP, &[OTHER, spi, spi, spi], 3);
            send(&net.a, ends.b, AH, &[spi, OTHER, spi, spi], 3);
        }
        let wanted = [1, 2, 4, 7];
        for ((protocol, spi), count) in flows.into_iter().zip(wanted) {
            // The first word of AH: next header UDP, four words of the header after the first two, reserved.
            let words = if protocol == ESP { [spi, 1, 0, 0] } else { [0x1104_0000, spi, 1, 0] };
            send(&net.a, ends.b, protocol, &words, count);
        }
        let mut counted = || {
            [0, 1, 2, 3].map(|number| {
                let found = enforcer.statistics(ReservationId(number)).unwrap().unwrap();
                assert_eq!(found.policed_packets, 0);
                usize::try_from(found.packets).unwrap()
            })
        };
        until("the packets are counted", || counted().iter().sum::<usize>() >= wanted.iter().sum::<usize>());
        assert_eq!(counted(), wanted, "IPv4 {}", ends.a.is_ipv4());
        close(&net, enforcer);
    }
}
