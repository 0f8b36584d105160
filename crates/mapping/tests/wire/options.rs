//! Options of PCP.

use signalbox_mapping::wire::{Filter, Known, MAX_OCTETS, OptionCode, Options, Request, ResultCode};
use signalbox_mapping::{Answer, DecodeError};

use crate::support::*;

fn known(options: &str) -> Vec<Result<Option<Known<'static>>, DecodeError>> {
    let octets = Box::leak(map_with(options).into_boxed_slice());
    Request::parse(octets).unwrap().options.iter().map(|option| option.known()).collect()
}

fn only(options: &str) -> Known<'static> {
    let mut all = known(options);
    assert_eq!(all.len(), 1);
    all.remove(0).unwrap().unwrap()
}

fn composes(option: Known<'_>, octets: &str) {
    assert_eq!(composed(|w| option.encode(w)), hex(octets), "{option:?}");
    assert_eq!(only(octets), option);
}

/// PCP-13.1-01, PCP-13.2-01, PCP-13.3-01, PCP-7220-01: the known options as the RFCs draw them.
#[test]
fn known_options() {
    composes(Known::ThirdParty("192.0.2.9".parse().unwrap()), "01000010 00000000000000000000ffffc0000209");
    composes(Known::PreferFailure, "02000000");
    let filter = Filter { prefix: Some(24), port: 443, address: "198.51.100.0".parse().unwrap() };
    composes(Known::Filter(filter), "03000014 007801bb 00000000000000000000ffffc6336400");
    let filter = Filter { prefix: Some(64), port: 0, address: "2001:db8::".parse().unwrap() };
    composes(Known::Filter(filter), "03000014 00400000 20010db8000000000000000000000000");
    let none = Filter { prefix: None, port: 0, address: "0.0.0.0".parse().unwrap() };
    composes(Known::Filter(none), "03000014 00000000 00000000000000000000ffff00000000");
    composes(Known::Description(b"Syncthing"), "80000009 53796e637468696e67000000");
}

/// PCP-7.3-01: data of any length, filled up with zeros; reserved octets and padding say nothing.
#[test]
fn lengths_and_padding() {
    let octets = map_with("c8000000 c9ff0001 aaffffff ca000003 aabbcc00 cb000004 aabbccdd");
    let request = Request::parse(&octets).unwrap();
    let seen: Vec<_> = request.options.iter().map(|option| (option.code.0, option.data.to_vec())).collect();
    let expected =
        [(0xc8, vec![]), (0xc9, vec![0xaa]), (0xca, vec![0xaa, 0xbb, 0xcc]), (0xcb, hex("aabbccdd"))];
    assert_eq!(seen, expected);
    let again = composed(|w| request.encode(w));
    assert_eq!(again[60..], hex("c8000000 c9000001 aa000000 ca000003 aabbcc00 cb000004 aabbccdd"));
}

/// PCP-7-01: 43 FILTER options are the most that fit 1,100 octets behind a MAP.
#[test]
fn a_full_message() {
    let filter = "03000014 007801bb 00000000000000000000ffffc6336400";
    let octets = map_with(&filter.repeat(43));
    assert!(octets.len() <= MAX_OCTETS && octets.len() + 24 > MAX_OCTETS);
    assert_eq!(Request::parse(&octets).unwrap().options.iter().count(), 43);
}

/// PCP-7.3-02: codes from 128 on may be ignored.
#[test]
fn which_options_may_be_ignored() {
    assert!(OptionCode(127).is_mandatory() && !OptionCode(128).is_mandatory());
    assert_eq!(known("7f000000 c8000000"), [Ok(None), Ok(None)]);
}

/// PCP-7.3-07: an option that does not end inside the message.
#[test]
fn an_option_beyond_the_message() {
    for octets in ["0300ffff", "03000014 00000000", "c8000005 00000000", "c800ffff 00000000"] {
        let error = Request::parse(&map_with(octets)).unwrap_err();
        assert!(matches!(error, DecodeError::OptionLength { offset: 60, .. }), "{octets}: {error}");
        assert_eq!(error.answer(), Answer::Refuse(ResultCode::MALFORMED_OPTION));
        assert!(Options::from_octets(&hex(octets)).is_err());
    }
}

/// PCP-7.3-08, PCP-13.3-03: contents that a known option cannot have.
#[test]
fn contents_that_an_option_cannot_have() {
    for octets in [
        "01000004 c0000209",
        "02000004 00000000",
        "03000013 007801bb 00000000000000000000ffffc6336400",
        "03000018 007801bb 00000000000000000000ffffc6336400 00000000",
        // 95, 129 and an IPv4 length of 32.
        "03000014 005f0000 00000000000000000000ffffc6336400",
        "03000014 00810000 00000000000000000000ffffc6336400",
        "03000014 00810000 20010db8000000000000000000000000",
        "03000014 00200000 00000000000000000000ffffc6336400",
    ] {
        let error = known(octets).remove(0).unwrap_err();
        assert_eq!(error.answer(), Answer::Refuse(ResultCode::MALFORMED_OPTION), "{octets}: {error}");
    }
    let long = format!("800003f9 {}", "41".repeat(1_020));
    assert!(known(&long).remove(0).is_err(), "a description of 1,017 octets");
}
