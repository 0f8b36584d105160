//! Code points, QoS formats and what is not understood.

use signalbox_boomerang::wire::{
    Aggregation, DecodeError, Family, Format, Known, Message, MessageType, OptionType, Pass, Qos, QosFormat,
    Rates,
};

use crate::support::*;

const CONTROLLED: &str = "00000007 05000006 7f000005 47f42400 461c4000 47f42400 00000040 000005dc";
const GUARANTEED: &str = "0000000a 02000009 7f000005 47f42400 461c4000 47f42400 00000040 000005dc 82000002 48742400 \
                          000003e8";

/// BOOM-3.1-07, BOOM-3.1-08, BOOM-G41-01: formats are numbers, not bits.
#[test]
fn formats_are_compared_as_numbers() {
    let all = [
        (0x12, Family::IPV4, QosFormat::BITRATE),
        (0x22, Family::IPV4, QosFormat::INTSERV),
        (0x32, Family::IPV4, QosFormat::DOWNGRADE),
        (0x1a, Family::IPV6, QosFormat::BITRATE),
        (0x2a, Family::IPV6, QosFormat::INTSERV),
        (0x3a, Family::IPV6, QosFormat::DOWNGRADE),
    ];
    for (number, family, qos) in all {
        assert_eq!((Format(number).family(), Format(number).qos()), (family, qos));
        assert_eq!(Format::of(family, qos), Format(number));
    }
    assert!(matches!(
        parse(&request(0x32, "01000000 00000002 00000001")).body.unwrap().qos,
        Qos::Downgrade(_)
    ));
}

/// BOOM-3.1-02, BOOM-3.1-06, BOOM-G22-01, BOOM-G30-01, BOOM-G40-01: what is no reservation message of version 1.
#[test]
fn what_is_not_a_reservation_is_named() {
    let changed = |at: usize, value: u8| {
        let mut octets = hex(REQUEST);
        octets[at] = value;
        octets
    };
    assert_eq!(error(&changed(11, 0x10)), DecodeError::Magic { found: 0x4711_4710 });
    assert_eq!(error(&changed(16, 0x20)), DecodeError::Type { found: MessageType::MARKER_SETUP.0 });
    assert_eq!(error(&changed(21, 2)), DecodeError::Version { found: 2 });
    assert_eq!(error(&changed(0, 3)), DecodeError::NotEcho { kind: 3, code: 0 });
    assert_eq!(error(&changed(1, 1)), DecodeError::NotEcho { kind: 8, code: 1 });
    assert!(Message::parse(&hex(REQUEST), true).is_err(), "type 8 is no Echo of ICMPv6");
    assert_eq!(MessageType(0x20).to_string(), "DS MARKER_SETUP");
}

/// BOOM-G30-02: an unknown format is recognised as such.
#[test]
fn an_unknown_format_has_no_body() {
    for format in [0x42, 0x15, 0x00] {
        assert_eq!(parse(&request(format, "00000001 00000002")).body, None, "{format:#x}");
    }
}

/// BOOM-G6-01: the example of the draft has no mask; such a message is too short.
#[test]
fn a_message_without_mask_is_malformed() {
    let mut octets = hex(REQUEST);
    octets.drain(48..64);
    assert!(matches!(error(&octets), DecodeError::Short { .. }));
}

/// BOOM-3.2.3-06, BOOM-3.2.3-01: a DOWNGRADE list has 4 + 8n octets; the same octets are two rates in another format.
#[test]
fn a_downgrade_list_is_read_by_its_format() {
    let list = "02000000 0001f400 0000fa00 0000fa00 00007d00";
    let octets = request(0x32, list);
    let body = parse(&octets).body.unwrap();
    let Qos::Downgrade(read) = body.qos else { panic!("{:?}", body.qos) };
    let pairs = [(128_000, 64_000), (64_000, 32_000)].map(|(forward, reverse)| Rates { forward, reverse });
    assert!(read.pairs().eq(pairs));
    assert_eq!(octets.len() - 64, 4 + 8 * 2);
    assert_eq!(composed(&parse(&octets), &there())[64..], hex(list));
    let rates = parse(&request(0x12, list)).body.unwrap().qos.rates();
    assert_eq!(rates, Some(Rates { forward: 0x0200_0000, reverse: 128_000 }));
    let most: String = (0..32).map(|_| "0000000100000001").collect();
    assert!(Message::parse(&request(0x32, &format!("20000000{most}")), false).is_ok());
}

/// BOOM-G20-04: no element, more than 32, or a list that is not decreasing.
#[test]
fn a_list_that_does_not_decrease_is_malformed() {
    let long: String = (0..33).map(|_| "0000000100000001").collect();
    let wrong = [
        "00000000".to_owned(),
        format!("21000000{long}"),
        "02000000 00000001 00000001 00000002 00000001".to_owned(),
        "02000000 00000001 00000001 00000001 00000002".to_owned(),
    ];
    for list in wrong {
        assert!(matches!(error(&request(0x32, &list)), DecodeError::Downgrade { .. }), "{list}");
    }
    assert!(matches!(error(&request(0x32, "02000000 00000001 00000001")), DecodeError::Short { .. }));
}

/// BOOM-G21-01, BOOM-G12-03: two IntServ messages, 32 octets for controlled load and 44 for guaranteed service; a zero word
/// for nothing.
#[test]
fn intserv_specifications_delimit_themselves() {
    let octets = request(0x22, &format!("{CONTROLLED}{GUARANTEED}{ALICE}"));
    let body = parse(&octets).body.unwrap();
    let Qos::IntServ(specs) = body.qos else { panic!("{:?}", body.qos) };
    assert_eq!((specs.forward.len(), specs.reverse.len()), (32, 44));
    assert_eq!((specs.of(Pass::Request), specs.of(Pass::Reply)), (specs.forward, specs.reverse));
    assert!(body.options.user().is_some() && !specs.is_empty());
    assert_eq!(composed(&parse(&octets), &there())[64..], octets[64..]);
    let octets = request(0x22, "00000000 00000000");
    let Qos::IntServ(none) = parse(&octets).body.unwrap().qos else { panic!() };
    assert!(none.is_empty());
    assert!(matches!(error(&request(0x22, "10000000 00000000")), DecodeError::IntServ { found: 1, .. }));
    assert!(matches!(error(&request(0x22, "00000007 00000000")), DecodeError::Short { .. }));
}

/// BOOM-3.3-05, BOOM-3.3-01: numbers and layout of the options. BOOM-3.3.2-01, BOOM-G5-02: the aggregation option.
#[test]
fn options_have_their_numbers() {
    assert_eq!([OptionType::UID.0, OptionType::AGGREGATION.0], [1, 2]);
    let octets = [hex(REQUEST), hex(AGGREGATION)].concat();
    let found: Vec<_> = parse(&octets).body.unwrap().options.iter().collect();
    let Known::Aggregation(Aggregation { address, transaction, flow, rate }) = found[0].option else {
        panic!()
    };
    assert_eq!((address.to_string().as_str(), transaction, rate), ("203.0.113.9", 7, 192_000));
    assert_eq!((flow.classifier.tos, flow.mask.tos, flow.mask.protocol), (0xb8, 0, 0xff));
    assert_eq!(flow.mask.src.to_string(), "0.0.0.255");
    assert_eq!((found.len(), found[0].offset, found[0].flags), (1, 72, 0));
}
