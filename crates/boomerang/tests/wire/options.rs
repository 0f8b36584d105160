//! Options: any order, unknown ones, padding, extensions.

use signalbox_boomerang::wire::{
    Authentication, DecodeError, Known, Nodes, Note, OptionType, Rates, Refusal, ReturnProof, edit,
};

use crate::support::*;

fn with(options: &[&str]) -> Vec<u8> {
    let mut octets = hex(REQUEST);
    options.iter().for_each(|text| octets.extend(hex(text)));
    octets
}

fn kinds(octets: &[u8]) -> Vec<OptionType> {
    parse(octets).body.unwrap().options.iter().map(|placed| placed.option.kind()).collect()
}

/// BOOM-3.3-02, BOOM-3.3-03: several options, in any order.
#[test]
fn options_come_in_any_order() {
    assert_eq!(kinds(&with(&[ALICE, AGGREGATION])), [OptionType::UID, OptionType::AGGREGATION]);
    assert_eq!(kinds(&with(&[AGGREGATION, ALICE])), [OptionType::AGGREGATION, OptionType::UID]);
}

/// BOOM-G24-01: parsing ends at an unknown option. BOOM-G24-03: type 0 is padding to the end.
#[test]
fn what_follows_an_unknown_option_is_left_alone() {
    for (tail, octets) in [("77770000 11223344", 8), ("00000000 00000000 00000000", 12)] {
        let message = with(&[ALICE, tail, ALICE]);
        assert_eq!(kinds(&message), [OptionType::UID], "{tail}");
        assert_eq!(parse(&message).body.unwrap().options.tail(), octets + 20);
    }
    assert_eq!(parse(&with(&[ALICE])).body.unwrap().options.tail(), 0);
}

/// BOOM-G24-04: an option that is cut makes the message malformed.
#[test]
fn a_cut_option_is_malformed() {
    for option in [ALICE, AGGREGATION] {
        let mut octets = with(&[option]);
        octets.truncate(octets.len() - 4);
        assert!(matches!(error(&octets), DecodeError::Short { field: "option", .. }));
        octets.truncate(octets.len() - 1);
        assert!(error(&octets).offset() > 0);
    }
}

/// BOOM-G25-02: of two users the first counts.
#[test]
fn the_first_user_counts() {
    let bob = "00010000 626f6200 00000000 00000000 00000000";
    assert_eq!(parse(&with(&[bob, ALICE])).body.unwrap().options.user().unwrap().name(), Some("bob"));
}

#[test]
fn our_extensions_are_read_as_they_are_written() {
    let refusal = Refusal { address: "192.0.2.77".parse().unwrap(), cause: 3 };
    let mut octets = with(&[ALICE]);
    edit::append(&mut octets, &Known::Refusal(refusal));
    assert_eq!(octets[92..], hex("80010000 c000024d 03000000"));
    let proof = Authentication {
        key: 9,
        time_us: 0x0102_0304_0506_0708,
        most: Rates { forward: 64_000, reverse: 0 },
        digest: [0xab; 16],
    };
    edit::append(&mut octets, &Known::Authentication(proof));
    let options = parse(&octets).body.unwrap().options;
    assert_eq!(options.refusal(), Some(refusal));
    assert_eq!(options.authentication(), Some((104, proof)));
    assert_eq!(octets.len() - 104, 40);
    let proof = ReturnProof { node: 0x0102_0304, number: 0x0506_0708_090a_0b0c };
    edit::append_with(&mut octets, 1, &Known::ReturnProof(proof));
    assert_eq!(octets[144..], hex("80030001 01020304 05060708 090a0b0c"));
    let (placed, read) = parse(&octets).body.unwrap().options.proofs().next().unwrap();
    assert_eq!((placed.offset, placed.length, placed.flags, read), (144, ReturnProof::OCTETS, 1, proof));
    edit::append(&mut octets, &Known::Note(Note::of("rule 1")));
    assert_eq!(octets.len() - 160, Note::OCTETS);
    assert_eq!(octets[160..172], hex("80040000 72756c65 20310000"));
    assert_eq!(parse(&octets).body.unwrap().options.note().as_deref(), Some("rule 1"));
    assert_eq!(Note::of(&"ä".repeat(40)).text(), Some("ä".repeat(30)), "cut between characters");
    assert_eq!((Note([0; Note::TEXT]).text(), Note([0xff; Note::TEXT]).text()), (None, None));
    let nodes = Nodes { count: 1, ttl: 63, gaps: 0x8000, ..Nodes::empty(false) };
    let at = octets.len();
    edit::append_with(&mut octets, Nodes::END, &Known::Nodes(nodes));
    assert_eq!(octets[at..at + 12], hex("80050001 013f8000 00000000"));
    let (placed, read) = parse(&octets).body.unwrap().options.nodes().unwrap();
    assert_eq!((placed.offset, placed.length, placed.flags, read), (at, 40, 1, nodes));
    // An implementation without the extensions stops at them, and passes them on.
    assert!(matches!(OptionType::REFUSAL.0, 0x8000..));
}
