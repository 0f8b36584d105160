//! Messages that are cut at every length, changed at every octet, or made of anything.

use proptest::prelude::*;
use signalbox_mapping::fuzz;

use crate::support::*;

fn samples() -> Vec<Vec<u8>> {
    vec![
        map(),
        map_with("02000000 03000014 007801bb 00000000000000000000ffffc6336400 80000003 61626300"),
        [header(2, 60), hex(MAP), hex(REMOTE)].concat(),
        header(0, 0),
        hex("0000"),
        hex("00010000 55f01f90 00001c20"),
        hex("00820000 00000102 00501f90 00001c20"),
    ]
}

fn all(octets: &[u8]) {
    fuzz::pcp_message(octets);
    fuzz::nat_pmp_message(octets);
}

#[test]
fn a_cut_message_keeps_the_properties() {
    for octets in samples() {
        (0..=octets.len()).for_each(|length| all(&octets[..length]));
    }
}

#[test]
fn a_changed_octet_keeps_the_properties() {
    for octets in samples() {
        for at in 0..octets.len() {
            for bit in 0..8 {
                let mut changed = octets.clone();
                changed[at] ^= 1 << bit;
                all(&changed);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_octets_keep_the_properties(octets in proptest::collection::vec(any::<u8>(), 0..1_200)) {
        all(&octets);
    }

    #[test]
    fn any_octets_behind_a_header_keep_the_properties(rest in proptest::collection::vec(any::<u8>(), 0..300), opcode in 0_u8..4) {
        all(&[header(opcode, 1), hex(MAP), rest].concat());
    }
}
