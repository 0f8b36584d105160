//! Composed by hand from the drawings of RFC 5973 §4. `docs/wire/natfw.md` shows the same octets.

use core::net::Ipv4Addr;

use signalbox_natfw::wire::{
    Bindings, DataTerminal, ExternalAddress, Filter, FlowInfo, IcmpTypes, Info, Information, Message,
    MessageType, ObjectType, Ports, Publication, RuleAction, TerminalPorts, Wish,
};
use signalbox_wire::{Writer, parse_hex};

/// Vector 1: a CREATE in proxy mode for a flow and its following port, with ICMP types 3, 11, 8 and 0.
pub(crate) const CREATE: &str = "01c00000
    000c0001 00000627  00120001 fffffffe  000f0001 00010001
    00110001 a1b2c3d4  00140002 04030b08 00000000";

/// Vector 2: an EXTERNAL for UDP port 20230 from any sender, which asks for the addresses of all NATs.
pub(crate) const EXTERNAL: &str = "02000000
    000c0001 0000012c  00120001 00000009  000f0001 00010000
    00130003 c0000011 4f060000 00000000
    000e0001 00004000";

/// Vector 3: the RESPONSE of an edge-NAT to vector 2 behind one other NAT.
pub(crate) const RESPONSE: &str = "03000000
    000c0001 0000003c  00120001 00000009  00100001 02010000
    000d0002 afc84000 c000024f
    000e0002 afc84000 0a000001";

/// Vector 4: a RESPONSE that refuses a protocol in NATFW_DTINFO.
pub(crate) const REFUSED: &str = "03000000  00120001 00000009  00100001 07090013";

/// Vector 5: a NOTIFY about a route change.
pub(crate) const NOTIFY: &str = "04000000  00100001 01010000";

/// Vector 6: an EXTERNAL that blocks ESP with this SPI from 192.0.2.0/24.
pub(crate) const BLOCK: &str = "02000000
    000c0001 0000012c  00120001 00000001  000f0001 00020000
    00130003 a0001832 01020304 c0000200";

/// Vector 7: a CREATE that deletes its session, with an unknown object with AB=10.
pub(crate) const CARRIES: &str = "01000000
    000c0001 00000000  00120001 00000008  000f0001 00010000
    87ff0001 01234567";

/// Vector 8: an EXTERNAL for TCP port 22000 that is to be open at once, at this external port and no other.
pub(crate) const PUBLISH: &str = "02000000
    000c0001 0000012c  00120001 00000009  000f0001 00010000
    00130003 c0000006 55f00000 00000000
    07d5000e c00055f0 c000024f a1b2c3d4 e5f60718
    00780000 00000000 00000000 0000ffff c6336400
    00800007 20010db8 00000000 00000000 00000001";

pub(crate) const ALL: [&str; 8] = [CREATE, EXTERNAL, RESPONSE, REFUSED, NOTIFY, BLOCK, CARRIES, PUBLISH];

fn octets(text: &str) -> Vec<u8> {
    parse_hex(text).unwrap()
}

fn compose(message: &Message<'_>) -> Vec<u8> {
    let mut buf = Vec::new();
    message.encode(&mut Writer::new(&mut buf));
    buf
}

/// The message parses to these octets, and the octets to this message.
fn is(text: &str, message: &Message<'_>) {
    let octets = octets(text);
    assert_eq!(Message::parse(&octets).as_ref(), Ok(message));
    assert_eq!(compose(message), octets);
}

/// NATFW-4-01, NATFW-4.1-01, NATFW-4.1-04, NATFW-4.1-06, NATFW-4.2-01, NATFW-4.2.1-01, NATFW-4.2.4-01, NATFW-4.2.6-01,
/// NATFW-4.2.7-01, NATFW-4.2.9-01, NATFW-4.3-03, NATFW-4.3.1-01
#[test]
fn a_create_with_all_its_objects() {
    let types = [3, 11, 8, 0];
    is(
        CREATE,
        &Message {
            proxy: true,
            extend: true,
            lifetime: Some(1575),
            msn: Some(0xffff_fffe),
            efi: Some(FlowInfo { action: RuleAction::ALLOW, sub_ports: 1 }),
            nonce: Some(0xa1b2_c3d4),
            icmp_types: Some(IcmpTypes::of(&types)),
            ..Message::new(MessageType::CREATE)
        },
    );
}

