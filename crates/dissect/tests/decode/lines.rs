//! Messages in hexadecimal, one a line.

use serde_json::json;
use signalbox_core::NslpId;
use signalbox_gist::wire::{Encapsulation, MAGIC, Message, MessageType};
use signalbox_ping::wire as ping;
use signalbox_wire::{Writer, hex};

use crate::support::*;

#[test]
fn a_query_as_text() {
    let (text, summary) = run(QUERY.as_bytes(), TEXT);
    assert_eq!((summary.messages, summary.failed), (1, 0));
    let expected = "\
line 1: Q-mode Query, NSLP Ping (32704), hops 30, flags C-R-, 124 octets
  Message-Routing-Information: path-coupled downstream, 192.0.2.1 port 5000 > 198.51.100.7 port 5001 proto 17
  Session-Identifier: 000102030405060708090a0b0c0d0e0f
  Network-Layer-Information: peer 0a000001, interface 192.0.2.1, IP-TTL 64, validity 30000 ms
  Query-Cookie: 1394712394719235
  Stack-Proposal: 2 profiles
    1: Forwards-TLS over Forwards-TCP
    2: Forwards-TCP
  Stack-Configuration-Data: hold time 30000 ms
    Forwards-TCP, all profiles
  NSLP-Data: 4 octets, no Ping message (";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_query_as_json() {
    let (values, summary) = json(QUERY.as_bytes());
    assert_eq!((summary.messages, summary.failed, values.len()), (1, 0, 1));
    let v = &values[0];
    assert_eq!(v["line"], 1);
    assert_eq!(v["ok"], true);
    assert_eq!(v["message"], "Query");
    assert_eq!(v["encapsulation"], "Q-mode");
    assert_eq!(v["header"]["nslpid"], 32704);
    assert_eq!(
        (&v["header"]["c"], &v["header"]["r"], &v["header"]["s"]),
        (&json!(true), &json!(true), &json!(false))
    );
    let names: Vec<_> =
        v["objects"].as_array().unwrap().iter().map(|o| o["type"].as_u64().unwrap()).collect();
    assert_eq!(names, [0, 1, 2, 5, 3, 4, 8]);
    assert_eq!(v["objects"][0]["dst_port"], 5001);
    assert_eq!(v["objects"][0]["dscp"], json!(null));
    assert_eq!(v["objects"][2]["interface"], "192.0.2.1");
    assert_eq!(v["objects"][4]["profiles"], json!([[2, 1], [1]]));
    assert_eq!(v["objects"][6]["data"], "deadbeef");
}

#[test]
fn blank_lines_and_comments() {
    let input = format!("# a comment\n\n   \n{QUERY}   # behind it\r\n{DATA}\n");
    let (values, summary) = json(input.as_bytes());
    assert_eq!((summary.messages, summary.failed), (2, 0));
    assert_eq!((&values[0]["line"], &values[1]["line"]), (&json!(4), &json!(5)));
    assert_eq!(values[1]["encapsulation"], "C-mode");
    assert_eq!(values[1]["magic"], false);
}

#[test]
fn what_is_no_hexadecimal() {
    let input = format!("{QUERY}\nzz\n4e04b\n{DATA}\n\u{fc}\n");
    let (values, summary) = json(input.as_bytes());
    assert_eq!((summary.messages, summary.failed), (2, 3));
    assert_eq!(
        values[1]["error"]["text"],
        "no message in hexadecimal: 'z' at column 1 is not a hexadecimal digit"
    );
    assert_eq!((&values[2]["line"], &values[2]["ok"]), (&json!(3), &json!(false)));
    let (text, _) = run(input.as_bytes(), TEXT);
    assert!(text.contains("line 3: not understood: no message in hexadecimal: an odd number"), "{text}");
}

#[test]
fn errors_show_object_offset_and_code() {
    let wrong = QUERY.replace("04404000", "04405000");
    let input = format!("{wrong}\n{DATA}");
    let (values, summary) = json(input.as_bytes());
    assert_eq!((summary.messages, summary.failed), (2, 1));
    let error = &values[0]["error"];
    assert_eq!(error["object"], "Network-Layer-Information");
    assert_eq!((&error["object_type"], &error["field"]), (&json!(2), &json!("IP-Ver")));
    assert_eq!(
        (&error["offset"], &error["object_offset"], &error["value"]),
        (&json!(58), &json!(52), &json!(5))
    );
    assert_eq!((&error["gist"]["class"], &error["gist"]["code"]), (&json!(2), &json!(10)));
    assert_eq!(
        (&error["gist"]["subcode"], &error["gist"]["name"]),
        (&json!(1), &json!("Value Not Supported"))
    );
    assert_eq!(values[1]["ok"], true);
    let (text, _) = run(input.as_bytes(), TEXT);
    assert!(
        text.starts_with(
            "line 1: Query not understood: Network-Layer-Information: IP-Ver at octet 58: value not supported \
             (value 5)\n  raises 10/1 Object Value Error: Value Not Supported\n"
        ),
        "{text}"
    );
    assert!(text.contains("line 2: C-mode Data"));
    let (text, _) = run(input.as_bytes(), REENCODE);
    assert!(
        text.starts_with("# line 1: not understood: Network-Layer-Information: IP-Ver at octet 58"),
        "{text}"
    );
    assert!(text.lines().nth(1).unwrap().starts_with("011e00"));
}

#[test]
fn less_than_a_header() {
    let (values, summary) = json(b"4e04bda5\n01\n");
    assert_eq!((summary.messages, summary.failed), (2, 2));
    for value in values {
        assert_eq!(value["error"]["gist"], json!(null));
    }
}

#[test]
fn reencoded_octets() {
    let input = format!("{QUERY}\n{DATA}\n");
    let (text, _) = run(input.as_bytes(), REENCODE);
    assert_eq!(text, format!("{}\n{}\n", QUERY.replace(' ', ""), DATA.replace(' ', "")));
    // What is reserved or padding is not understood, so it is not repeated: in the header, in an object's TLV
    // header, in the MRI, in a profile.
    let sloppy = QUERY
        .replace("7fc08040", "7fc0805f")
        .replace("00010004", "3001f004")
        .replace("48c0c000", "48dfc000")
        .replace("0101 0000", "0101 ff00");
    assert_ne!(sloppy, QUERY);
    let (text, _) = run(sloppy.as_bytes(), REENCODE);
    assert_eq!(text.trim_end(), QUERY.replace(' ', ""));
    let mut options = JSON;
    options.reencode = true;
    let (text, _) = run(sloppy.as_bytes(), options);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["reencoded"], QUERY.replace(' ', ""));
}

