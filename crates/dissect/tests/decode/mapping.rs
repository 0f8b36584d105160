//! PCP and NAT-PMP.

use signalbox_dissect::{Options, Protocol, decode};

const MAP: &str = concat!(
    "02010000 00000e10 00000000 00000000 0000ffff c0000201",
    "0102030405060708090a0b0c 06000000 0050 1f90 00000000000000000000ffffcb007109",
    "02000000 03000014 007801bb 00000000000000000000ffffc6336400 80000003 61626300",
);

fn decoded(lines: &str, json: bool, reencode: bool) -> (String, u64) {
    let options = Options { protocol: Protocol::Pcp, json, reencode };
    let mut out = Vec::new();
    let summary = decode(lines.as_bytes(), &mut out, &options).unwrap();
    (String::from_utf8(out).unwrap(), summary.failed)
}

#[test]
fn a_map_request_as_text() {
    let (text, failed) = decoded(MAP, false, false);
    let expected = "line 1: PCP MAP request of 192.0.2.1, lifetime 3600 s\n  \
         protocol 6, internal port 80, external 203.0.113.9:8080, nonce 0102030405060708090a0b0c\n  \
         option: {\"option\":\"PREFER_FAILURE\"}\n  \
         option: {\"address\":\"198.51.100.0\",\"option\":\"FILTER\",\"port\":443,\"prefix\":24}\n  \
         option: {\"option\":\"DESCRIPTION\",\"text\":\"abc\"}\n\n";
    assert_eq!((text.as_str(), failed), (expected, 0));
}

#[test]
fn messages_as_json() {
    let lines = format!(
        "{MAP}\n02820003 00000708 00000009 {}\n0000\n00800000 00000102 cb007101\n00820004 00000102 00500000 00000000\n00000001 00000102",
        "00".repeat(12) + &"00".repeat(36) + &"00".repeat(20),
    );
    let (text, failed) = decoded(&lines, true, false);
    assert_eq!(failed, 0, "{text}");
    let values: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |at: usize, key: &str| values[at]["mapping"][key].clone();
    assert_eq!((of(0, "external"), of(0, "ip_protocol")), ("203.0.113.9:8080".into(), 6.into()));
    assert_eq!((of(1, "opcode"), of(1, "result_name")), ("PEER".into(), "MALFORMED_REQUEST".into()));
    assert_eq!((of(2, "protocol"), of(2, "message")), ("nat-pmp".into(), "request".into()));
    assert_eq!(of(3, "address"), "203.0.113.1");
    assert_eq!((of(4, "opcode"), of(4, "result")), ("map TCP".into(), 4.into()));
    assert_eq!(of(5, "opcode"), "unsupported version");
}

#[test]
fn what_is_encoded_again_is_the_same() {
    let (text, failed) = decoded(MAP, false, true);
    assert_eq!((text.trim(), failed), (MAP.replace(' ', "").as_str(), 0));
}

#[test]
fn what_is_not_understood() {
    let (text, failed) = decoded("09010000\n0005", false, false);
    assert_eq!(failed, 2);
    assert!(text.contains("PCP: version 9 at offset 0, known is 2"), "{text}");
    assert!(text.contains("PCP: opcode 5 at offset 1, known are 0, 1 and 2"), "{text}");
}
