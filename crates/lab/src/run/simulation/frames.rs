//! Packets of the simulator as frames, so that the lab's own reader judges them as it judges captures.

use std::net::IpAddr;

use signalbox_sim::Packet;

const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;

/// Returns a packet as an Ethernet frame without addresses and checksums, which no check reads.
pub(super) fn frame(packet: &Packet) -> Vec<u8> {
    let mut payload = Vec::with_capacity(8 + packet.payload.len());
    if packet.protocol == UDP {
        let length = u16::try_from(8 + packet.payload.len()).unwrap_or(u16::MAX);
        payload.extend(packet.src.port().to_be_bytes());
        payload.extend(packet.dst.port().to_be_bytes());
        payload.extend(length.to_be_bytes());
        payload.extend([0, 0]);
    }
    payload.extend(&packet.payload);
    let mut frame = vec![0; 12];
    match (packet.src.ip(), packet.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut options = packet.options.clone();
            options.resize(options.len().next_multiple_of(4), 0);
            let header = 20 + options.len();
            let total = u16::try_from(header + payload.len()).unwrap_or(u16::MAX);
            frame.extend([0x08, 0x00]);
            frame.push(0x40 | u8::try_from(header / 4).unwrap_or(15));
            frame.push(packet.tos);
            frame.extend(total.to_be_bytes());
            frame.extend([0, 0, if packet.dont_fragment { 0x40 } else { 0 }, 0]);
            frame.extend([packet.ttl, packet.protocol, 0, 0]);
            frame.extend(src.octets());
            frame.extend(dst.octets());
            frame.extend(options);
        }
        (src, dst) => {
            let mut options = packet.options.clone();
            let next = match options.first_mut() {
                Some(next) => {
                    *next = packet.protocol;
                    HOP_BY_HOP
                }
                None => packet.protocol,
            };
            let length = u16::try_from(options.len() + payload.len()).unwrap_or(u16::MAX);
            frame.extend([0x86, 0xdd, 0x60 | packet.tos >> 4, packet.tos << 4, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([next, packet.ttl]);
            for address in [src, dst] {
                let IpAddr::V6(v6) = address else { continue };
                frame.extend(v6.octets());
            }
            frame.extend(options);
        }
    }
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use signalbox_core::packet::{router_alert_v4, router_alert_v6};

    use super::*;
    use crate::protocols::packet::{Datagram, Ip};

    #[test]
    fn the_lab_reads_what_the_simulator_carries() {
        for (ends, options) in [
            (["192.0.2.1:5000", "192.0.2.9:270"], router_alert_v4(3).to_vec()),
            (["[fd00::1]:5000", "[fd00::9]:270"], router_alert_v6(3).to_vec()),
        ] {
            let [src, dst] = ends.map(|end| end.parse().expect("an address"));
            for options in [options, Vec::new()] {
                let alert = (!options.is_empty()).then_some(3);
                let packet = Packet { ttl: 9, options, ..Packet::new(src, dst, b"signal".to_vec()) };
                let octets = frame(&packet);
                let ip = Ip::read(&octets).expect("an IP packet");
                assert_eq!((ip.src, ip.dst, ip.ttl, ip.router_alert), (src.ip(), dst.ip(), 9, alert));
                assert_eq!(ip.packet.len(), packet.size());
                let datagram = Datagram::read(ip).expect("UDP");
                assert_eq!((datagram.dst_port, datagram.payload), (270, &b"signal"[..]));
            }
        }
    }
}
