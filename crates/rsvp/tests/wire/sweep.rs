//! Every message cut at every length and changed at every octet; random octets.

use proptest::prelude::*;
use signalbox_rsvp::fuzz::{rsvp_adspec, rsvp_message};

use super::support::{
    ACK, CONFIRM, CONTROLLED, ERROR, FF, FILTER, FILTER_2, GUARANTEED, HOP, INTEGRITY, MESSAGE_ID, POLICY,
    SCOPE, SE, SESSION, TEMPLATE, TIME, TSPEC, WF, hex, message,
};

const ADSPEC: &str = "00540d02 00000013 01000008 04000001 00000001 06000001 47f42400 08000001 00000064 0a000001 \
                      000005dc 02000008 85000001 000005dc 86000001 00000050 87000001 000005dc 88000001 00000050 \
                      05000000";

const DIAGNOSTIC: &str = "002c1e01 0a020001 deadbeef 05dc0010 0a000102 000c0b01 0a000001 00000fa0 000c0a01 0a000109 \
                          0000c350";
const DIAG_RESPONSE: &str = "00442001 00018000 0a000101 0a000202 0a000001 03a3001e 00080801 0000000a 00240902 00000007 \
                             05000006 7f000005 47f42400 461c4000 47f42400 00000040 000005dc";

/// One message of each kind, with all its objects.
fn samples() -> Vec<Vec<u8>> {
    let kept = "0008fa01 12345678";
    let plain = vec![
        message(1, &[INTEGRITY, ACK, MESSAGE_ID, SESSION, HOP, TIME, POLICY, TEMPLATE, TSPEC, ADSPEC, kept]),
        message(2, &[SESSION, HOP, TIME, CONFIRM, SCOPE, POLICY, WF, GUARANTEED]),
        message(2, &[SESSION, HOP, TIME, FF, CONTROLLED, FILTER, FILTER_2, GUARANTEED, FILTER]),
        message(3, &[SESSION, ERROR, POLICY, TEMPLATE, TSPEC, ADSPEC]),
        message(4, &[SESSION, HOP, ERROR, SCOPE, POLICY, SE, CONTROLLED, FILTER, FILTER_2]),
        message(5, &[SESSION, HOP, TEMPLATE, TSPEC]),
        message(6, &[SESSION, HOP, SCOPE, FF, FILTER, FILTER_2]),
        message(7, &[SESSION, ERROR, CONFIRM, FF, CONTROLLED, FILTER]),
        message(8, &[SESSION, HOP, DIAGNOSTIC, "000c2101 09000c02 08010000", "00081f01 00000000"]),
        message(
            9,
            &[SESSION, HOP, DIAGNOSTIC, "00101f01 00000001 0a000301 0a000201", DIAG_RESPONSE, DIAG_RESPONSE],
        ),
        message(13, &[INTEGRITY, ACK, "000c1802 00abcdef 00000007"]),
        message(15, &[ACK, MESSAGE_ID, "00101901 00abcdef 00000005 00000006"]),
        message(15, &["00181902 00abcdef 00000005 0a000001 00000006 0a000002"]),
        message(20, &["000c1601 01020304 05060708"]),
        message(25, &["00144001 00000123 456789ab 01020304 05060708"]),
        message(26, &[INTEGRITY, "00144001 00000123 456789ab 01020304 05060708"]),
    ];
    let bundle = [&plain[1][..], &plain[5]].concat();
    let length = u16::try_from(bundle.len() + 8).unwrap().to_be_bytes();
    let bundle = [&[0x11, 12, 0, 0, 63, 0], &length[..], &bundle].concat();
    plain.into_iter().chain([bundle]).collect()
}

#[test]
fn every_length() {
    for sample in samples() {
        for length in 0..sample.len() {
            rsvp_message(&sample[..length]);
        }
    }
}

#[test]
fn every_octet() {
    for sample in samples() {
        assert!(signalbox_rsvp::wire::Message::parse(&sample).is_ok(), "{sample:02x?}");
        for at in 0..sample.len() {
            for value in [
                0,
                1,
                2,
                3,
                4,
                8,
                12,
                0x40,
                0x7f,
                0x80,
                0xc0,
                0xfe,
                0xff,
                sample[at] ^ 1,
                sample[at].wrapping_add(4),
            ] {
                let mut changed = sample.clone();
                changed[at] = value;
                rsvp_message(&changed);
            }
        }
    }
}

#[test]
fn every_adspec_octet() {
    let contents = &hex(ADSPEC)[4..];
    for at in 0..contents.len() {
        for value in 0..=255 {
            let mut changed = contents.to_vec();
            changed[at] = value;
            rsvp_adspec(&changed);
        }
        rsvp_adspec(&contents[..at]);
    }
}

proptest! {
    #[test]
    fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        rsvp_message(&octets);
        rsvp_adspec(&octets);
    }

    /// Objects of one message put into another, in any order.
    #[test]
    fn any_objects(kind in 0..27_u8, picked in proptest::collection::vec((0..17_usize, 0..12_usize), 0..12)) {
        let samples = samples();
        let mut objects = Vec::new();
        for (sample, nth) in picked {
            let sample = &samples[sample];
            let picked = signalbox_rsvp::wire::Objects::of(sample).filter_map(Result::ok).nth(nth);
            objects.extend_from_slice(picked.map_or(&[][..], |object| object.octets));
        }
        let length = u16::try_from(objects.len() + 8).unwrap().to_be_bytes();
        rsvp_message(&[&[0x10, kind, 0, 0, 63, 0], &length[..], &objects].concat());
    }
}
