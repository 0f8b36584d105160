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

#[test]
fn broken_captures() {
    let file = pcap(1, &[ethernet_v4(&octets(QUERY), 270), ethernet_v4(&octets(QUERY), 270)]);
    let whole = run(&file, TEXT).1;
    assert_eq!((whole.messages, whole.failed), (2, 0));
    let (text, summary) = run(&file[..file.len() - 1], TEXT);
    assert_eq!((summary.messages, summary.failed), (1, 1));
    assert!(text.contains("input: not understood: frame 2: broken capture: "), "{text}");
    for (file, expected) in [
        (&file[..20], "no pcap file"),
        (&pcap(105, &[])[..], "link type 105 of this capture is not supported"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0][..], "pcapng"),
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
