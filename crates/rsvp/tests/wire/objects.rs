//! Every object of RFC 2205 Appendix A and RFC 2207 §3, octet by octet, parsed and composed.

use std::fmt::Debug;
use std::net::IpAddr;

use signalbox_rsvp::wire::{
    Class, ErrorCode, ErrorFlags, ErrorSpec, ErrorValue, Fault, Filter, Message, MessageType, PolicyValue,
    RsvpHop, Selector, Session, SessionKind, Style, TrafficControlValue, UnknownClass, ValueScope, Writer,
};

use super::support::{
    CONFIRM, CONTROLLED, ERROR, FF, FILTER, HOP, SESSION, TEMPLATE, TIME, TSPEC, WF, accepts, fault, hex,
    message, written,
};

const V6: &str = "20010db8 00000000 00000000 000000aa";

fn v4() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn v6() -> IpAddr {
    "2001:db8::aa".parse().unwrap()
}

/// The writer composes `octets` as the only object of a message.
fn writes(octets: &str, compose: impl FnOnce(&mut Writer<'_>)) {
    assert_eq!(written(MessageType::PATH, compose)[8..], hex(octets), "{octets}");
}

/// A message parses to `value` in `field`.
fn reads<T: PartialEq + Debug>(kind: u8, objects: &[&str], field: impl Fn(&Message<'_>) -> T, value: T) {
    let octets = message(kind, objects);
    let read = Message::parse(&octets).unwrap();
    assert_eq!((field(&read), read.refusal), (value, None), "{objects:?}");
}

/// Proves RSVP-A.1-01, RSVP-A.1-02, RSVPX-2207-3-01.
#[test]
fn session() {
    let kinds = [(SessionKind::Ports, 1, 17), (SessionKind::Gpi, 3, 50)];
    for (kind, c_type, protocol) in kinds {
        let session = Session { dest: v4(), protocol, kind, port: 0x1388 };
        let octets = format!("000c01{c_type:02x} 0a000001 {protocol:02x}001388");
        writes(&octets, |w| _ = w.session(&session, false));
        reads(
            5,
            &[&octets, HOP, if c_type == 1 { TEMPLATE } else { "000c0b04 0a000001 0000abcd" }],
            |m| m.session,
            Some(session),
        );

        let session = Session { dest: v6(), ..session };
        let octets = format!("001801{:02x} {V6} {protocol:02x}001388", c_type + 1);
        writes(&octets, |w| _ = w.session(&session, false));
        let hop = format!("00180302 {V6} 00000001");
        let template = format!("00180b{:02x} {V6} 00000fa0", if c_type == 1 { 2 } else { 5 });
        reads(5, &[&octets, &hop, &template], |m| m.session, Some(session));
    }
}

/// Proves RSVP-A.1-03, RSVP-A.9-03: zero addresses and a zero protocol.
#[test]
fn zeros() {
    assert_eq!(fault(5, &["000c0101 00000000 11001388", HOP, TEMPLATE]), Fault::Value);
    assert_eq!(fault(5, &["000c0101 0a000001 00001388", HOP, TEMPLATE]), Fault::Value);
    assert_eq!(fault(5, &[SESSION, HOP, "000c0b01 00000000 00000fa0"]), Fault::Value);
    assert_eq!(fault(6, &[SESSION, HOP, FF, "000c0a01 00000000 00000fa0"]), Fault::Value);
    let zero = "00000000 00000000 00000000 00000000";
    let (session, hop) = (format!("00180102 {zero} 11001388"), format!("00180302 {V6} 00000000"));
    assert_eq!(fault(6, &[&session, &hop, WF]), Fault::Value);
}

/// Proves RSVP-A.1-04 and RSVP-A.1-05 for the format: the flag does not identify the session.
#[test]
fn e_police() {
    let on = "000c0101 0a00000a 11011388";
    let session = Message::parse(&message(5, &[SESSION, HOP, TEMPLATE])).unwrap().session;
    reads(5, &[on, HOP, TEMPLATE], |m| (m.session, m.e_police), (session, true));
    reads(5, &["000c0101 0a00000a 11fe1388", HOP, TEMPLATE], |m| (m.session, m.e_police), (session, false));
    writes(on, |w| _ = w.session(&session.unwrap(), true));
}

/// Proves RSVP-A.2-01, and RSVP-A.2-03 for the format: addresses that no hop has, or of the wrong family.
#[test]
fn rsvp_hop() {
    let hop = RsvpHop { addr: v4(), lih: 0xdead_beef };
    let octets = "000c0301 0a000001 deadbeef";
    writes(octets, |w| _ = w.hop(&hop));
    reads(5, &[SESSION, octets, TEMPLATE], |m| m.hop, Some(hop));
    let hop = RsvpHop { addr: v6(), lih: 0 };
    let octets = format!("00180302 {V6} 00000000");
    writes(&octets, |w| _ = w.hop(&hop));
    let session = format!("00180102 {V6} 11001388");
    reads(6, &[&session, &octets, WF], |m| m.hop, Some(hop));

    for illegal in ["00000000", "e0000001", "ffffffff"] {
        let octets = format!("000c0301 {illegal} 00000001");
        assert_eq!(fault(6, &[SESSION, &octets, WF]), Fault::HopAddress, "{illegal}");
    }
    for illegal in ["ff020000 00000000 00000000 00000001", "00000000 00000000 00000000 00000000"] {
        assert_eq!(fault(6, &[&session, &format!("00180302 {illegal} 00000000"), WF]), Fault::HopAddress);
    }
    assert_eq!(fault(6, &[SESSION, &octets, WF]), Fault::HopAddress, "IPv6 hop of an IPv4 session");
}

/// Proves RSVP-A.4-01.
#[test]
fn time_values() {
    writes(TIME, |w| _ = w.time_values(30_000));
    reads(1, &[SESSION, HOP, "00080501 ffffffff", TEMPLATE, TSPEC], |m| m.refresh_period, Some(u32::MAX));
}

/// Proves RSVP-A.5-01; RSVP-A.5-02: the flags.
#[test]
fn error_spec() {
    let error =
        ErrorSpec { node: v4(), flags: ErrorFlags::IN_PLACE, code: ErrorCode::UNKNOWN_CLASS, value: 0x6403 };
    writes("000c0601 0a000001 010d6403", |w| _ = w.error_spec(&error));
    reads(4, &[SESSION, HOP, "000c0601 0a000001 010d6403", WF], |m| m.error, Some(error));
    let error = ErrorSpec { node: v6(), flags: ErrorFlags::NOT_GUILTY, code: ErrorCode::ADMISSION, value: 2 };
    let octets = format!("00180602 {V6} 02010002");
    writes(&octets, |w| _ = w.error_spec(&error));
    reads(4, &[SESSION, HOP, &octets, WF], |m| m.error, Some(error));
    assert!(error.flags.contains(ErrorFlags::NOT_GUILTY) && !error.flags.contains(ErrorFlags::IN_PLACE));
}

/// Proves RSVP-A.6-01.
#[test]
fn scope() {
    let mut senders: Vec<IpAddr> =
        ["10.0.0.9", "9.255.255.255", "10.0.0.9", "200.0.0.1"].map(|a| a.parse().unwrap()).into();
    writes("00100701 09ffffff 0a000009 c8000001", |w| _ = w.scope(&mut senders));
    writes("", |w| _ = w.scope(&mut []));
    let mut senders: Vec<IpAddr> = ["2001:db8::aa", "::2"].map(|a| a.parse().unwrap()).into();
    let octets = format!("00240702 00000000 00000000 00000000 00000002 {V6}");
    writes(&octets, |w| _ = w.scope(&mut senders));
    reads(6, &[SESSION, HOP, &octets, WF], |m| m.scope.unwrap().senders().collect::<Vec<_>>(), senders);
    assert_eq!(fault(6, &[SESSION, HOP, "000c0702 0a000001 0a000002", WF]), Fault::ObjectLength);
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets, MessageType::RESV, Default::default(), 1);
    w.scope(&mut [v4(), v6()]);
    assert!(w.finish().is_err() && octets.is_empty());
}

/// Proves RSVP-3.1.2-03: a message with a SCOPE that is too long is not sent.
#[test]
fn too_large() {
    let mut senders: Vec<IpAddr> = (0..16_383_u32).map(|n| IpAddr::from((n + 1).to_be_bytes())).collect();
    let size = |senders: &mut [IpAddr]| {
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, MessageType::RESV, Default::default(), 1);
        w.scope(senders);
        w.finish().map(|()| octets.len())
    };
    assert_eq!(size(&mut senders[..16_380]), Ok(65_532));
    assert!(size(&mut senders[..16_381]).is_err(), "the message is over 65535 octets");
    assert!(size(&mut senders).is_err(), "the object is over 65535 octets");
}