/// NATFW-4.1-04, NATFW-4.2.3-01, NATFW-4.2.3-02, NATFW-4.2.3-03, NATFW-4.2.8-01, NATFW-4.2.8-06, NATFW-4.2.8-08,
/// NATFW-4.3.2-01
#[test]
fn an_external_for_a_port_from_anywhere() {
    let external = Message {
        lifetime: Some(300),
        msn: Some(9),
        efi: Some(FlowInfo::ALLOW),
        terminal: Some(DataTerminal::receiver(17, 20230)),
        bindings: Some(Bindings::EMPTY),
        ..Message::new(MessageType::EXTERNAL)
    };
    is(EXTERNAL, &external);
    let terminal = external.terminal.unwrap();
    assert_eq!(terminal.ports(), Ports { receiver: Some(20230), sender: None });
    assert_eq!((terminal.protocol(), terminal.spi()), (Some(17), None));
}

#[test]
fn a_publication_with_its_filters() {
    let wish = Wish {
        opens: true,
        exactly: true,
        address: Some(Ipv4Addr::new(192, 0, 2, 79)),
        port: Some(22000),
        key: [0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 7, 0x18],
        filters: vec![
            Filter { address: Ipv4Addr::new(198, 51, 100, 0).into(), prefix: 24, port: None },
            Filter { address: "2001:db8::1".parse().unwrap(), prefix: 128, port: Some(7) },
        ],
    };
    let value = wish.octets();
    let publication = Publication::of(&value);
    assert_eq!(publication.unwrap().wish(), wish);
    let message = Message {
        lifetime: Some(300),
        msn: Some(9),
        efi: Some(FlowInfo::ALLOW),
        terminal: Some(DataTerminal::receiver(6, 22000)),
        publication,
        ..Message::new(MessageType::EXTERNAL)
    };
    is(PUBLISH, &message);
    // A filter more than there may be is left out, and what no node may send is not read.
    let nine = Wish { filters: vec![wish.filters[0]; 9], ..wish };
    assert_eq!(Publication::of(&nine.octets()).unwrap().filters().count(), 8);
    assert_eq!(Publication::of(&value[..20]), None);
}

/// NATFW-4.1-04, NATFW-4.2.2-01, NATFW-4.2.3-01, NATFW-4.2.5-01, NATFW-4.3.3-01
#[test]
fn a_response_with_the_addresses() {
    let external = ExternalAddress { address: [192, 0, 2, 79].into(), port: Some(45000) };
    let inner = [10, 0, 0, 1];
    let response = Message {
        lifetime: Some(60),
        msn: Some(9),
        info: Some(Info::PROCESSED.into()),
        external: Some(external),
        bindings: Some(Bindings::of(Some(45000), &inner)),
        ..Message::new(MessageType::RESPONSE)
    };
    is(RESPONSE, &response);
    assert_eq!(response.bindings.unwrap().iter().collect::<Vec<_>>(), [Ipv4Addr::from(inner)]);
}

/// NATFW-4.2.5-01, NATFW-4.3.3-01
#[test]
fn a_refusal_names_the_object() {
    let info = Information { info: Info::PROTOCOL_NOT_SUPPORTED, object: Some(ObjectType::DTINFO) };
    is(REFUSED, &Message { msn: Some(9), info: Some(info), ..Message::new(MessageType::RESPONSE) });
}

/// NATFW-4.1-04, NATFW-4.3.4-01
#[test]
fn a_notify_has_its_info_only() {
    is(NOTIFY, &Message { info: Some(Info::ROUTE_CHANGE.into()), ..Message::new(MessageType::NOTIFY) });
}

/// NATFW-4.2.8-01, NATFW-4.2.4-01
#[test]
fn an_external_that_blocks_an_spi() {
    let terminal = DataTerminal {
        transport: Some((50, Some(TerminalPorts::Spi(0x0102_0304)))),
        sender: ([192, 0, 2, 0].into(), 24),
    };
    is(
        BLOCK,
        &Message {
            lifetime: Some(300),
            msn: Some(1),
            efi: Some(FlowInfo::DENY),
            terminal: Some(terminal),
            ..Message::new(MessageType::EXTERNAL)
        },
    );
    assert_eq!(terminal.spi(), Some(0x0102_0304));
}

