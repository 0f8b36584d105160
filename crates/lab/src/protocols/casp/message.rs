//! A reader of CASP messages (docs/wire/casp.md), written for the lab: what a check finds on the wire must not rest on the
//! code that is checked.

use std::net::IpAddr;
use std::time::Duration;

use crate::protocols::frame::Frame;
use crate::protocols::packet::{Ip, u16_at};

/// Port of messages over TCP and UDP, and port of scout.
pub(super) const MESSAGES: u16 = 50003;
pub(super) const SCOUT: u16 = 50004;

/// What carried a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Tcp,
    Udp,
}

/// A CASP message on a link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CaspMessage {
    /// Since 1970.
    pub(super) at: Duration,
    /// The link's first end sent it.
    pub(super) outgoing: bool,
    /// The number of its frame in the capture of the link.
    pub(super) frame: usize,
    pub(super) way: Way,
    /// The IP packet has a Router Alert.
    pub(super) alert: bool,
    pub(super) ip_destination: IpAddr,
    /// 1 signaling, 2 Scout Request, 3 Scout Response.
    pub(super) kind: u8,
    /// U, T, D, R from the least significant bit on.
    pub(super) flags: u8,
    pub(super) ttd: u8,
    pub(super) hops: u8,
    pub(super) session: [u8; 16],
    /// The classes of its objects.
    pub(super) classes: Vec<u8>,
    /// Source and destination of the data.
    pub(super) flow: Option<(IpAddr, IpAddr)>,
    pub(super) lifetime: Option<u32>,
    /// C-Type of CLIENT_DATA.
    pub(super) client: Option<u8>,
    /// The message of the QoS client in it has a LOCAL object.
    pub(super) local: Option<bool>,
    pub(super) error: Option<u32>,
    /// Addresses in RECORD_ROUTE, and in ROUTE.
    pub(super) recorded: Option<Vec<IpAddr>>,
    pub(super) route: Option<Vec<IpAddr>>,
}

/// Reads a message without Length Header; `None` if the octets are no message.
pub(super) fn read(frame: &Frame, ip: &Ip<'_>, way: Way, octets: &[u8]) -> Option<CaspMessage> {
    let [flags, ttd, hops, kind] = *octets.first_chunk::<4>()?;
    if !(1..=3).contains(&kind) {
        return None;
    }
    let mut message = CaspMessage {
        at: frame.at,
        outgoing: frame.outgoing,
        frame: frame.number,
        way,
        alert: ip.router_alert.is_some(),
        ip_destination: ip.dst,
        kind,
        flags: flags >> 4,
        ttd,
        hops,
        session: *octets.get(4..)?.first_chunk()?,
        classes: Vec::new(),
        flow: None,
        lifetime: None,
        client: None,
        local: None,
        error: None,
        recorded: None,
        route: None,
    };
    let mut rest = octets.get(20..)?;
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0)?);
        let (class, form, contents) = (*rest.get(2)?, *rest.get(3)?, rest.get(4..length)?);
        message.classes.push(class);
        match class {
            1 if matches!(form, 1 | 2) => message.flow = Some((v4(contents, 0)?, v4(contents, 4)?)),
            1 => message.flow = Some((v6(contents, 0)?, v6(contents, 16)?)),
            2 => message.lifetime = Some(u32_at(contents)?),
            3 => {
                message.client = Some(form);
                message.local = if form == 1 { has_local(contents) } else { None };
            }
            4 => message.error = Some(u32_at(contents)?),
            240 => message.recorded = Some(nodes_of(contents)?),
            241 => message.route = Some(nodes_of(contents)?),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    Some(message)
}

/// Whether a message of the QoS client (docs/wire/casp-qos.md) has a LOCAL object; `None` if the octets are no message.
fn has_local(octets: &[u8]) -> Option<bool> {
    // Two addresses with ports or an SPI, or with a flow label.
    let flow = match octets.get(6)? {
        1 | 2 => 16,
        3 => 36,
        _ => 40,
    };
    let mut rest = octets.get(8 + flow..)?;
    while !rest.is_empty() {
        if *rest.get(2)? == 9 {
            return Some(true);
        }
        let length = usize::from(u16_at(rest, 0)?).max(4);
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    Some(false)
}

/// The addresses of RECORD_ROUTE or ROUTE: IP version, IP protocol of the transport, port, address.
fn nodes_of(mut octets: &[u8]) -> Option<Vec<IpAddr>> {
    let mut all = Vec::new();
    while let Some(version) = octets.first() {
        let (address, length) = if *version == 4 { (v4(octets, 4)?, 8) } else { (v6(octets, 4)?, 20) };
        all.push(address);
        octets = octets.get(length..)?;
    }
    Some(all)
}

fn u32_at(octets: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*octets.first_chunk()?))
}

