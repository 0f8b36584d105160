//! Every QSPEC truncated at every length and changed at every octet.

use signalbox_qos::fuzz;
use signalbox_qos::wire::qspec::{Problem, Qspec};

use super::support::*;

/// The QSPECs of `all()` are accepted and stable, so that the sweeps start from valid ones.
#[test]
fn they_are_good() {
    for octets in all() {
        let qspec = Qspec::parse(&octets).unwrap_or_else(|e| panic!("{e}: {octets:02x?}"));
        assert_eq!(encode(&qspec).unwrap(), octets);
        fuzz::qspec(&octets);
    }
}

/// A truncated QSPEC has the wrong length; with a corrected header it is another QSPEC, which must not cause a panic.
#[test]
fn truncated() {
    for octets in all() {
        for length in 0..octets.len() {
            let mut cut = octets[..length].to_vec();
            assert_eq!(Qspec::parse(&cut).unwrap_err().problem, Problem::Length);
            fuzz::qspec(&cut);
            if length >= 4 {
                cut.truncate(length / 4 * 4);
                fix_length(&mut cut);
                fuzz::qspec(&cut);
            }
        }
        let longer = [&octets[..], &[0; 4]].concat();
        assert_eq!(Qspec::parse(&longer).unwrap_err().problem, Problem::Length);
    }
}

fn fix_length(octets: &mut [u8]) {
    let [high, low] = u16::try_from(octets.len() / 4 - 1).unwrap().to_be_bytes();
    octets[2] = octets[2] & 0xf0 | high;
    octets[3] = low;
}

/// One octet changed at every place to every value: there is no panic, and each QSPEC that can be parsed encodes to the
/// same octets.
#[test]
fn changed_octets() {
    for mut octets in all() {
        for at in 0..octets.len() {
            let was = octets[at];
            for value in 0..=255 {
                octets[at] = value;
                fuzz::qspec(&octets);
            }
            octets[at] = was;
        }
    }
}

/// Words removed and inserted, with a corrected header.
#[test]
fn words_lost_and_doubled() {
    for octets in all() {
        for at in (4..octets.len()).step_by(4) {
            let mut lost = octets.clone();
            lost.drain(at..at + 4);
            fix_length(&mut lost);
            fuzz::qspec(&lost);
            let mut doubled = octets.clone();
            doubled.splice(at..at, octets[at..at + 4].to_vec());
            fix_length(&mut doubled);
            fuzz::qspec(&doubled);
        }
    }
}