/// Proves RSVP-A.7-01 and RSVP-A.7-02.
#[test]
fn style() {
    for (style, vector) in [(Style::Wf, 0b10_001), (Style::Ff, 0b01_010), (Style::Se, 0b10_010)] {
        let octets = format!("00080801 {vector:08x}");
        writes(&octets, |w| _ = w.style(style));
        reads(4, &[SESSION, HOP, ERROR, &octets], |m| m.style, Some(style));
        assert_eq!(style.option_vector(), vector);
    }
    assert!(Style::Wf.is_shared() && Style::Se.is_shared() && !Style::Ff.is_shared());
    assert!(!Style::Wf.is_explicit() && Style::Se.is_explicit() && Style::Ff.is_explicit());
}

/// Proves RSVP-A.9-01, RSVP-A.9-02, RSVP-A.10-01 and RSVPX-2207-3-02.
#[test]
fn filters() {
    let all = [
        (1, v4(), Selector::Port(4000), "00000fa0"),
        (2, v6(), Selector::Port(4000), "00000fa0"),
        (3, v6(), Selector::FlowLabel(0x000a_bcde), "000abcde"),
        (4, v4(), Selector::Gpi(0xdead_beef), "deadbeef"),
        (5, v6(), Selector::Gpi(0xdead_beef), "deadbeef"),
    ];
    for (c_type, src, selector, word) in all {
        let filter = Filter { src, selector };
        let addr = if src.is_ipv4() { "0a000001" } else { V6 };
        let length = if src.is_ipv4() { 12 } else { 24 };
        let gpi = c_type >= 4;
        let session = Session {
            dest: src,
            protocol: 50,
            kind: if gpi { SessionKind::Gpi } else { SessionKind::Ports },
            port: 5000,
        };
        let session = written(MessageType::PATH, |w| _ = w.session(&session, false));
        let session: String = session[8..].iter().map(|octet| format!("{octet:02x}")).collect();
        let hop = if src.is_ipv4() { HOP.to_owned() } else { format!("00180302 {V6} 00000000") };

        let octets = format!("{length:04x}0a{c_type:02x} {addr} {word}");
        writes(&octets, |w| _ = w.filter_spec(&filter));
        reads(6, &[&session, &hop, FF, &octets], |m| m.flows().next().unwrap().filter, Some(filter));

        let octets = format!("{length:04x}0b{c_type:02x} {addr} {word}");
        writes(&octets, |w| _ = w.sender_template(&filter));
        reads(5, &[&session, &hop, &octets], |m| m.sender, Some(filter));
    }
    // Equal numbers of different kinds.
    let (port, label) = (Selector::Port(7), Selector::FlowLabel(7));
    assert_ne!(Filter { src: v6(), selector: port }, Filter { src: v6(), selector: label });
}

