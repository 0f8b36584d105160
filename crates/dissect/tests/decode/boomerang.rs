//! Boomerang: messages as lines and in captures.

use serde_json::Value;
use signalbox_dissect::{Options, Protocol, decode};

const REFUSED: &str = "0000600a 12340001 47114711 00000001 10120001 14010000 00000000 00000000 c0000201 c6336402 \
    138c138c 11b80000 00000000 00000000 00000000 00ffffff 0000bb80 0000fa00";

fn boomerang(input: &[u8], json: bool, reencode: bool) -> (String, u64) {
    let mut out = Vec::new();
    let options = Options { protocol: Protocol::Boomerang, json, reencode };
    let summary = decode(input, &mut out, &options).unwrap();
    (String::from_utf8(out).unwrap(), summary.failed)
}

#[test]
fn a_refused_reply_as_text_and_json() {
    let (text, failed) = boomerang(REFUSED.as_bytes(), false, false);
    assert_eq!(failed, 0);
    assert!(
        text.contains("Boomerang reply, transaction 0x1, IPv4, QOSFMT_BITRATE, refresh 20 s, KEY 0, refused")
    );
    assert!(
        text.contains("flow: 192.0.2.1 port 5004 > 198.51.100.2 port 5004, protocol 17, tos 0xb8"),
        "{text}"
    );
    let (line, _) = boomerang(REFUSED.as_bytes(), true, false);
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["boomerang"]["qos"]["forward_bits_per_s"], 48_000);
    assert_eq!((&value["ok"], &value["boomerang"]["flags"][0]), (&true.into(), &"NACK".into()));
}

#[test]
fn a_message_is_encoded_as_it_was_read() {
    let (text, failed) = boomerang(REFUSED.as_bytes(), false, true);
    assert_eq!((text.trim(), failed), (REFUSED.replace(' ', "").as_str(), 0));
    let (text, failed) = boomerang(b"0000600a 12340001 47114711", false, false);
    assert_eq!(failed, 1);
    assert!(text.contains("not understood: Boomerang: transaction id"), "{text}");
}

#[test]
fn echos_with_the_magic_number_are_found_in_captures() {
    let message = signalbox_wire::parse_hex(&REFUSED.replace(' ', "")).unwrap();
    let mut ping = message.clone();
    ping[8] = 0;
    let mut file =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0].to_vec();
    for message in [message, ping] {
        let total = u16::try_from(20 + message.len()).unwrap();
        let [t1, t0] = total.to_be_bytes();
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&u32::from(total).to_le_bytes());
        file.extend_from_slice(&u32::from(total).to_le_bytes());
        file.extend([0x45, 0, t1, t0, 0, 0, 0, 0, 63, 1, 0, 0, 198, 51, 100, 2, 192, 0, 2, 1]);
        file.extend(message);
    }
    let (text, failed) = boomerang(&file, false, false);
    assert_eq!((text.matches("Boomerang reply").count(), failed), (1, 0), "{text}");
}
