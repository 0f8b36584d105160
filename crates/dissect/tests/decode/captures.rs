//! pcap files.

use serde_json::json as value;

use crate::packets::{ethernet_v4, tcp_v4};
use crate::support::*;

#[test]
fn messages_of_a_capture() {
    let query = octets(QUERY);
    let packets = [
        ethernet_v4(&query, 270),
        ethernet_v4(&query, 271),
        octets("020202020202040404040404 0806"),
        ethernet_v4(b"no magic", 270),
        ethernet_v4(&query[..20], 270),
    ];
    let file = pcap(1, &packets);
    let (values, summary) = json(&file);
    assert_eq!((summary.messages, summary.failed, values.len()), (3, 2, 3));
    let first = &values[0];
    assert_eq!((&first["frame"], &first["time_us"]), (&value!(1), &value!(1_700_000_000_000_042_u64)));
    assert_eq!((&first["src"], &first["dst"]), (&value!("192.0.2.1:5353"), &value!("198.51.100.7:270")));
    assert_eq!((&first["ttl"], &first["router_alert"]), (&value!(63), &value!(0x0102)));
    assert_eq!((&first["message"], &first["encapsulation"]), (&value!("Query"), &value!("Q-mode")));
    assert_eq!((&values[1]["frame"], &values[1]["ok"]), (&value!(4), &value!(false)));
    assert_eq!((&values[2]["frame"], &values[2]["error"]["gist"]["code"]), (&value!(5), &value!(1)));
    let (text, _) = run(&file, TEXT);
    assert!(
        text.starts_with(
            "frame 1, 1700000000.000042, 192.0.2.1:5353 > 198.51.100.7:270, TTL 63, Router Alert 258: Q-mode Query"
        ),
        "{text}"
    );
    let (text, _) = run(&file, REENCODE);
    assert_eq!(text.lines().next().unwrap(), QUERY.replace(' ', ""));
}

/// The other byte order, nanoseconds, and packets that the snap length cut.
#[test]
fn variants_of_the_format() {
    let packet = ethernet_v4(&octets(QUERY), 270);
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0002_0004, 0, 0, 64, 1, 1_700_000_000, 42_000, 64, 200] {
        file.extend(word.to_be_bytes());
    }
    file.extend(&packet[..64]);
    let (values, summary) = json(&file);
    assert_eq!((summary.messages, summary.failed), (1, 1));
    assert_eq!(values[0]["time_us"], 1_700_000_000_000_042_u64);
    assert_eq!(
        (&values[0]["error"]["gist"]["code"], &values[0]["error"]["gist"]["subcode"]),
        (&value!(1), &value!(3))
    );
}

/// O16: the upper half of the link type says that a frame check sequence follows each packet.
#[test]
fn a_link_type_with_a_frame_check_sequence() {
    let mut packet = ethernet_v4(&octets(QUERY), 270);
    packet.extend([0xde, 0xad, 0xbe, 0xef]);
    let (values, summary) = json(&pcap(0x4000_0001, &[packet]));
    assert_eq!((summary.messages, summary.failed), (1, 0));
    assert_eq!(values[0]["message"], "Query");
}

/// O16: what cannot be understood since the capture has only a part of it says so.
#[test]
fn a_truncated_packet_is_named() {
    let packet = ethernet_v4(&octets(QUERY), 270);
    let mut file = pcap(1, &[packet[..96].to_vec()]);
    let original = u32::try_from(packet.len()).unwrap();
    file[36..40].copy_from_slice(&original.to_le_bytes());
    let (values, summary) = json(&file);
    assert_eq!((summary.messages, summary.failed), (1, 1));
    assert_eq!(values[0]["truncated"], true);
    let (text, _) = run(&file, TEXT);
    assert!(text.contains(&format!("truncated: the capture has 96 of {original} octets")), "{text}");
    assert_eq!(
        (&values[0]["error"]["gist"]["code"], &values[0]["error"]["gist"]["subcode"]),
        (&value!(1), &value!(3))
    );
}

/// A block of a pcapng file.
fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let padding = body.len().next_multiple_of(4) - body.len();
    let length = word(u32::try_from(12 + body.len() + padding).unwrap());
    [&word(kind)[..], &length, body, &vec![0; padding], &length].concat()
}

