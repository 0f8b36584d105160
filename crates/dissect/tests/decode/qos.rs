//! QoS NSLP messages and their QSPECs.

use serde_json::json;
use signalbox_core::NslpId;
use signalbox_dissect::{Options, Protocol};
use signalbox_qos::wire::{GenericFlags, Info, InfoSpec, Message, MessageFlags, MessageType, Rsn, Source};
use signalbox_wire::{Writer, parse_hex};

use crate::support::*;

/// A GIST Data message with this QoS message in it, as a line.
fn line(message: &Message<'_>) -> String {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets)).unwrap();
    in_gist_data(NslpId::QOS, &octets)
}

const QSPEC: &str = "0000100e 80000008 c0010005 461c4000 44fa0000 7f800000 000000c8 000000c8 000e0001 09000000 \
    00010004 00030001 00000007 a12c0001 01020304";

fn reserve(qspec: &[u8]) -> String {
    line(&Message {
        flags: MessageFlags::REPLACE,
        generic: GenericFlags::BREAK,
        rsn: Some(Rsn { number: 7, epoch: 0x0102_0304 }),
        rii: Some(0xabcd),
        refresh_period: Some(30_000),
        qspec: Some(qspec),
        ..Message::new(MessageType::RESERVE)
    })
}

#[test]
fn a_reserve_as_text() {
    let (text, summary) = run(reserve(&parse_hex(QSPEC).unwrap()).as_bytes(), TEXT);
    assert_eq!((summary.messages, summary.failed), (1, 0));
    let expected = "
    QoS RESERVE REPLACE BREAK, RSN 7 of epoch 01020304, RII 0000abcd, refresh period 30000 ms
    Initiator QSPEC, type default, procedure sender-initiated, desired and available
    QoS Desired [E]: TMOD-1 rate=10000 bucket=2000 peak=inf min_policed=200 max_packet=200 [M E]; \
Y.1541 QoS Class 09000000 (value out of range)
    QoS Available: Path Latency latency_us=7; 300 octets=01020304 [M N]";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_reserve_as_json() {
    let (values, _) = json(reserve(&parse_hex(QSPEC).unwrap()).as_bytes());
    let object = values[0]["objects"].as_array().unwrap().iter().find(|o| o["type"] == 8).unwrap();
    let qos = &object["qos"];
    assert_eq!((&qos["kind"], &qos["flags"]), (&json!("RESERVE"), &json!(["REPLACE", "BREAK"])));
    assert_eq!(qos["rsn"], json!({ "number": 7, "epoch": 0x0102_0304 }));
    assert_eq!(qos["rii"], 0xabcd);
    assert_eq!(qos["info"], json!(null));
    let qspec = &qos["qspec"];
    assert_eq!((&qspec["local"], &qspec["procedure"]), (&json!(false), &json!(1)));
    let desired = &qspec["objects"][0];
    assert_eq!((&desired["object"], &desired["e"]), (&json!("QoS Desired"), &json!(true)));
    assert_eq!(
        desired["parameters"][0],
        json!({
            "parameter": "TMOD-1", "id": 1, "m": true, "e": true, "n": false,
            "octets": "461c400044fa00007f800000000000c8000000c8",
            "fields": { "rate": 10000.0, "bucket": 2000.0, "peak": "infinite", "min_policed": 200, "max_packet": 200 },
        })
    );
    assert_eq!(desired["parameters"][1]["fields"], json!({}));
    assert_eq!(qspec["objects"][1]["parameters"][1]["parameter"], json!(null));
    assert_eq!(qspec["faults"].as_array().unwrap().len(), 1);
}

#[test]
fn a_refusal() {
    let response = Message {
        rii: Some(1),
        rsn: Some(Rsn { number: 7, epoch: 1 }),
        info: Some(InfoSpec {
            source: Source::Address("192.0.2.7".parse().unwrap()),
            ..InfoSpec::from(Info::RESERVATION_FAILURE)
        }),
        ..Message::new(MessageType::RESPONSE)
    };
    let (text, _) = run(line(&response).as_bytes(), TEXT);
    assert!(text.contains("4/0x07 Transient Failure: Reservation failure at 192.0.2.7"), "{text}");
    let (values, _) = json(line(&response).as_bytes());
    let data = values[0]["objects"].as_array().unwrap().last().unwrap();
    assert_eq!(data["qos"]["info"]["source"], "192.0.2.7");
}

/// QSPECs without parts, and data that is no message, are shown as they are.
#[test]
fn damaged() {
    let (text, _) = run(reserve(&[0x10, 0, 0, 0]).as_bytes(), TEXT);
    assert!(text.contains("QSPEC: Version at octet 0: unknown version (value 1): 10000000"), "{text}");
    let (values, _) = json(reserve(&[0x10, 0, 0, 0]).as_bytes());
    let data = values[0]["objects"].as_array().unwrap().last().unwrap();
    assert_eq!(data["qos"]["qspec"]["octets"], "10000000");
    let (text, summary) = run(in_gist_data(NslpId::QOS, &[9, 9, 9, 9]).as_bytes(), TEXT);
    assert!(text.contains("no QoS NSLP message (Msg Type at offset 0"), "{text}");
    assert_eq!(summary.failed, 0, "GIST was understood");
    let (values, _) = json(in_gist_data(NslpId::QOS, &[9, 9, 9, 9]).as_bytes());
    assert!(values[0]["objects"].as_array().unwrap().last().unwrap()["qos_error"].is_string());
}

/// What GIST carries can be given without GIST.
#[test]
fn a_bare_qspec_and_a_bare_message() {
    let bare =
        |protocol, text: &str, reencode| run(text.as_bytes(), Options { protocol, json: false, reencode });
    let (text, summary) = bare(Protocol::Qspec, QSPEC, false);
    assert_eq!((summary.messages, summary.failed), (1, 0));
    assert!(text.starts_with("line 1: Initiator QSPEC, type default"), "{text}");
    let octets = parse_hex(QSPEC).unwrap();
    let message = Message {
        qspec: Some(&octets),
        rsn: Some(Rsn { number: 7, epoch: 1 }),
        ..Message::new(MessageType::RESERVE)
    };
    let mut composed = Vec::new();
    message.encode(&mut Writer::new(&mut composed)).unwrap();
    let line = signalbox_wire::hex(&composed);
    let (text, summary) = bare(Protocol::Qos, &line, false);
    assert_eq!((summary.messages, summary.failed), (1, 0));
    assert!(text.starts_with("line 1: QoS RESERVE, RSN 7 of epoch 00000001"), "{text}");
    assert_eq!(bare(Protocol::Qos, &line, true).0.trim(), line);
    assert_eq!(bare(Protocol::Qos, "00000000", false).1.failed, 1);
}
