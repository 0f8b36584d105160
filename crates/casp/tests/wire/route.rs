//! RECORD_ROUTE and ROUTE.

use signalbox_casp::wire::route::{Hop, MAX_ENTRIES};
use signalbox_wire::Writer;

use crate::support::hex;

#[test]
fn entries_are_as_in_version_00() {
    let hops = [
        Hop { transport: 6, address: "192.0.2.1:50003".parse().unwrap() },
        Hop { transport: 17, address: "[2001:db8::1]:50003".parse().unwrap() },
    ];
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    hops.iter().for_each(|hop| hop.encode(&mut w));
    assert_eq!(octets, hex("0406c353 c0000201 0611c353 20010db8 00000000 00000000 00000001"));
    assert_eq!(Hop::all(&octets), Some(hops.to_vec()));
}

#[test]
fn routes_that_cannot_be_read_are_none() {
    for octets in ["04", "0406c353", "0506c353 c0000201", "0606c353 c0000201"] {
        assert_eq!(Hop::all(&hex(octets)), None, "{octets}");
    }
    let one = hex("0406c353 c0000201");
    assert_eq!(Hop::all(&one.repeat(MAX_ENTRIES)).map(|all| all.len()), Some(64));
    assert_eq!(Hop::all(&one.repeat(MAX_ENTRIES + 1)), None);
    assert_eq!(Hop::all(&[]), Some(Vec::new()));
}
