//! Vectors and helpers that the tests share.

use serde_json::Value;
use signalbox_core::NslpId;
use signalbox_dissect::{Options, Protocol, Summary, decode};
use signalbox_gist::wire as gist;
use signalbox_wire::{Writer, hex, parse_hex};

/// A Query in Q-mode, as a UDP payload.
pub(crate) const QUERY: &str = "4e04bda5 011e001d7fc08040 00000005000048c0c0000201c63364072020110013881389 \
    00010004000102030405060708090a0b0c0d0e0f 0002000404404000000075300a000001c0000201 00050002 1394712394719235 \
    0003000302000000020201000101 0000 00040003010000000000753001000000 00080001deadbeef";

/// Ping Data over an association: bare, without NLI.
pub(crate) const DATA: &str = "011e00107fc00380 00000005000048c0c0000201c63364072020110013881389 \
    00010004000102030405060708090a0b0c0d0e0f 00080004 aaaaaaaabbbbbbbbccccccccdddddddd";

pub(crate) const JSON: Options = Options { protocol: Protocol::Gist, json: true, reencode: false };
pub(crate) const TEXT: Options = Options { protocol: Protocol::Gist, json: false, reencode: false };
pub(crate) const REENCODE: Options = Options { protocol: Protocol::Gist, json: false, reencode: true };

pub(crate) fn run(input: &[u8], options: Options) -> (String, Summary) {
    let mut out = Vec::new();
    let summary = decode(input, &mut out, &options).unwrap();
    (String::from_utf8(out).unwrap(), summary)
}

/// A GIST Data message of an application with these octets in it, as a line.
pub(crate) fn in_gist_data(nslp: NslpId, octets: &[u8]) -> String {
    let ping = parse_hex(DATA).unwrap();
    let ping = gist::Message::parse(&ping, gist::Encapsulation::Association).unwrap();
    let mut data = gist::Message::new(gist::MessageType::DATA, nslp, 3);
    (data.mri, data.session, data.nslp_data) = (ping.mri, ping.session, Some(octets));
    let mut out = Vec::new();
    data.encode(&mut Writer::new(&mut out)).unwrap();
    hex(&out)
}

/// The JSON lines that come out.
pub(crate) fn json(input: &[u8]) -> (Vec<Value>, Summary) {
    let (text, summary) = run(input, JSON);
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), summary)
}

pub(crate) fn octets(text: &str) -> Vec<u8> {
    parse_hex(text).unwrap()
}

/// A pcap file in little-endian order with microseconds: one packet a second.
pub(crate) fn pcap(link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link] {
        file.extend(u32::to_le_bytes(word));
    }
    for (second, packet) in (1_700_000_000_u32..).zip(packets) {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [second, 42, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}
