//! Every message of RFC 2205, composed by hand and by the writer; the common header.

use std::net::IpAddr;

use signalbox_resources::intserv::{RSpec, TSpec};
use signalbox_rsvp::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Fault, Filter, FlowSpec, HeaderFlags, Message, MessageType, RsvpHop,
    Selector, Session, SessionKind, Style, Writer, checksum, checksum_is_valid,
};

use super::support::{
    CONFIRM, CONTROLLED, ERROR, FF, FILTER, FILTER_2, GUARANTEED, HOP, POLICY, SCOPE, SE, SESSION, TEMPLATE,
    TIME, TSPEC, WF, error, hex, message, unsummed, written,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn session() -> Session {
    Session { dest: ip("10.0.0.10"), protocol: 17, kind: SessionKind::Ports, port: 5000 }
}

fn hop() -> RsvpHop {
    RsvpHop { addr: ip("10.0.1.1"), lih: 2 }
}

fn sender(last: u8) -> Filter {
    Filter { src: IpAddr::from([10, 0, 0, last]), selector: Selector::Port(4000) }
}

fn tspec() -> TSpec {
    TSpec::new(125_000.0, 10_000.0, 125_000.0, 64, 1500).unwrap()
}

fn controlled() -> FlowSpec {
    FlowSpec { tspec: tspec(), rspec: None }
}

fn error_spec() -> ErrorSpec {
    ErrorSpec { node: ip("10.0.1.2"), flags: ErrorFlags::default(), code: ErrorCode::ADMISSION, value: 2 }
}

/// Proves RSVP-3.1.3-02, RSVP-A.11-01, RSVPIS-2210-3.1-01 and RSVPIS-2210-3.1-02.
#[test]
fn path() {
    let by_hand = message(1, &[SESSION, HOP, TIME, TEMPLATE, TSPEC]);
    assert_eq!(by_hand.len(), 88);
    let infinite = TSpec::new(125_000.0, 10_000.0, f32::INFINITY, 64, 1500).unwrap();
    let ours = written(MessageType::PATH, |w| {
        w.session(&session(), false)
            .hop(&hop())
            .time_values(30_000)
            .sender_template(&sender(1))
            .sender_tspec(&infinite);
    });
    assert_eq!(unsummed(ours), by_hand);
    let read = Message::parse(&by_hand).unwrap();
    assert_eq!((read.kind, read.send_ttl, read.flags), (MessageType::PATH, 63, HeaderFlags(0)));
    assert_eq!((read.session, read.e_police, read.hop), (Some(session()), false, Some(hop())));
    assert_eq!((read.refresh_period, read.sender), (Some(30_000), Some(sender(1))));
    assert_eq!(read.sender_tspec.unwrap().read(), Ok(infinite));
    assert_eq!(read.sender_tspec.unwrap().octets(), hex(TSPEC));
    assert_eq!((read.refusal, read.flows().count(), read.policy().count()), (None, 0, 0));
}

/// Proves RSVP-3.1.4-02, RSVP-3.1.4-06, RSVP-3.1.4-07 and RSVP-3.1.4-08: all styles, both services.
#[test]
fn resv() {
    let rspec = RSpec::new(250_000.0, 1000).unwrap();
    let guaranteed = FlowSpec { tspec: tspec(), rspec: Some(rspec) };
    let resv = |compose: &dyn Fn(&mut Writer<'_>)| {
        unsummed(written(MessageType::RESV, |w| {
            w.session(&session(), false).hop(&hop()).time_values(30_000);
            compose(w);
        }))
    };
    let head = [SESSION, HOP, TIME];
    let with = |tail: &[&str]| message(2, &[&head[..], tail].concat());

    let wf = with(&[WF, CONTROLLED]);
    assert_eq!((wf.len(), with(&[WF, GUARANTEED]).len()), (84, 96));
    assert_eq!(resv(&|w| _ = w.style(Style::Wf).flowspec(&controlled())), wf);
    let read = Message::parse(&wf).unwrap();
    assert_eq!(read.style, Some(Style::Wf));
    let flows: Vec<_> = read.flows().map(|flow| (flow.flowspec.unwrap().read(), flow.filter)).collect();
    assert_eq!(flows, [(Ok(controlled()), None)]);

    let ff = with(&[FF, CONTROLLED, FILTER, FILTER_2, GUARANTEED, "000c0a01 0a000003 00000fa0"]);
    assert_eq!(with(&[FF, CONTROLLED, FILTER]).len(), 96);
    assert_eq!(with(&[FF, GUARANTEED, FILTER]).len(), 108);
    let ours = resv(&|w| {
        w.style(Style::Ff).flowspec(&controlled()).filter_spec(&sender(1)).filter_spec(&sender(2));
        w.flowspec(&guaranteed).filter_spec(&sender(3));
    });
    assert_eq!(ours, ff);
    let read = Message::parse(&ff).unwrap();
    let flows: Vec<_> = read.flows().map(|flow| (flow.flowspec.unwrap().read(), flow.filter)).collect();
    let expected = [(controlled(), 1), (controlled(), 2), (guaranteed, 3)];
    assert_eq!(flows, expected.map(|(flowspec, last)| (Ok(flowspec), Some(sender(last)))));

    let se = with(&[CONFIRM, SCOPE, POLICY, SE, GUARANTEED, FILTER, FILTER_2]);
    let ours = resv(&|w| {
        w.resv_confirm(ip("10.0.0.10")).scope(&mut [ip("10.0.0.2"), ip("10.0.0.1"), ip("10.0.0.2")]);
        w.raw(&hex(POLICY)).style(Style::Se);
        w.flowspec(&guaranteed).filter_spec(&sender(1)).filter_spec(&sender(2));
    });
    assert_eq!(ours, se);
    let read = Message::parse(&se).unwrap();
    assert_eq!((read.confirm, read.style), (Some(ip("10.0.0.10")), Some(Style::Se)));
    assert_eq!(read.scope.unwrap().senders().collect::<Vec<_>>(), [ip("10.0.0.1"), ip("10.0.0.2")]);
    let flows: Vec<_> = read.flows().map(|flow| (flow.flowspec.unwrap().read(), flow.filter)).collect();
    assert_eq!(flows, [1, 2].map(|last| (Ok(guaranteed), Some(sender(last)))));
    assert_eq!(read.policy().next().unwrap().octets(), hex(POLICY));
}

/// Proves RSVP-3.1.5-01, RSVP-3.1.6-01 and RSVP-3.1.8-01.
#[test]
fn tears_errors_and_confirmation() {
    let tear = message(5, &[SESSION, HOP, TEMPLATE]);
    let ours = written(MessageType::PATH_TEAR, |w| {
        _ = w.session(&session(), false).hop(&hop()).sender_template(&sender(1))
    });
    assert_eq!(unsummed(ours), tear);
    assert_eq!(Message::parse(&tear).unwrap().sender, Some(sender(1)));
    // Its Tspec is ignored, even if it is invalid.
    let odd = message(5, &[SESSION, HOP, TEMPLATE, "00080c02 00000000", "00080d07 00000000"]);
    assert_eq!(Message::parse(&odd).unwrap().sender, Some(sender(1)));

    let tear = message(6, &[SESSION, HOP, SCOPE, FF, FILTER]);
    let ours = written(MessageType::RESV_TEAR, |w| {
        w.session(&session(), false).hop(&hop()).scope(&mut [ip("10.0.0.1"), ip("10.0.0.2")]);
        w.style(Style::Ff).filter_spec(&sender(1));
    });
    assert_eq!(unsummed(ours), tear);
    let read = Message::parse(&tear).unwrap();
    assert_eq!(
        read.flows().map(|flow| (flow.flowspec, flow.filter)).collect::<Vec<_>>(),
        [(None, Some(sender(1)))]
    );

    let path_err = message(3, &[SESSION, ERROR, POLICY, TEMPLATE, TSPEC]);
    let ours = written(MessageType::PATH_ERR, |w| {
        w.session(&session(), false).error_spec(&error_spec()).raw(&hex(POLICY));
        w.sender_template(&sender(1)).raw(&hex(TSPEC));
    });
    assert_eq!(unsummed(ours), path_err);
    assert_eq!(Message::parse(&path_err).unwrap().error, Some(error_spec()));

    let resv_err = message(4, &[SESSION, HOP, ERROR, SCOPE, POLICY, WF, CONTROLLED]);
    let ours = written(MessageType::RESV_ERR, |w| {
        w.session(&session(), false).hop(&hop()).error_spec(&error_spec());
        w.scope(&mut [ip("10.0.0.1"), ip("10.0.0.2")])
            .raw(&hex(POLICY))
            .style(Style::Wf)
            .flowspec(&controlled());
    });
    assert_eq!(unsummed(ours), resv_err);
    assert_eq!(Message::parse(&resv_err).unwrap().flows().count(), 1);

    let conf = message(7, &[SESSION, "000c0601 0a000102 00000000", CONFIRM, FF, CONTROLLED, FILTER]);
    let none = ErrorSpec { code: ErrorCode::CONFIRMATION, value: 0, ..error_spec() };
    let ours = written(MessageType::RESV_CONF, |w| {
        w.session(&session(), false).error_spec(&none).resv_confirm(ip("10.0.0.10"));
        w.style(Style::Ff).flowspec(&controlled()).filter_spec(&sender(1));
    });
    assert_eq!(unsummed(ours), conf);
    assert_eq!(Message::parse(&conf).unwrap().confirm, Some(ip("10.0.0.10")));
}

/// Proves RSVP-3.1.3-02: IPv6 takes 124 octets.
#[test]
fn path_ipv6() {
    let addr = |last| format!("20010db8 00000000 00000000 000000{last:02x}");
    let objects = [
        format!("00180102 {} 06001388", addr(10)),
        format!("00180302 {} 00000003", addr(1)),
        TIME.to_owned(),
        format!("00180b02 {} 00000fa0", addr(2)),
        TSPEC.to_owned(),
    ];
    let by_hand = message(1, &objects.each_ref().map(String::as_str));
    assert_eq!(by_hand.len(), 124);
    let read = Message::parse(&by_hand).unwrap();
    let session = Session { dest: ip("2001:db8::a"), protocol: 6, kind: SessionKind::Ports, port: 5000 };
    let hop = RsvpHop { addr: ip("2001:db8::1"), lih: 3 };
    let sender = Filter { src: ip("2001:db8::2"), selector: Selector::Port(4000) };
    assert_eq!((read.session, read.hop, read.sender), (Some(session), Some(hop), Some(sender)));
    let ours = written(MessageType::PATH, |w| {
        w.session(&session, false).hop(&hop).time_values(30_000).sender_template(&sender).raw(&hex(TSPEC));
    });
    assert_eq!(unsummed(ours), by_hand);
}

/// Proves RSVP-3.1.1-01, RSVP-3.1.1-04 and RSVP-3.1.1-06: a header by hand, and its checksum.
#[test]
fn common_header() {
    // Version 1, flag 1, ResvTear, TTL 255.
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets, MessageType::RESV_TEAR, HeaderFlags::REFRESH_REDUCTION, 255);
    w.session(&session(), false).hop(&hop()).style(Style::Wf);
    w.finish().unwrap();
    let objects = [SESSION, HOP, WF].map(hex).concat();
    let summed: u32 = [&hex("11060000 ff000028")[..], &objects[..]]
        .concat()
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !u16::try_from((summed & 0xffff) + (summed >> 16)).unwrap();
    assert_eq!(octets, [&hex("1106")[..], &sum.to_be_bytes()[..], &hex("ff000028"), &objects[..]].concat());
    let names = [
        (1, "Path"),
        (2, "Resv"),
        (3, "PathErr"),
        (4, "ResvErr"),
        (5, "PathTear"),
        (6, "ResvTear"),
        (7, "ResvConf"),
    ];
    for (number, name) in names {
        assert_eq!(MessageType(number).name(), Some(name));
    }
    // A change of any bit is detected.
    for at in 0..octets.len() * 8 {
        let mut altered = octets.clone();
        altered[at / 8] ^= 0x80 >> (at % 8);
        assert!(!checksum_is_valid(&altered));
        assert!(Message::parse(&altered).is_err(), "bit {at}");
    }
}

