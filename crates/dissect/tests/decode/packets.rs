//! UDP datagrams in packets, built by an independent library where it can.

use etherparse::{Ipv4Options, PacketBuilder};
use signalbox_core::packet::{router_alert_v4, router_alert_v6};
use signalbox_dissect::capture::{LinkType, Packet, UdpPacket, parse_ethernet, parse_ip};

use crate::support::octets;

const V4: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [198, 51, 100, 7]);

pub(crate) fn tcp_v4(port: u16, sequence: u32, syn: bool, payload: &[u8]) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(V4.0, V4.1, 63).tcp(5353, port, sequence, 1000);
    let builder = if syn { builder.syn() } else { builder.ack(1) };
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

pub(crate) fn ethernet_v4(payload: &[u8], port: u16) -> Vec<u8> {
    let options: Ipv4Options = router_alert_v4(0x0102).into();
    let ip = etherparse::Ipv4Header {
        source: V4.0,
        destination: V4.1,
        time_to_live: 63,
        options,
        ..etherparse::Ipv4Header::default()
    };
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()))
        .udp(5353, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// An IPv6 packet; `headers` stand between the IPv6 header (whose next header is `next`) and UDP.
fn v6(next: u8, headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let udp = u16::try_from(8 + payload.len()).unwrap();
    let length = u16::try_from(headers.len() + 8 + payload.len()).unwrap();
    let mut packet = octets("60000000");
    packet.extend(length.to_be_bytes());
    packet.extend([next, 61]);
    packet.extend(octets("20010db8000000000000000000000001 20010db8000000000000000000000002"));
    packet.extend(headers);
    packet.extend(octets("14e9 010e"));
    packet.extend(udp.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

fn check_v4(udp: UdpPacket<'_>) {
    assert_eq!(
        (udp.src.to_string(), udp.dst.to_string()),
        ("192.0.2.1:5353".into(), "198.51.100.7:270".into())
    );
    assert_eq!((udp.ttl, udp.router_alert(), udp.payload), (63, Some(0x0102), &b"hello"[..]));
}

#[test]
fn ethernet_and_vlan() {
    let frame = ethernet_v4(b"hello", 270);
    check_v4(parse_ethernet(&frame).unwrap());
    let mut padded = frame.clone();
    padded.extend([0; 9]);
    check_v4(parse_ethernet(&padded).unwrap());
    let mut tagged = frame[..12].to_vec();
    tagged.extend(octets("88a8 0001 8100 0002"));
    tagged.extend(&frame[12..]);
    check_v4(parse_ethernet(&tagged).unwrap());
    assert_eq!(parse_ethernet(&octets("020202020202 040404040404 0806 0001")), None);
}

#[test]
fn every_link_type() {
    let ip = ethernet_v4(b"hello", 270).split_off(14);
    let cooked = [octets("0000 0001 0006 020202020202 0000 0800"), ip.clone()].concat();
    let cooked_2 = [octets("0800 0000 00000003 0001 00 06 0202020202020000"), ip.clone()].concat();
    for (link, octets) in [
        (LinkType::ETHERNET, ethernet_v4(b"hello", 270)),
        (LinkType::LINUX_SLL, cooked),
        (LinkType::LINUX_SLL2, cooked_2),
        (LinkType::RAW, ip.clone()),
        (LinkType::IPV4, ip),
    ] {
        let packet = Packet { number: 1, time: core::time::Duration::ZERO, link, original: 0, octets };
        check_v4(packet.udp().unwrap());
    }
}

#[test]
fn ipv6_with_hop_by_hop() {
    let alert = router_alert_v6(3);
    let packet = v6(0, &alert, b"hello");
    let udp = parse_ip(&packet).unwrap();
    assert_eq!(udp.dst.to_string(), "[2001:db8::2]:270");
    assert_eq!((udp.ttl, udp.router_alert(), udp.payload), (61, Some(3), &b"hello"[..]));
    assert_eq!(udp.options, alert);
    let destination_options = octets("1100010400000000");
    let mut headers = alert.to_vec();
    headers[0] = 60;
    headers.extend(destination_options);
    let packet = v6(0, &headers, b"hello");
    assert_eq!(parse_ip(&packet).unwrap().router_alert(), Some(3));
    let packet = v6(17, &[], b"hello");
    assert!(parse_ip(&packet).unwrap().options.is_empty());
    // An atomic fragment is whole, others are not.
    assert!(parse_ip(&v6(44, &octets("1100000000000001"), b"hello")).is_some());
    assert!(parse_ip(&v6(44, &octets("1100000100000001"), b"hello")).is_none());
    assert!(parse_ip(&v6(44, &octets("1100000800000001"), b"hello")).is_none());
    assert!(parse_ip(&v6(50, &[], b"hello")).is_none());
}

#[test]
fn what_is_no_whole_datagram() {
    let ip = ethernet_v4(b"hello", 270).split_off(14);
    for (at, value) in [(0, 0x56), (0, 0x44), (6, 0x20), (7, 1), (9, 6)] {
        let mut changed = ip.clone();
        changed[at] = value;
        assert_eq!(parse_ip(&changed), None, "{at}");
    }
    for length in 0..32 {
        assert_eq!(parse_ip(&ip[..length]), None);
    }
    // What the capture cut off is missing from the payload.
    assert_eq!(parse_ip(&ip[..34]).unwrap().payload, b"he");
}
