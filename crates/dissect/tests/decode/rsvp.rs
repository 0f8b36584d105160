//! RSVP: messages as lines and in captures.

use serde_json::Value;
use signalbox_dissect::{Options, Protocol, decode};

const PATH: &str = "1001 0000 3f00 0058 000c0101 0a00000a 11001388 000c0301 0a000101 00000002 00080501 00007530 \
    000c0b01 0a000001 00000fa0 00240c02 00000007 01000006 7f000005 47f42400 461c4000 7f800000 00000040 000005dc";

fn rsvp(input: &[u8], json: bool, reencode: bool) -> (String, u64) {
    let mut out = Vec::new();
    let summary = decode(input, &mut out, &Options { protocol: Protocol::Rsvp, json, reencode }).unwrap();
    (String::from_utf8(out).unwrap(), summary.failed)
}

/// A pcap of raw IP packets of protocol 46 with a Router Alert.
fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0].to_vec();
    for message in messages {
        let total = u16::try_from(24 + message.len()).unwrap();
        let [t1, t0] = total.to_be_bytes();
        let header = [0x46, 0xc0, t1, t0, 0, 0, 0, 0, 63, 46, 0, 0, 10, 0, 0, 1, 10, 0, 0, 10, 0x94, 4, 0, 0];
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&u32::from(total).to_le_bytes());
        file.extend_from_slice(&u32::from(total).to_le_bytes());
        file.extend_from_slice(&header);
        file.extend_from_slice(message);
    }
    file
}

fn octets(text: &str) -> Vec<u8> {
    signalbox_wire::parse_hex(&text.replace(' ', "")).unwrap()
}

#[test]
fn a_path_as_text_and_json() {
    let (text, failed) = rsvp(PATH.as_bytes(), false, false);
    assert_eq!(failed, 0);
    assert_eq!(
        text,
        "line 1: RSVP Path, TTL 63, flags 0x0, 88 octets, no checksum\n  SESSION: destination 10.0.0.10, protocol 17, \
         port 5000\n  RSVP_HOP: address 10.0.1.1, lih 2\n  TIME_VALUES: refresh ms 30000\n  SENDER_TEMPLATE: source \
         10.0.0.1, port 4000\n  SENDER_TSPEC: r 125000.0, b 10000.0, p infinite, m 64, M 1500\n\n"
    );
    let (json, _) = rsvp(PATH.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["line"], &value["ok"]), (&1.into(), &true.into()));
    let message = &value["rsvp"];
    assert_eq!((&message["type_name"], &message["send_ttl"]), (&"Path".into(), &63.into()));
    assert_eq!(message["objects"][0]["destination"], "10.0.0.10");
    assert_eq!(message["objects"][4]["object"], "SENDER_TSPEC");
    assert_eq!(message["objects"][4]["r"], 125_000.0);
}

/// A DREP of two nodes: the request, the route, the report of each node.
/// P16: messages of RSVP-TE (RFC 3209) that a node drops are listed, as its Paths are, which a node refuses.
#[test]
fn messages_of_tunnels_are_listed() {
    let session = "00100107 0a00000a 00000007 0a000001";
    let hop = "000c0301 0a000101 00000002";
    let sender = "000c0b07 0a000001 00000001";
    let error = "000c0601 0a000102 00180005";
    for (name, kind, objects) in [
        ("PathTear", 5, [session, hop, sender].join(" ")),
        ("PathErr", 3, [session, error, sender].join(" ")),
        ("ResvTear", 6, [session, hop, "00080801 00000012", "000c0a07 0a000001 00000001"].join(" ")),
    ] {
        let length = 8 + octets(&objects).len();
        let line = format!("10{kind:02x}0000 3f00{length:04x} {objects}");
        let (text, failed) = rsvp(line.as_bytes(), false, false);
        assert_eq!(failed, 0, "{text}");
        assert!(text.starts_with(&format!("line 1: RSVP {name}, TTL 63")), "{text}");
        assert!(text.contains("would be dropped: unknown object C-Type"), "{text}");
        assert!(text.contains("SESSION: octets 0a00000a000000070a000001"), "{text}");
        let (json, _) = rsvp(line.as_bytes(), true, false);
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            value["rsvp"]["objects"].as_array().unwrap().len(),
            objects.matches("000c").count() + 1 + usize::from(kind == 6)
        );
        assert!(value["rsvp"]["dropped"].as_str().unwrap().starts_with("unknown object C-Type"), "{value}");
        let (again, _) = rsvp(line.as_bytes(), false, true);
        assert_eq!(again.trim(), line.replace(' ', ""));
    }
}