/// Proves RSVP-A-01: reserved octets are ignored; the vectors above show that they are sent as zero.
#[test]
fn reserved_octets() {
    let odd = message(5, &[SESSION, HOP, "000c0b01 0a000001 ffff0fa0"]);
    let plain = message(5, &[SESSION, HOP, TEMPLATE]);
    assert_eq!(Message::parse(&odd).unwrap().sender, Message::parse(&plain).unwrap().sender);
    reads(6, &[SESSION, HOP, "00080801 ff00000a", FILTER], |m| m.style, Some(Style::Ff));
}

/// Proves RSVP-3.2-04 for the format, RSVP-2209-MSG-02: a SrcPort without a DstPort.
#[test]
fn bad_source_port() {
    let portless = "000c0101 0a00000a 11000000";
    assert_eq!(fault(1, &[portless, HOP, TIME, TEMPLATE, TSPEC]), Fault::SourcePort);
    assert_eq!(fault(1, &[TEMPLATE, portless, HOP, TIME, TSPEC]), Fault::SourcePort, "in any order");
    assert_eq!(fault(2, &[portless, HOP, TIME, FF, CONTROLLED, FILTER]), Fault::SourcePort);
    assert!(accepts(1, &[portless, HOP, TIME, "000c0b01 0a000001 00000000", TSPEC]));
}