/// NATFW-4.2-04
#[test]
fn unknown_objects_are_deleted_or_carried() {
    let octets_in = octets(CARRIES);
    let create = Message::parse(&octets_in).unwrap();
    assert!(create.deletes());
    assert_eq!(create.forwarded.iter().collect::<Vec<_>>(), [&octets_in[28..36]]);
    assert_eq!(compose(&create), octets_in);
    let mut with_optional = octets_in.clone();
    with_optional.extend(octets("47d10000"));
    let parsed = Message::parse(&with_optional).unwrap();
    assert_eq!(compose(&parsed), octets_in, "AB=01 is deleted");
}

/// NATFW-4.1-02, NATFW-4.1-03, NATFW-3.3-02, NATFW-4.2.5-02
#[test]
fn reserved_bits_are_ignored_and_sent_as_zero() {
    for (at, bits) in [(1, 0x3f), (2, 0xff), (3, 0xff), (4, 0x30), (6, 0xf0)] {
        let mut octets_in = octets(CREATE);
        octets_in[at] |= bits;
        let message = Message::parse(&octets_in).unwrap();
        assert_eq!(compose(&message), octets(CREATE), "{at}");
    }
    let mut notify = octets(NOTIFY);
    notify[8] |= 0xf0;
    notify[10] |= 0xf0;
    let message = Message::parse(&notify).unwrap();
    assert_eq!((message.info, compose(&message)), (Some(Info::ROUTE_CHANGE.into()), octets(NOTIFY)));
    let mut external = octets(EXTERNAL);
    external[32] |= 0x1f;
    external[33] = 0xff;
    external[50] |= 0x0f;
    external[51] = 0xff;
    assert_eq!(compose(&Message::parse(&external).unwrap()), octets(EXTERNAL));
}

/// NATFW-4.1-07, NATFW-4.1-08, NATFW-4.1-10
#[test]
fn the_flags_of_a_response_and_a_notify_are_ignored() {
    for text in [RESPONSE, NOTIFY] {
        let mut octets_in = octets(text);
        octets_in[1] = 0xc0;
        let message = Message::parse(&octets_in).unwrap();
        assert!(!message.proxy && !message.extend);
        assert_eq!(compose(&Message { proxy: true, extend: true, ..message }), octets(text));
    }
}

/// NATFW-4.1-09
#[test]
fn extend_needs_proxy() {
    let mut octets_in = octets(EXTERNAL);
    octets_in[1] = 0x40;
    let message = Message::parse(&octets_in).unwrap();
    assert!(!message.proxy && !message.extend);
    assert_eq!(compose(&Message { extend: true, ..message }), octets(EXTERNAL));
}

/// NATFW-4.2.2-02, NATFW-4.2.2-03, NATFW-4.2.3-02: no port is 0 in the message.
#[test]
fn a_port_of_zero_is_no_port() {
    let octets_in = octets(
        "03000000 000c0001 0000003c 00120001 00000009 00100001 02010000
        000d0002 00004000 c000024f 000e0003 00004000 0a000001 0a000002",
    );
    let message = Message::parse(&octets_in).unwrap();
    assert_eq!(message.external.unwrap().port, None);
    let bindings = message.bindings.unwrap();
    assert_eq!((bindings.port, bindings.iter().count()), (None, 2));
    assert_eq!(compose(&message), octets_in);
}

/// NATFW-4.2.8-07: without I the protocol is 0 on sending, and is ignored on reception.
#[test]
fn a_protocol_counts_with_its_flag_only() {
    let head = "02000000 000c0001 0000012c 00120001 00000009 000f0001 00010000 00130002";
    let octets_in = octets(&format!("{head} 00000011 00000000"));
    let message = Message::parse(&octets_in).unwrap();
    assert_eq!(message.terminal.unwrap().protocol(), None);
    assert_eq!(compose(&message), octets(&format!("{head} 00000000 00000000")));
    let octets_in = octets(&format!("{head} 80000011 00000000"));
    let message = Message::parse(&octets_in).unwrap();
    assert_eq!(message.terminal.unwrap().transport, Some((17, None)));
    assert_eq!(compose(&message), octets_in);
}