fn v4(octets: &[u8], at: usize) -> Option<IpAddr> {
    octets.get(at..)?.first_chunk::<4>().map(|octets| (*octets).into())
}

fn v6(octets: &[u8], at: usize) -> Option<IpAddr> {
    octets.get(at..)?.first_chunk::<16>().map(|octets| (*octets).into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// "First message on TCP" of docs/wire/casp.md.
    pub(crate) fn framed() -> Vec<u8> {
        let words: [u32; 19] = [
            0x0000_004c,
            0x1040_0001,
            0x0001_0203,
            0x0405_0607,
            0x0809_0a0b,
            0x0c0d_0e0f,
            0x0014_0101,
            0xc000_0201,
            0xc633_6407,
            0x138c_138e,
            0x1100_0000,
            0x0008_0201,
            0x0000_005a,
            0x000c_0601,
            0xb1b2_b3b4,
            0xb5b6_b7b8,
            0x0009_0301,
            0x6865_6c6c,
            0x6f00_0000,
        ];
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    /// An IPv4 packet in its frame.
    pub(crate) fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let total = u8::try_from(20 + payload.len()).unwrap();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, total, 0, 0, 0, 0, 63, protocol, 0, 0]);
        frame.extend([192, 0, 2, 1, 198, 51, 100, 2]);
        frame.extend(payload);
        frame
    }

    fn read_one(octets: &[u8]) -> Option<CaspMessage> {
        let packet = packet(17, &[]);
        let frame = Frame { number: 1, at: Duration::ZERO, outgoing: true, octets: Vec::new() };
        read(&frame, &Ip::read(&packet)?, Way::Udp, octets)
    }

    #[test]
    fn the_first_message_of_a_session_is_read() {
        let octets = framed();
        let one = read_one(&octets[4..]).unwrap();
        assert_eq!((one.kind, one.flags, one.ttd, one.hops), (1, 1, 64, 0));
        assert_eq!((one.lifetime, one.client, one.error), (Some(90), Some(1), None));
        assert_eq!(one.classes, [1, 2, 6, 3]);
        let ends = ["192.0.2.1", "198.51.100.7"].map(|text| text.parse().unwrap());
        assert_eq!(one.flow, Some((ends[0], ends[1])));
        assert_eq!(read_one(&[0; 20]), None, "type 0");
    }

    #[test]
    fn the_nodes_of_a_route_are_read() {
        // "Without state" of docs/wire/casp.md.
        let mut octets = framed()[4..].to_vec();
        octets.extend([0, 0x14, 240, 1, 4, 6, 0xc3, 0x53, 192, 0, 2, 1, 4, 6, 0xc3, 0x53, 192, 0, 2, 254]);
        let one = read_one(&octets).unwrap();
        let nodes = ["192.0.2.1", "192.0.2.254"].map(|text| text.parse().unwrap());
        assert_eq!((one.recorded, one.route), (Some(nodes.to_vec()), None));
        assert_eq!(nodes_of(&[4, 6, 0, 0, 1]), None);
        assert_eq!(nodes_of(&[]), Some(Vec::new()));
    }

    #[test]
    fn local_objects_of_the_qos_client_are_found() {
        // Release and LOCAL of docs/wire/casp-qos.md.
        let release: [u32; 8] = [
            0x0000_0020,
            0x4003_0100,
            0x0a00_0101,
            0x0a00_0202,
            0x1388_0258,
            0x1100_0000,
            0x0008_0a01,
            0x0000_0009,
        ];
        let mut octets: Vec<u8> = release.into_iter().flat_map(u32::to_be_bytes).collect();
        assert_eq!(has_local(&octets), Some(false));
        octets.extend([0, 9, 9, 1, 0, 1, 2, 5, 34, 0, 0, 0]);
        assert_eq!(has_local(&octets), Some(true));
        assert_eq!(has_local(&octets[..4]), None);
    }

    #[test]
    fn no_cut_or_changed_octet_makes_it_panic() {
        let octets = framed();
        for at in 4..octets.len() {
            read_one(&octets[4..at]);
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut changed = octets.clone();
                changed[at] = value;
                read_one(&changed[4..]);
            }
        }
    }
}