#[test]
fn a_diagnosis_as_text_and_json() {
    const DREP: &str = "1009 0000 ff00 00b0 000c0101 0a00000a 11001388 000c0301 0a000101 00000002 \
        002c1e01 0a020001 deadbeef 05dc0010 0a000102 000c0b01 0a000001 00000fa0 000c0a01 0a000109 0000c350 \
        000c2101 09000c02 08010000 00101f01 00000001 0a000301 0a000201 \
        00302001 00018000 0a000101 0a000202 0a000001 03a3001e 00080801 0000000a 00080700 00000000 00080901 00000001 \
        00182001 00018000 00000000 00000000 00000000 00100000";
    let (text, failed) = rsvp(DREP.as_bytes(), false, false);
    assert_eq!(failed, 0, "{text}");
    for line in [
        "DIAGNOSTIC: max hops 10, hops 2, more fragments true, request deadbeef, path mtu 1500, offset 16, last hop \
         10.0.1.2, sender (port 4000, source 10.0.0.1), requester 10.0.1.9:50000",
        "DIAG_SELECT: objects FLOWSPEC SENDER_TSPEC/2 STYLE/1",
        "ROUTE: pointer 1, nodes 10.0.3.1 10.0.2.1",
        "DIAG_RESPONSE: arrival ntp 0001.8000, incoming 10.0.1.1, outgoing 10.0.2.2, previous hop 10.0.0.1, ip hops 3, \
         merged true, errors packet too big, k 3, refresh s 30, objects (object STYLE, style FF)",
        "DIAG_RESPONSE: arrival ntp 0001.8000, incoming unknown, outgoing unknown, previous hop unknown, ip hops 0, \
         merged false, errors no path state, k 0, refresh s 0, objects",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let (json, _) = rsvp(DREP.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&json).unwrap();
    let objects = &value["rsvp"]["objects"];
    assert_eq!(value["rsvp"]["type_name"], "DREP");
    assert_eq!(objects[2]["sender"]["source"], "10.0.0.1");
    assert_eq!(objects[5]["objects"][0]["style"], "FF");
    assert_eq!(objects[6]["previous_hop"], Value::Null);
    assert_eq!(objects[6]["errors"][0], "no path state");
}

#[test]
fn again_by_our_encoder() {
    let (again, failed) = rsvp(PATH.as_bytes(), false, true);
    let again = octets(again.trim());
    let mut unsummed = again.clone();
    unsummed[2..4].fill(0);
    assert_eq!((unsummed, failed), (octets(PATH), 0));
    assert_ne!(again[2..4], [0, 0]);
}

#[test]
fn captures_name_the_protocol() {
    let path = octets(PATH);
    let mut bundle = octets("110c 0000 ff00 0060");
    bundle.extend_from_slice(&path);
    let file = capture(&[path, bundle, octets("2000 0000 3f00 0008")]);
    let mut out = Vec::new();
    let gist = Options { protocol: Protocol::Gist, json: false, reencode: false };
    let summary = decode(&file[..], &mut out, &gist).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!((summary.messages, summary.failed), (3, 1), "{text}");
    let place = "0.000000, 10.0.0.1 > 10.0.0.10, TTL 63, Router Alert 0: ";
    assert!(text.starts_with(&format!("frame 1, {place}RSVP Path, ")), "{text}");
    assert!(text.contains(&format!("frame 2, {place}RSVP Bundle, TTL 255, flags 0x1, 96 octets")), "{text}");
    assert!(
        text.contains("\n  RSVP Path, TTL 63") && text.contains("\n    SESSION: destination 10.0.0.10"),
        "{text}"
    );
    assert!(text.contains(&format!("frame 3, {place}not understood: RSVP: bad version")), "{text}");
}

#[test]
fn every_kind_of_object() {
    let lines = "\
        1002 0000 ff00 0000 000c0101 0a00000a 11011388 000c0301 0a000101 00000002 00080501 00007530 00080f01 0a00000a \
        000c0701 0a000001 0a000002 00100e01 00080000 00080001 cafe0000 00080801 00000011 00300902 0000000a 02000009 \
        7f000005 47f42400 461c4000 47f42400 00000040 000005dc 82000002 48742400 000003e8 0008fa01 12345678
        1004 0000 ff00 0000 000c0101 0a00000a 11001388 000c0301 0a000101 00000002 000c0601 0a000102 01010002 \
        00080801 0000000a
        110f 0000 ff00 0000 000c1802 00abcdef 00000005 000c1701 01abcdef 00000006 00101902 00abcdef 00000005 0a000001
        1014 0000 0100 0000 000c1602 01020304 05060708
        101a 0000 ff00 0000 00240401 80000000 00000007 00000001 00000002 00000000 00000000 00000000 00000000 00144001 \
        00000000 00000007 01020304 05060708";
    let lines = lines.replace("        1", "\n1").replace("        ", "");
    let mut input = String::new();
    for line in lines.lines().map(|line| line.replace(' ', "")).filter(|line| !line.is_empty()) {
        let length = format!("{:04x}", line.len() / 2);
        input.push_str(&format!("{}{length}{}\n", &line[..12], &line[16..]));
    }
    let (text, failed) = rsvp(input.as_bytes(), false, false);
    assert_eq!(failed, 0, "{text}");
    for part in [
        "e police true",
        "RESV_CONFIRM: receiver 10.0.0.10",
        "SCOPE: senders 10.0.0.1 10.0.0.2",
        "POLICY_DATA: elements 1:cafe0000",
        "STYLE: style WF",
        "FLOWSPEC: service guaranteed, r 125000.0, b 10000.0, p 125000.0, m 64, M 1500, R 250000.0, S us 1000",
        "class 250: octets 12345678",
        "ERROR_SPEC: code 1, name Admission Control failure, value 2, meaning Requested bandwidth unavailable, node \
         10.0.1.2, flags InPlace",
        "MESSAGE_ID_NACK: id 5, epoch 11259375",
        "MESSAGE_ID: id 6, epoch 11259375, ack desired true",
        "MESSAGE_ID SRC_LIST: epoch 11259375, ids 5/10.0.0.1",
        "HELLO ACK: src instance 16909060, dst instance 84281096",
        "INTEGRITY: key 7, sequence 0000000100000002, handshake true, digest 0000",
        "CHALLENGE: key 7, cookie 0102030405060708",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(rsvp(input.as_bytes(), true, true).1, 0);
}
