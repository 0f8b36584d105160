//! CASP: messages as lines and in captures.

use serde_json::Value;
use signalbox_dissect::{Options, Protocol, decode};

use crate::packets::tcp_v4;
use crate::support::pcap;

const FIRST: &str = "0000004c 10400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201 c6336407 138c138e \
    11000000 00080201 0000005a 000c0601 b1b2b3b4 b5b6b7b8 00090301 68656c6c 6f000000";
const REQUEST: &str = "00000002 00000000 00000000 00000000 00000000 000c0501 a1a2a3a4 a5a6a7a8";
const ERROR: &str = "90400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201 c6336407 138c138e 11000000 \
    00080401 00000001";

const ROUTED: &str = "0000004c 90400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201 c6336407 138c138e \
    11000000 00090301 68656c6c 6f000000 0014f101 0406c353 c0000201 0406c353 c00002fe";

fn casp(input: &[u8], json: bool, reencode: bool) -> (String, u64) {
    let mut out = Vec::new();
    let options = Options { protocol: Protocol::Casp, json, reencode };
    let summary = decode(input, &mut out, &options).unwrap();
    (String::from_utf8(out).unwrap(), summary.failed)
}

#[test]
fn messages_as_text_and_json() {
    let (text, failed) = casp(FIRST.as_bytes(), false, false);
    assert_eq!(failed, 0);
    for part in [
        "CASP Signaling, session 000102030405060708090a0b0c0d0e0f, TTD 64, hop count 0, unsecure",
        "FLOW_ID: 192.0.2.1 port 5004 > 198.51.100.7 port 5006 proto 17 (IPv4 with ports)",
        "CASP_TIMEOUT: 90 s",
        "SCOUT_COOKIE_R: b1b2b3b4b5b6b7b8",
        "CLIENT_DATA: QoS, 5 octets: 68656c6c6f",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (line, _) = casp(ERROR.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["casp"]["error"]["name"], "COOKIE_ERROR");
    assert_eq!(
        (&value["casp"]["flags"][0], &value["casp"]["length_header"]),
        (&"reverse".into(), &false.into())
    );
    assert_eq!(value["casp"]["flow"]["destination_port"], 5006);
    let (line, _) = casp(REQUEST.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["casp"]["scout_cookie_i"], "a1a2a3a4a5a6a7a8");
}

#[test]
fn messages_of_clients_are_read() {
    let release = "00000020 40030100 0a000101 0a000202 13880258 11000000 00080a01 00000009";
    let ping = "01000000 00000000 00000007";
    let firewall = "00030006 001d0003 01020304 05060708 00130002 00040000";
    let flow = "00140101 c0000201 c6336407 138c138e 11000000";
    let lines = format!(
        "10400001 00010203 04050607 08090a0b 0c0d0e0f {flow} 00240301 {release}\n\
         10400001 00010203 04050607 08090a0b 0c0d0e0f {flow} 001003fe {ping}\n\
         10400001 00010203 04050607 08090a0b 0c0d0e0f {flow} 001c0302 {firewall}\n"
    );
    let (text, failed) = casp(lines.as_bytes(), true, false);
    assert_eq!(failed, 0, "{text}");
    let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let message = |at: usize| &values[at]["casp"]["client"]["message"];
    assert_eq!((&message(0)["type"], &message(0)["sequence"]), (&"Release".into(), &9.into()));
    assert_eq!((&message(1)["type"], &message(1)["token"]), (&"request".into(), &7.into()));
    assert_eq!(message(2)["objects"][0]["value"], "0102030405060708");
    assert_eq!(message(2)["objects"][1]["value"]["message"], "RESPONSE");
    let (text, _) = casp(lines.as_bytes(), false, false);
    assert!(text.contains(r#""type":"Release""#) && text.contains(r#""type":"request""#), "{text}");
}

/// The nodes of RECORD_ROUTE and ROUTE are named; what cannot be read is shown as octets.
#[test]
fn the_nodes_of_a_route_are_named() {
    let (text, failed) = casp(ROUTED.as_bytes(), false, false);
    assert_eq!(failed, 0);
    assert!(
        text.contains("ROUTE (extension): 192.0.2.1:50003 protocol 6, 192.0.2.254:50003 protocol 6"),
        "{text}"
    );
    let (line, _) = casp(ROUTED.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["casp"]["route"][1]["address"], "192.0.2.254");
    let recorded = ROUTED.replace("0014f101", "0014f001").replace("0406c353 c0000201", "0906c353 c0000201");
    let (line, _) = casp(recorded.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["casp"]["record_route"]["octets"], "0906c353c00002010406c353c00002fe");
    let (text, _) = casp(recorded.as_bytes(), false, false);
    assert!(text.contains("RECORD_ROUTE (extension): entries that cannot be read: 0906"), "{text}");
}

#[test]
fn a_message_is_encoded_as_it_was_read() {
    for message in [FIRST, REQUEST, ERROR, ROUTED] {
        let (text, failed) = casp(message.as_bytes(), false, true);
        assert_eq!((text.trim(), failed), (message.replace(' ', "").as_str(), 0));
    }
    let (text, failed) = casp(b"10400004 00010203", false, false);
    assert_eq!(failed, 1);
    assert!(text.contains("not understood: CASP: Common Header"), "{text}");
}

#[test]
fn datagrams_at_the_ports_are_found_in_captures() {
    let mut file =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0].to_vec();
    for (message, port) in [(REQUEST, 50004u16), (ERROR, 50003), (ERROR, 50009)] {
        let message = signalbox_wire::parse_hex(&message.replace(' ', "")).unwrap();
        let total = u16::try_from(28 + message.len()).unwrap();
        let [t1, t0] = total.to_be_bytes();
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&u32::from(total).to_le_bytes());
        file.extend_from_slice(&u32::from(total).to_le_bytes());
        file.extend([0x45, 0, t1, t0, 0, 0, 0, 0, 63, 17, 0, 0, 198, 51, 100, 2, 192, 0, 2, 1]);
        let [p1, p0] = port.to_be_bytes();
        let [l1, l0] = (total - 20).to_be_bytes();
        file.extend([p1, p0, p1, p0, l1, l0, 0, 0]);
        file.extend(message);
    }
    let (text, failed) = casp(&file, false, false);
    assert_eq!((text.matches("CASP ").count(), failed), (2, 0), "{text}");
}

/// CASP over TCP: whole messages whatever segments carried them; TLS and what is no message is passed over.
#[test]
fn messages_in_a_connection_are_decoded() {
    let message = signalbox_wire::parse_hex(&FIRST.replace(' ', "")).unwrap();
    let stream = [&message[..], &message, &message].concat();
    let at =
        |from: usize, to: usize| tcp_v4(50003, 1 + u32::try_from(from).unwrap(), false, &stream[from..to]);
    let syn = tcp_v4(50003, 0, true, &[]);
    let end = stream.len();
    for segments in [
        vec![syn.clone(), at(0, end)],
        vec![syn.clone(), at(0, 3), at(3, 100), at(100, end)],
        vec![syn.clone(), at(90, end), at(0, 90)],
        vec![at(0, 90), at(90, end)],
    ] {
        let (text, failed) = casp(&pcap(1, &segments), false, false);
        assert_eq!((text.matches("CASP Signaling").count(), failed), (3, 0), "{text}");
    }
    for octets in [&[22, 3, 1, 0, 100, 1, 0, 0][..], b"GET / HTTP/1.1"] {
        let segments = [syn.clone(), tcp_v4(50003, 1, false, octets)];
        assert_eq!(casp(&pcap(1, &segments), false, false).0, "");
    }
}
