//! Every message truncated at every length and changed at every octet.

use signalbox_gist::fuzz;
use signalbox_gist::wire::{Encapsulation, Header, MAGIC, Message, Problem};

use crate::support::*;

/// The messages of `all()` are accepted and stable, so that the sweeps start from valid messages.
#[test]
fn the_messages_are_good() {
    for (encapsulation, octets) in all() {
        let m = Message::parse(&octets, encapsulation).unwrap_or_else(|e| panic!("{e}: {octets:02x?}"));
        let again = encode(&m).unwrap();
        assert_eq!(Message::parse(&again, encapsulation), Ok(m));
        assert_eq!(Encapsulation::of(&m.header, encapsulation.is_datagram()), encapsulation);
    }
}

/// GIST-A.4.4.1-06: a message that is truncated after the header has the wrong length; with a corrected header it is
/// another message, which must not cause a panic.
#[test]
fn truncated() {
    for (encapsulation, octets) in all() {
        for length in 0..octets.len() {
            let mut cut = octets[..length].to_vec();
            let error = Message::parse(&cut, encapsulation).unwrap_err();
            match length {
                0..8 => assert_eq!(error.problem, Problem::ShortHeader),
                _ => assert!(matches!(error.problem, Problem::MessageLength { .. })),
            }
            fuzz::gist_message(&cut);
            if length >= 8 {
                cut.truncate(length / 4 * 4);
                fix_length(&mut cut);
                assert!(Message::parse(&cut, encapsulation).is_err() || cut.len() < octets.len());
                fuzz::gist_message(&cut);
            }
        }
    }
}

/// Each object shortened and lengthened by a word, with and without a corrected header.
#[test]
fn object_lengths() {
    for (_, octets) in all() {
        let mut at = 8;
        while at < octets.len() {
            let length = usize::from(u16::from_be_bytes([octets[at + 2], octets[at + 3]]) & 0xfff);
            for wrong in 0..=length + 2 {
                let mut changed = octets.clone();
                let [high, low] = u16::try_from(wrong).unwrap().to_be_bytes();
                changed[at + 2] = changed[at + 2] & 0xf0 | high;
                changed[at + 3] = low;
                fuzz::gist_message(&changed);
                let rest = changed.split_off(at + 4 + length * 4);
                changed.resize(at + 4 + wrong * 4, 0x5a);
                changed.extend(rest);
                fuzz::gist_message(&{
                    fix_length(&mut changed);
                    changed
                });
            }
            at += 4 + length * 4;
        }
    }
}

/// One octet changed at every place to every value: no panic, and each message that can be parsed encodes to the same
/// octets.
#[test]
fn changed_octets() {
    for (_, mut octets) in all() {
        for at in 0..octets.len() {
            let was = octets[at];
            for value in 0..=255 {
                octets[at] = value;
                fuzz::gist_message(&octets);
            }
            octets[at] = was;
        }
        let datagram = [&MAGIC[..], &octets].concat();
        fuzz::gist_message(&datagram);
    }
}

/// A valid header alone lacks its objects.
#[test]
fn a_header_and_nothing_else() {
    for (encapsulation, octets) in all() {
        let mut header = Header::parse(&octets).unwrap();
        header.length_words = 0;
        let error = Message::parse(&header.octets(), encapsulation).unwrap_err();
        assert_eq!(error.problem, Problem::Missing);
    }
}