/// A message of which a receiver would not even look at the objects is shown, with the error that it raises.
#[test]
fn hop_count_zero() {
    let input = QUERY.replace("011e", "0100");
    let (values, summary) = json(input.as_bytes());
    assert_eq!(summary.failed, 0);
    assert_eq!(values[0]["would_raise"]["code"], 2);
    let (text, _) = run(input.as_bytes(), TEXT);
    assert!(text.contains("hop count 0: would raise 2/0 Hop Limit Exceeded"), "{text}");
}

#[test]
fn ping_data() {
    let record = |n: u8| ping::Record {
        address: [10, 0, 0, n].into(),
        received_us: 1_700_000_000_000_000,
        held_us: 7,
        ip_distance: 1,
    };
    let mut payload = Vec::new();
    ping::Message::request(3, 0xabcd, 1_700_000_000_000_001)
        .encode(Some((ping::List::There, record(1))), &mut Writer::new(&mut payload));
    let bare = octets(DATA);
    let mut message = Message::parse(&bare, Encapsulation::Association).unwrap();
    message.nslp_data = Some(&payload);
    let mut out = Vec::new();
    message.encode(&mut Writer::new(&mut out)).unwrap();
    let (values, _) = json(hex(&out).as_bytes());
    let ping = &values[0]["objects"][2]["ping"];
    assert_eq!((&ping["kind"], &ping["sequence"]), (&json!("echo request"), &json!(3)));
    assert_eq!(ping["there"][0]["address"], "10.0.0.1");
    let (text, _) = run(hex(&out).as_bytes(), TEXT);
    assert!(
        text.contains("    Ping echo request 3, identifier 000000000000abcd, sent at 1700000000.000001\n"),
        "{text}"
    );
    assert!(text.contains("    there: 10.0.0.1 at 1700000000.000000, held 7 µs, IP distance 1\n"), "{text}");
}

/// Unknown objects: ignored ones are shown, forwarded ones are in the octets as well.
#[test]
fn unknown_objects() {
    let data = octets(DATA);
    let mut with = data.clone();
    with.extend(octets("41f4 0000 81f5 0001 11223344"));
    with[3] += 3;
    let (text, _) = run(hex(&with).as_bytes(), TEXT);
    assert!(
        text.contains("  unknown object 500 (ignore): \n  unknown object 501 (forward): 11223344\n"),
        "{text}"
    );
    let (text, _) = run(hex(&with).as_bytes(), REENCODE);
    let mut expected = data;
    expected.extend(octets("81f5 0001 11223344"));
    expected[3] += 2;
    assert_eq!(text.trim_end(), hex(&expected));
}

/// An Error message, with all that it can carry.
#[test]
fn an_error_message() {
    let wrong = octets(&QUERY.replace("04404000", "04405000"));
    let (original, q_mode) = (&wrong[4..], Encapsulation::QMode);
    let error = Message::parse(original, q_mode).unwrap_err();
    let mut object = signalbox_gist::wire::error_object_for(&error, original, q_mode).unwrap();
    object.comment = Some("no such IP");
    let mut message = Message::new(MessageType::ERROR, NslpId::NONE, 30);
    let good = octets(QUERY);
    message.nli = Message::parse(&good[4..], q_mode).unwrap().nli;
    message.error = Some(object);
    let mut out = MAGIC.to_vec();
    message.encode(&mut Writer::new(&mut out)).unwrap();
    let (text, _) = run(hex(&out).as_bytes(), TEXT);
    for line in [
        "line 1: D-mode Error, NSLP none (0), hops 30, flags -S--, ",
        "  Error: 10/1 Object Value Error: Value Not Supported, Protocol-Error\n",
        "    about a Query in Q-mode, NSLP Ping, hops 30\n",
        "    session 000102030405060708090a0b0c0d0e0f\n",
        "    MRI path-coupled downstream, 192.0.2.1 port 5000",
        "    Object Value Info: octet 6 of 00020004044050",
        "    comment \"no such IP\"\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    let (values, _) = json(hex(&out).as_bytes());
    let object = &values[0]["objects"][1];
    assert_eq!(object["error"]["code"], 10);
    assert_eq!(object["infos"][0]["offset"], 6);
    assert_eq!(object["mri"]["dst"], "198.51.100.7");
}