/// NATFW-4.2.8-08: a wildcard has no address.
#[test]
fn a_wildcard_sender_has_no_address() {
    let terminal = DataTerminal { transport: None, sender: ([192, 0, 2, 1].into(), 0) };
    let external = Message { terminal: Some(terminal), ..Message::new(MessageType::EXTERNAL) };
    let octets = compose(&external);
    assert_eq!(octets[octets.len() - 8..], [0; 8]);
}

/// NATFW-4.3-01
#[test]
fn objects_may_be_in_any_order() {
    let octets_in = octets("03000000 00100001 07090013 00120001 00000009");
    assert_eq!(compose(&Message::parse(&octets_in).unwrap()), octets(REFUSED));
}

/// NATFW-4.2.5-03, NATFW-4.2.5-04, NATFW-4.2.5-05, NATFW-4.2.5-06, NATFW-4.2.5-07, NATFW-4.2.5-08, NATFW-4.2.5-09,
/// NATFW-4.2.5-10, NATFW-4.2.5-11, NATFW-4.2.5-12, NATFW-4.2.5-13, NATFW-4.2.5-14, NATFW-4.2.5-15, NATFW-4.2.5-16
#[test]
fn the_catalogue_has_the_codes_of_the_rfc() {
    let codes = |class: u8| -> Vec<u8> {
        Info::ALL.iter().filter(|(info, _)| info.class.0 == class).map(|(info, _)| info.code).collect()
    };
    assert_eq!(codes(1), (1..=5).collect::<Vec<_>>());
    assert_eq!(codes(2), [1]);
    assert_eq!(codes(3), (1..=0x0b).collect::<Vec<_>>());
    assert_eq!(codes(4), [1]);
    assert_eq!(codes(5), [1, 2, 4, 6, 7]);
    assert_eq!(codes(7), (1..=0x12).collect::<Vec<_>>());
    let name = |class, code| {
        Info { class: signalbox_natfw::wire::InfoClass(class), code }.name().unwrap_or_default()
    };
    for (class, code, text) in [
        (1, 1, "Route change"),
        (1, 2, "Re-authentication"),
        (1, 3, "going down"),
        (1, 4, "lifetime expired"),
        (1, 5, "session terminated"),
        (2, 1, "All successfully processed"),
        (3, 1, "Illegal message type"),
        (3, 2, "Wrong message length"),
        (3, 3, "Bad flags"),
        (3, 4, "Mandatory object missing"),
        (3, 5, "Illegal object"),
        (3, 6, "Unknown object present"),
        (3, 7, "Wrong object length"),
        (3, 8, "Unknown object field"),
        (3, 9, "Invalid Flag-Field"),
        (3, 0x0a, "Duplicate object"),
        (3, 0x0b, "external side"),
        (4, 1, "temporarily not available"),
        (5, 1, "Authentication failed"),
        (5, 2, "Authorization failed"),
        (5, 4, "system error"),
        (5, 6, "No edge-device"),
        (5, 7, "Did not reach"),
        (7, 1, "terminated asynchronously"),
        (7, 2, "Requested lifetime is too big"),
        (7, 3, "No reservation"),
        (7, 4, "policy conflict"),
        (7, 5, "Unknown policy rule action"),
        (7, 6, "not applicable"),
        (7, 7, "NATFW_DTINFO object is required"),
        (7, 8, "sub_ports"),
        (7, 9, "protocol not supported"),
        (7, 0x0a, "Plain IP"),
        (7, 0x0b, "ICMP type"),
        (7, 0x0c, "Source IP"),
        (7, 0x0d, "Destination IP"),
        (7, 0x0e, "Source L4"),
        (7, 0x0f, "Destination L4"),
        (7, 0x10, "Requested lifetime is too small"),
        (7, 0x11, "Modified lifetime is too big"),
        (7, 0x12, "Modified lifetime is too small"),
    ] {
        assert!(name(class, code).contains(text), "{class}/{code}: {}", name(class, code));
    }
}