/// Proves RSVPX-2207-4-04: GPIs and ports do not mix; nor do families.
#[test]
fn mixed_types() {
    let (gpi_session, gpi_filter) = ("000c0103 0a00000a 32001388", "000c0a04 0a000001 0000abcd");
    assert_eq!(fault(2, &[SESSION, HOP, TIME, FF, CONTROLLED, gpi_filter]), Fault::MixedTypes);
    assert_eq!(fault(2, &[gpi_session, HOP, TIME, FF, CONTROLLED, FILTER]), Fault::MixedTypes);
    assert_eq!(fault(1, &[gpi_session, HOP, TIME, TEMPLATE, TSPEC]), Fault::MixedTypes);
    assert!(accepts(2, &[gpi_session, HOP, TIME, FF, CONTROLLED, gpi_filter]));
    let v6_filter = format!("00180a02 {V6} 00000fa0");
    assert_eq!(fault(2, &[SESSION, HOP, TIME, FF, CONTROLLED, &v6_filter]), Fault::MixedTypes);
}

/// Proves RSVP-A.14-01.
#[test]
fn resv_confirm() {
    writes(CONFIRM, |w| _ = w.resv_confirm("10.0.0.10".parse().unwrap()));
    let octets = format!("00140f02 {V6}");
    writes(&octets, |w| _ = w.resv_confirm(v6()));
    reads(2, &[SESSION, HOP, TIME, &octets, FF], |m| m.confirm, Some(v6()));
    assert_eq!(fault(2, &[SESSION, HOP, TIME, "00080f01 e0000001", FF]), Fault::Value);
}

/// Proves RSVP-B-03 and RSVPX-2750-4-04: numbers of error values.
#[test]
fn error_values() {
    let decoded = |value| {
        let value = ErrorValue(value);
        (value.scope(), value.informational(), value.code())
    };
    assert_eq!(decoded(0x0002), (ValueScope::Global, false, 2));
    assert_eq!(decoded(0x8005), (ValueScope::Organization, false, 5));
    assert_eq!(decoded(0xc001), (ValueScope::Service, false, 1));
    assert_eq!(decoded(0x2001), (ValueScope::Global, true, 1));
    use signalbox_rsvp::wire::AdmissionValue as Admission;
    assert_eq!([Admission::DELAY_BOUND, Admission::BANDWIDTH, Admission::MTU].map(|v| v.0), [1, 2, 3]);
    use TrafficControlValue as Tc;
    let tc = [Tc::SERVICE_CONFLICT, Tc::SERVICE_UNSUPPORTED, Tc::BAD_FLOWSPEC, Tc::BAD_TSPEC, Tc::BAD_ADSPEC];
    assert_eq!(tc.map(|v| v.0), [1, 2, 3, 4, 5]);
    assert!((0..20).all(|value| PolicyValue(value).name().is_some()));
    assert_eq!(
        (PolicyValue::PREEMPT.0, PolicyValue::FLOWSPEC.0, PolicyValue::PARTIAL_PREEMPT.0),
        (5, 19, 102)
    );
}

/// The high bits of an unknown class select its treatment (RFC 2205 §3.10).
#[test]
fn high_bits() {
    for class in 0..=255 {
        let expected = match class {
            0..=127 => UnknownClass::Reject,
            128..=191 => UnknownClass::Ignore,
            192.. => UnknownClass::Forward,
        };
        assert_eq!(Class(class).if_unknown(), expected);
    }
}