/// Proves RSVP-3.1.1-02, RSVP-3.1.1-05 and RSVP-3.1.1-07.
#[test]
fn what_the_header_may_be() {
    let good = message(1, &[SESSION, HOP, TIME, TEMPLATE, TSPEC]);
    assert!(Message::parse(&good).is_ok(), "a checksum of zero is not checked");
    let with = |at: usize, value: u8| {
        let mut octets = good.clone();
        octets[at] = value;
        octets
    };
    for version in [0, 2, 15] {
        assert_eq!(error(&with(0, version << 4)).fault, Fault::Version);
    }
    for kind in [0, 10, 11, 14, 16, 99, 255] {
        assert_eq!(error(&with(1, kind)).fault, Fault::MessageType, "type {kind}");
    }
    assert_eq!(error(&with(3, 1)).fault, Fault::Checksum);
    assert!(Message::parse(&with(5, 0xff)).is_ok(), "reserved octets are ignored");
    for length in [0, 4, 84, 92, 87] {
        assert_eq!(error(&with(7, length)).fault, Fault::MessageLength, "length {length}");
    }
    // A checksum of 0 is sent as 0xFFFF, which verifies as well.
    assert_eq!(checksum(&[0xff, 0xff, 0, 0]), 0xffff);
}

/// Proves RSVP-3.1.1-03: the other flags are ignored.
#[test]
fn flags_are_ignored() {
    for flags in 0..16_u8 {
        let mut octets = message(1, &[SESSION, HOP, TIME, TEMPLATE, TSPEC]);
        octets[0] |= flags;
        let read = Message::parse(&octets).unwrap();
        assert_eq!(read.flags.contains(HeaderFlags::REFRESH_REDUCTION), flags & 1 == 1);
        assert_eq!(read.session, Some(session()));
    }
}
