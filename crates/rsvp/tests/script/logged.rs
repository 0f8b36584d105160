//! Faults of messages that are not answered, but counted for operators (RFC 2205 Appendix B, end).

use signalbox_rsvp::engine::neighbor::{Algorithm, IntegrityConfig, Interface, KeyUse};
use signalbox_rsvp::engine::{Config, IntegrityKey, InterfaceConfig, Secret};
use signalbox_rsvp::wire::{Class, ErrorCode, ErrorFlags, ErrorSpec, Message, MessageType, RsvpHop, Style};

use crate::rig::{B, Path, Resv, Rig, addr, at, compose, kinds, load, sender, session, tspec};

/// Where an object starts, and how long it is.
fn object(octets: &[u8], class: Class) -> (usize, usize) {
    let found = Message::parse(octets).unwrap().object(class).unwrap();
    (found.offset, found.octets.len())
}

/// With other octets there, and without a checksum.
fn altered(mut octets: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    octets[at..at + new.len()].copy_from_slice(new);
    octets[2..4].fill(0);
    octets
}

/// Without the object.
fn without(octets: &[u8], class: Class) -> Vec<u8> {
    let (start, length) = object(octets, class);
    let mut shorter = octets.to_vec();
    shorter.drain(start..start + length);
    let total = u16::try_from(shorter.len()).unwrap();
    altered(shorter, 6, &total.to_be_bytes())
}

fn path() -> Vec<u8> {
    Path::new().octets()
}

/// A ResvConf for this receiver.
fn confirmation(receiver: &str) -> Vec<u8> {
    let error =
        ErrorSpec { node: at(1, 9), flags: ErrorFlags::default(), code: ErrorCode::CONFIRMATION, value: 0 };
    compose(MessageType::RESV_CONF, 60, |w| {
        w.session(&session(), false).error_spec(&error).resv_confirm(addr(receiver)).style(Style::Ff);
        w.flowspec(&load(B)).filter_spec(&sender(1));
    })
}

/// The messages with a fault, and their counters.
fn faults() -> Vec<(&'static str, Vec<u8>)> {
    let hop = object(&path(), Class::RSVP_HOP).0;
    let session_at = object(&path(), Class::SESSION).0;
    let strange = [0, 8, 100, 3, 0, 0, 0, 0];
    let stray = Path { extra: vec![0, 8, 8, 1, 0, 0, 0, 10], ..Path::new() };
    let twice = Resv { flows: vec![(None, vec![sender(1)])], ..Resv::ff(&[]) };
    let late = Resv::ff(&[(load(B), 1)]).octets();
    let (style_at, style_octets) = object(&late, Class::STYLE);
    let mut reordered = late.clone();
    // STYLE and the objects behind it are exchanged.
    reordered[style_at..].rotate_left(style_octets);
    let path_err = compose(MessageType::PATH_ERR, 255, |w| {
        let error = ErrorSpec { node: at(2, 9), flags: ErrorFlags::default(), code: ErrorCode(2), value: 0 };
        w.session(&session(), false).error_spec(&error).body(&strange);
        w.sender_template(&sender(1)).sender_tspec(&tspec(B));
    });
    let foreign = Resv { hop: RsvpHop { addr: at(2, 9), lih: 99 }, ..Resv::ff(&[(load(B), 1)]) };
    let mut checked = path();
    checked[2] ^= 0x55;
    vec![
        ("bad_length", altered(path(), 6, &[0, 8])),
        ("bad_version", altered(path(), 0, &[0x20])),
        ("bad_checksum", checked),
        ("bad_type", altered(path(), 1, &[99])),
        ("bad_object_length", altered(path(), hop, &[0, 13])),
        ("bad_hop", altered(path(), hop + 4, &[224, 0, 0, 1])),
        // A SrcPort without a DstPort.
        ("bad_source_port", altered(path(), session_at + 10, &[0, 0])),
        ("missing_object", without(&path(), Class::TIME_VALUES)),
        ("illegal_object", stray.octets()),
        ("wrong_order", altered(reordered, 2, &[0, 0])),
        ("bad_descriptors", twice.octets()),
        ("bad_handle", foreign.octets()),
        ("unknown_object", path_err),
        ("bad_confirmation", confirmation("10.5.5.5")),
    ]
}

/// RSVP-B-20, RSVP-B-21, RSVP-3.10-09: each has a counter of its own, changes nothing, and is not answered.
#[test]
fn format_errors_are_counted_and_not_reported() {
    for (name, octets) in faults() {
        let mut rig = Rig::new();
        rig.path(&Path { sender: sender(2), ..Path::new() });
        rig.resv(&Resv::ff(&[(load(B), 2)]));
        let count = |rig: &Rig| -> Vec<(&'static str, u64)> {
            let ours = rig.rsvp.counters().iter();
            let wrong = ["bad_", "missing_", "illegal_", "wrong_", "malformed", "unknown_"];
            let of = |name: &str| wrong.iter().any(|one| name.starts_with(one));
            ours.filter(|one| of(one.name)).map(|one| (one.name, one.value)).collect()
        };
        assert!(count(&rig).iter().all(|(_, count)| *count == 0));
        let sent = match octets.get(1) {
            Some(1) => rig.packet(1, sender(1).src, session().dest, 60, &octets),
            _ => rig.neighborly(2, at(2, 9), &octets),
        };
        assert_eq!(kinds(&sent), [], "{name}");
        let counted: Vec<_> = count(&rig).into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(name, 1)]);
        assert_eq!((rig.rsvp.senders(), rig.reservations()), (1, 1), "{name}");
    }
}

/// RSVP-B-20, RSVP-B-21: messages that fail authentication are not answered either.
#[test]
fn integrity_failures_are_counted_and_not_reported() {
    let integrity = IntegrityConfig { sending: true, receiving: true, ..IntegrityConfig::default() };
    let neighbors = Some(Interface { integrity, ..Interface::default() });
    let own = InterfaceConfig { neighbors, ..InterfaceConfig::default() };
    let key = IntegrityKey {
        id: 1,
        algorithm: Algorithm::HmacSha256,
        secret: Secret::new(*b"secret"),
        usage: KeyUse::Both,
        interface: Some("eth1".to_owned()),
        neighbor: None,
        from: 0,
        until: None,
    };
    let interfaces = [("eth1".to_owned(), own)].into();
    let mut rig = Rig::with(Config { interfaces, keys: vec![key], ..Config::default() });
    assert_eq!(kinds(&rig.path(&Path::new())), []);
    assert_eq!((rig.rsvp.neighbors().counters().integrity_missing, rig.rsvp.senders()), (1, 0));
}