/// Packets of two interfaces in each of the blocks that hold some, in both byte orders, with two resolutions of the clock, beside
/// blocks of other kinds and a packet of an interface whose link type is not known.
#[test]
fn packets_of_a_pcapng_file() {
    let ethernet = ethernet_v4(&octets(QUERY), 270);
    for big in [false, true] {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let length = word(u32::try_from(ethernet.len()).unwrap());
        let interface = |link: u16, options: &[u8]| [&half(link)[..], &[0, 0], &word(0), options].concat();
        let nanoseconds = [&half(9)[..], &half(1), &[9, 0, 0, 0], &half(0), &half(0)].concat();
        let enhanced = |interface: u32, high: u32, low: u32, octets: &[u8]| {
            let head = [interface, high, low].map(word).concat();
            block(6, &[&head[..], &length, &length, octets].concat(), big)
        };
        let micros = 1_700_000_000_000_042_u64;
        let nanos = micros * 1000;
        let parts =
            |time: u64| (u32::try_from(time >> 32).unwrap(), u32::try_from(time & 0xffff_ffff).unwrap());
        let ((high, low), (fine_high, fine_low)) = (parts(micros), parts(nanos));
        let old =
            [&half(1)[..], &half(7), &word(fine_high), &word(fine_low), &length, &length, &ethernet].concat();
        let file = [
            block(0x0a0d_0d0a, &[&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat(), big),
            block(1, &interface(1, &[]), big),
            block(1, &interface(1, &nanoseconds), big),
            block(1, &interface(147, &[]), big),
            block(4, &[0; 8], big),
            enhanced(0, high, low, &ethernet),
            enhanced(1, fine_high, fine_low, &ethernet),
            enhanced(2, high, low, &ethernet),
            block(2, &old, big),
            block(3, &[&length[..], &ethernet].concat(), big),
        ]
        .concat();
        let (values, summary) = json(&file);
        assert_eq!((summary.messages, summary.failed, values.len()), (4, 1, 5), "{values:?}");
        let times: Vec<_> = [0, 1, 3].map(|n| values[n]["time_us"].clone()).into();
        assert_eq!(times, [value!(micros), value!(micros), value!(micros)], "big: {big}");
        assert_eq!((&values[4]["frame"], &values[4]["time_us"]), (&value!(5), &value!(0)));
        assert!(values[2]["error"]["text"].as_str().unwrap().contains("link type 147"), "{}", values[2]);
        // A block that ends too early.
        let cut = [&file[..], &block(6, &[0; 8], big)].concat();
        assert_eq!(json(&cut).1.failed, 2);
    }
}

#[test]
fn broken_captures() {
    let file = pcap(1, &[ethernet_v4(&octets(QUERY), 270), ethernet_v4(&octets(QUERY), 270)]);
    let whole = run(&file, TEXT).1;
    assert_eq!((whole.messages, whole.failed), (2, 0));
    let (text, summary) = run(&file[..file.len() - 1], TEXT);
    assert_eq!((summary.messages, summary.failed), (1, 1));
    assert!(text.contains("input: not understood: frame 2: broken capture: "), "{text}");
    for (file, expected) in [
        (&file[..20], "no capture"),
        (&pcap(105, &[])[..], "link type 105 of this capture is not supported"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0][..], "no capture"),
    ] {
        let (text, summary) = run(file, TEXT);
        assert_eq!((summary.messages, summary.failed), (0, 1));
        assert!(text.contains(expected), "{text}");
    }
    let empty = run(&pcap(1, &[]), TEXT);
    assert_eq!((empty.0.as_str(), empty.1.failed), ("", 0));
}

/// Datagrams of one length that were sent in one call are one packet in a capture at their sender; the last is shorter.
#[test]
fn datagrams_sent_together_are_decoded_one_by_one() {
    let query = octets(QUERY);
    // Without its payload.
    let mut short = query[..query.len() - 8].to_vec();
    short[7] -= 2;
    for (payload, messages) in [
        ([&query[..], &query, &query].concat(), 3),
        ([&query[..], &query, &short].concat(), 3),
        (query.clone(), 1),
    ] {
        let (values, summary) = json(&pcap(1, &[ethernet_v4(&payload, 270)]));
        assert_eq!((summary.messages, values.len()), (messages, values.len()), "{values:?}");
        assert_eq!(summary.failed, 0, "{values:?}");
        assert!(values.iter().all(|value| value["frame"] == value!(1)));
    }
    // A message is broken if octets follow it that are not a message.
    let broken = [&query[..], b"more"].concat();
    assert_eq!(json(&pcap(1, &[ethernet_v4(&broken, 270)])).1.failed, 1);
}

/// GIST over TCP: whole messages whatever segments carried them, once each; other connections are passed over.
#[test]
fn messages_in_a_connection_are_decoded() {
    let data = octets(DATA);
    let stream = [&data[..], &data, &data].concat();
    let start = u32::MAX - 20;
    let at = |from: usize, to: usize| {
        let sequence = start.wrapping_add(1 + u32::try_from(from).unwrap());
        tcp_v4(4000, sequence, false, &stream[from..to])
    };
    let syn = tcp_v4(4000, start, true, &[]);
    let end = stream.len();
    for segments in [
        vec![syn.clone(), at(0, end)],
        vec![syn.clone(), at(0, 5), at(5, 100), at(100, end)],
        vec![syn.clone(), at(90, end), at(0, 90)],
        vec![syn.clone(), at(0, 90), at(0, 90), at(60, end)],
        // The capture began later.
        vec![at(0, 90), at(90, end)],
    ] {
        let (values, summary) = json(&pcap(1, &segments));
        assert_eq!((summary.messages, summary.failed), (3, 0), "{values:?}");
        for value in &values {
            assert_eq!((&value["message"], &value["encapsulation"]), (&value!("Data"), &value!("C-mode")));
            assert_eq!((&value["src"], &value["magic"]), (&value!("192.0.2.1:5353"), &value!(false)));
        }
    }
    let other = [tcp_v4(443, start, true, &[]), tcp_v4(443, start.wrapping_add(1), false, b"GET / HTTP/1.1")];
    assert_eq!(json(&pcap(1, &other)).1.messages, 0);
    let tls = [
        tcp_v4(270, start, true, &[]),
        tcp_v4(270, start.wrapping_add(1), false, &[22, 3, 1, 0, 1, 0, 0, 0]),
    ];
    assert_eq!(json(&pcap(1, &tls)).1.messages, 0);
}

/// RFC 5971 A.4.4.1: a node answers a message of another version with "Unknown Version", also in a connection.
#[test]
fn a_message_of_another_version_in_a_connection_is_named() {
    let mut data = octets(DATA);
    data[0] = 2;
    let start = 7;
    let (values, summary) =
        json(&pcap(1, &[tcp_v4(270, start, true, &[]), tcp_v4(270, start + 1, false, &data)]));
    assert_eq!((summary.messages, summary.failed), (1, 1), "{values:?}");
    let raised = &values[0]["error"]["gist"];
    assert_eq!((&raised["code"], &raised["subcode"]), (&value!(1), &value!(0)), "{values:?}");
}
