//! NATFW NSLP messages.

use serde_json::json;
use signalbox_core::NslpId;
use signalbox_dissect::{Options, Protocol};

use crate::support::*;

/// A GIST Data message with this NATFW message in it, as a line. Most are those of `docs/wire/natfw.md`.
fn line(text: &str) -> String {
    in_gist_data(NslpId::NATFW, &octets(text))
}

const EXTERNAL: &str = "02800000 000c0001 0000012c 00120001 00000009 000f0001 00020001 00110001 0a0b0c0d \
    00130003 c0001811 4f060000 c0000200 000e0002 00004000 0a000001 00140001 02080000";
const RESPONSE: &str =
    "03000000 000c0001 0000003c 00120001 00000009 00100001 02010000 000d0002 afc84000 c000024f";
const REFUSED: &str = "03000000 00120001 00000009 00100001 07090013";
/// Vector 8 of `docs/wire/natfw.md`.
const PUBLISH: &str = "02000000 000c0001 0000012c 00120001 00000009 000f0001 00010000 00130003 c0000006 55f00000 00000000 \
    07d5000e c00055f0 c000024f a1b2c3d4 e5f60718 00780000 00000000 00000000 0000ffff c6336400 \
    00800007 20010db8 00000000 00000000 00000001";

#[test]
fn messages_as_text() {
    let text = |message: &str| {
        let (text, summary) = run(line(message).as_bytes(), TEXT);
        assert_eq!((summary.messages, summary.failed), (1, 0));
        text
    };
    let expected = "
    NATFW EXTERNAL P, MSN 9, lifetime 300 s, action deny, 1 further ports, nonce 0a0b0c0d
    from 192.0.2.0/24, receiver port 20230, protocol 17
    ICMP types [8, 0]
    external addresses of NATs [10.0.0.1]";
    assert!(text(EXTERNAL).contains(expected), "{}", text(EXTERNAL));
    let expected = "
    NATFW RESPONSE, MSN 9, lifetime 60 s
    2/0x01 Success: All successfully processed
    external address 192.0.2.79 port 45000";
    assert!(text(RESPONSE).contains(expected), "{}", text(RESPONSE));
    let expected = "7/0x09 Signaling session failure: Requested IP protocol not supported (NATFW_DTINFO)";
    assert!(text(REFUSED).contains(expected), "{}", text(REFUSED));
    let expected = "
    publication, opens at once, only address 192.0.2.79, only port 22000, lease key a1b2c3d4e5f60718
        from 198.51.100.0/24
        from 2001:db8::1/128 port 7";
    assert!(text(PUBLISH).contains(expected), "{}", text(PUBLISH));
    assert!(text("01000000").contains("no NATFW NSLP message"));
}

#[test]
fn messages_as_json() {
    let (lines, _) = json(line(EXTERNAL).as_bytes());
    let expected = json!({
        "kind": "EXTERNAL", "flags": ["P"], "lifetime_s": 300, "msn": 9, "action": "deny", "sub_ports": 1,
        "nonce": "0a0b0c0d", "icmp_types": [8, 0],
        "terminal": {
            "protocol": 17, "receiver_port": 20230, "sender_port": null, "spi": null, "sender": "192.0.2.0/24",
        },
        "bindings": { "port": null, "addresses": ["10.0.0.1"] },
    });
    assert!(lines[0].to_string().contains(&expected.to_string()), "{}", lines[0]);
    let (lines, _) = json(line(PUBLISH).as_bytes());
    let expected = json!({
        "opens": true, "exactly": true, "address": "192.0.2.79", "port": 22000, "key": "a1b2c3d4e5f60718",
        "filters": [
            { "senders": "198.51.100.0/24", "port": null },
            { "senders": "2001:db8::1/128", "port": 7 },
        ],
    });
    assert!(lines[0].to_string().contains(&expected.to_string()), "{}", lines[0]);
    let (lines, _) = json(line(REFUSED).as_bytes());
    let expected = json!({
        "class": 7, "class_name": "Signaling session failure", "code": 9,
        "name": "Requested IP protocol not supported", "object_type": 19,
    });
    assert!(lines[0].to_string().contains(&expected.to_string()), "{}", lines[0]);
    let (lines, _) = json(line("01000000").as_bytes());
    assert!(lines[0].to_string().contains("natfw_error"), "{}", lines[0]);
}

/// What GIST carries can be given without GIST.
#[test]
fn bare_messages() {
    let bare = |protocol, json, text: &str| run(text.as_bytes(), Options { protocol, json, reencode: false });
    let (text, summary) = bare(Protocol::Natfw, false, RESPONSE);
    assert_eq!((summary.messages, summary.failed), (1, 0));
    assert!(text.starts_with("line 1: NATFW RESPONSE, MSN 9, lifetime 60 s"), "{text}");
    let (text, _) = bare(Protocol::Natfw, true, RESPONSE);
    assert!(text.contains("\"natfw\":{"), "{text}");
    let (text, summary) = bare(Protocol::Natfw, false, "01000000");
    assert_eq!(summary.failed, 1, "{text}");
    let (text, summary) =
        run(RESPONSE.as_bytes(), Options { protocol: Protocol::Natfw, json: false, reencode: true });
    assert_eq!((text.trim(), summary.failed), (&*RESPONSE.replace(' ', ""), 0));
}
