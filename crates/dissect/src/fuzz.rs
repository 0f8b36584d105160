//! Bodies of the fuzz targets: no input makes the dissector panic.

use std::io;

use crate::capture::{Packets, parse_ethernet, parse_ip};
use crate::decode::{Options, Protocol, decode};

/// Reads any octets as a pcap file, an Ethernet frame and an IP packet.
pub fn capture(data: &[u8]) {
    let _ = (parse_ethernet(data), parse_ip(data));
    if let Ok(packets) = Packets::open(data) {
        for packet in packets.flatten() {
            let _ = packet.udp().map(|udp| udp.router_alert());
            let _ = packet.ip().map(|ip| ip.router_alert());
        }
    }
}

/// Decodes any octets as the input of the command, in every format of the output.
pub fn decode_any(data: &[u8]) {
    for protocol in [Protocol::Gist, Protocol::Rsvp, Protocol::Boomerang, Protocol::Casp, Protocol::Pcp] {
        decode_as(data, protocol);
    }
    for protocol in [Protocol::Natfw, Protocol::Qos, Protocol::Qspec] {
        for json in [false, true] {
            let options = Options { protocol, json, reencode: false };
            assert!(decode(data, &mut io::sink(), &options).is_ok(), "memory cannot fail");
        }
    }
}

fn decode_as(data: &[u8], protocol: Protocol) {
    let mut failed = None;
    for (json, reencode) in [(false, false), (true, false), (false, true), (true, true)] {
        match decode(data, &mut io::sink(), &Options { protocol, json, reencode }) {
            Ok(summary) => {
                assert!(failed.is_none_or(|f| f == summary), "all ways of printing judge alike");
                failed = Some(summary);
            }
            Err(error) => panic!("memory cannot fail: {error}"),
        }
    }
}
