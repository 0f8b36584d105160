//! RECORD_ROUTE and ROUTE.

use signalbox_casp::wire::route::{Hop, MAX_ENTRIES, Route};
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
    let route = Route::parse(&octets).unwrap();
    assert_eq!(route.iter().collect::<Vec<_>>(), hops);
    assert_eq!((route.len(), route.last(), route.octets()), (2, Some(hops[1]), &octets[..]));
    assert_eq!((route.without_last().octets(), route.without_last().last()), (&octets[..8], Some(hops[0])));
    assert!(route.without_last().without_last().is_empty() && Route::EMPTY.without_last() == Route::EMPTY);
    assert!(route.has(hops[1].address.ip()) && !route.has("192.0.2.2".parse().unwrap()));
}

#[test]
fn routes_that_cannot_be_read_are_none() {
    for octets in ["04", "0406c353", "0506c353 c0000201", "0606c353 c0000201"] {
        assert_eq!(Route::parse(&hex(octets)), None, "{octets}");
    }
    let entry = hex("0406c353 c0000201");
    let count = |count: usize| Route::parse(&entry.repeat(count)).map(|route| route.len());
    assert_eq!((count(MAX_ENTRIES), count(MAX_ENTRIES + 1)), (Some(64), None));
    assert_eq!((count(0), Route::EMPTY.last()), (Some(0), None));
}
