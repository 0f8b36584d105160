//! Bits without a meaning (RFC 5971, Appendix A).

use signalbox_gist::wire::{Encapsulation, Message, MriObject, NatTraversal};
use signalbox_wire::hex;

use crate::support::*;

/// The same message twice: with zeros and with ones in reserved bits and padding.
const PAIRS: &[(Encapsulation, &str, &str)] = &[
    (
        Encapsulation::QMode,
        "01 1e 0022 7fc0 80 40
         0000 000d 00 00 6f c0 20010db8000000000000000000000001 20010db8000000000000000000000002
                   40 80 32 b8 000abcde 00000007 0000 0050
         0001 0004 000102030405060708090a0b0c0d0e0f
         0002 0005 05 40 40 00 00007530 6162636465 000000 c0000201
         0005 0001 01020304
         0003 0002 01 000000 01 01 0000
         0004 0003 01 000000 00007530 01 00 00 00",
        "01 1e 0022 7fc0 80 5f
         3000 f00d 00 7f 6f df 20010db8000000000000000000000001 20010db8000000000000000000000002
                   40 80 32 bb fffabcde 00000007 0000 0050
         3001 f004 000102030405060708090a0b0c0d0e0f
         3002 f005 05 40 4f ff 00007530 6162636465 ffffff c0000201
         3005 f001 01020304
         3003 f002 01 ffffff 01 01 ffff
         3004 f003 01 ffffff 00007530 01 00 00 7f",
    ),
    (
        Encapsulation::Association,
        "01 1e 0015 7fc0 03 80
         0007 0007 03 01 01 00 01 00 40 00 c0000201 c6336407 0002 0000 0003 616263 000000
         0000 0003 01 00 48 00 c0000201 c6336407
         0001 0004 000102030405060708090a0b0c0d0e0f
         0008 0003 aaaaaaaa bbbbbbbb cccccccc",
        "01 1e 0015 7fc0 03 9f
         3007 f007 03 01 01 ff 01 00 40 00 c0000201 c6336407 0002 ffff 0003 616263 ffffff
         3000 f003 01 7f 4f ff c0000201 c6336407
         3001 f004 000102030405060708090a0b0c0d0e0f
         3008 f003 aaaaaaaa bbbbbbbb cccccccc",
    ),
    (
        Encapsulation::Association,
        "01 1e 000d 0000 04 80
         0009 000c 02 0001 03 00 00 00 04 011e000d7fc08040
                   0001 0001 001d 0000 0002 0001 05dc 0000 0003 0001 0002 0000 0004 0001 0000 0000",
        "01 1e 000d 0000 04 9f
         3009 f00c 02 0001 03 07 ff 00 04 011e000d7fc08040
                   0001 0001 001d ffff 0002 0001 05dc ffff 0003 0001 0002 ffff 0004 0001 f000 0000",
    ),
];

/// GIST-A-01 GIST-A-02: ones in reserved bits and padding have no effect, and are zeros in composed messages.
#[test]
fn reserved_bits_and_padding() {
    for (encapsulation, zeros, ones) in PAIRS {
        let (mut zeros, mut ones) = (octets(zeros), octets(ones));
        fix_length(&mut zeros);
        fix_length(&mut ones);
        let expected = Message::parse(&zeros, *encapsulation).unwrap();
        let found = Message::parse(&ones, *encapsulation).unwrap();
        assert_eq!(found, expected);
        // The MRI is composed again here; a reply echoes the received octets instead.
        let mri = found.mri.map(|m| MriObject::from(m.mri));
        let nat_traversal = found.nat_traversal.map(|nat| NatTraversal { octets: &[], ..nat });
        let composed = Message { mri, nat_traversal, ..found };
        assert_eq!(hex(&encode(&composed).unwrap()), hex(&zeros));
    }
}
