//! Message-Routing-Information (RFC 5971 A.3.1).

use signalbox_core::{Direction, LooseEnd, Mri, PathCoupled};
use signalbox_gist::wire::{
    DecodeError, Encapsulation, Message, MriObject, Problem, find_mri, mri_encode, mri_parse,
};
use signalbox_wire::{Writer, hex};

use crate::support::*;

fn written(mri: &Mri) -> Vec<u8> {
    let mut octets = Vec::new();
    mri_encode(mri, &mut Writer::new(&mut octets)).unwrap();
    octets
}

fn v4() -> PathCoupled {
    PathCoupled::between([192, 0, 2, 1].into(), [198, 51, 100, 7].into())
}

fn v6() -> PathCoupled {
    PathCoupled::between("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
}

fn code(result: Result<Mri, DecodeError>) -> (u16, u8, usize) {
    let error = result.unwrap_err();
    let e = error.gist_error().unwrap();
    (e.code.0, e.subcode, error.offset)
}

/// GIST-A.3.1-01 GIST-A.3.1-02 GIST-A.3.1.1-01 GIST-A.3.1.1-02 GIST-A.3.1.1-03 GIST-A.3.1.1-07 GIST-A.3.1.1-12 GIST-9-08:
/// vectors for both IP versions, N=0, DSCP 46 as b8.
#[test]
fn path_coupled_vectors() {
    let plain = Mri::PathCoupled(v4());
    let vector = octets("00 00 40 00 c0000201 c6336407 20 20 00 00");
    assert_eq!(hex(&written(&plain)), hex(&vector));
    assert_eq!(mri_parse(&vector), Ok(plain));
    let all = Mri::PathCoupled(PathCoupled {
        src_prefix: 64,
        protocol: Some(50),
        dscp: Some(46),
        flow_label: Some(0xabcde),
        spi: Some(0x0102_0304),
        src_port: Some(80),
        dst_port: Some(0),
        direction: Direction::Upstream,
        ..v6()
    });
    let vector = octets(
        "00 00 6f e0 20010db8000000000000000000000001 20010db8000000000000000000000002
         40 80 32 b8  000abcde 01020304 0050 0000",
    );
    assert_eq!(hex(&written(&all)), hex(&vector));
    assert_eq!(mri_parse(&vector), Ok(all));
}

/// GIST-A.3.1.1-04 GIST-A.3.1.1-11: the optional words come in their order and only with their flags; a port
/// without its flag is a wildcard with any octets, a flagged 0 is a port that is not known yet.
#[test]
fn optional_words() {
    for bits in 0..16 {
        let set = |bit: u8| bits & bit != 0;
        let p = PathCoupled {
            protocol: Some(17),
            flow_label: set(1).then_some(0xabcde),
            spi: set(2).then_some(0x0102_0304),
            src_port: set(4).then_some(0x5060),
            dst_port: set(8).then_some(0x7080),
            ..v6()
        };
        let ports = match (set(4), set(8)) {
            (false, false) => "",
            (true, false) => "5060 0000",
            (false, true) => "0000 7080",
            (true, true) => "5060 7080",
        };
        // F, S, A and B, beside P.
        let flags = 0x6800
            | u16::from(set(1)) << 9
            | u16::from(set(2)) << 8
            | u16::from(set(4)) << 7
            | u16::from(set(8)) << 6;
        let text = |label: &str| {
            format!(
                "00 00 {flags:04x} 20010db8000000000000000000000001 20010db8000000000000000000000002 80 80 11 00 \
                 {} {} {ports}",
                if set(1) { label } else { "" },
                if set(2) { "01020304" } else { "" },
            )
        };
        let vector = octets(&text("000abcde"));
        let written = written(&Mri::PathCoupled(p));
        assert_eq!(hex(&written), hex(&vector), "{bits:04b}");
        assert_eq!(mri_parse(&vector), Ok(Mri::PathCoupled(p)), "{bits:04b}");
        // The 12 reserved bits before the flow label are ignored.
        assert_eq!(mri_parse(&octets(&text("fffabcde"))), Ok(Mri::PathCoupled(p)), "{bits:04b}");
        // A word more or less than the flags demand does not fit the length.
        let longer = [&vector[..], &[0; 4]].concat();
        for wrong in [&longer[..], &vector[..vector.len() - 4]] {
            let error = mri_parse(wrong).unwrap_err();
            assert_eq!((error.field, error.problem), ("Length", Problem::ObjectLength), "{bits:04b}");
        }
        // The object's own length counts the words of its value.
        let mut m = composed(signalbox_gist::wire::MessageType::DATA, Direction::Downstream);
        m.mri = Some(MriObject::from(Mri::PathCoupled(p)));
        m.nslp_data = Some(&[]);
        let message = encode(&m).unwrap();
        assert_eq!(
            usize::from(u16::from_be_bytes([message[10], message[11]])),
            vector.len() / 4,
            "{bits:04b}"
        );
    }
    let only_b = mri_parse(&octets("00 00 48 40 c0000201 c6336407 20 20 11 00 ffff 0016"));
    assert_eq!(only_b, Ok(Mri::PathCoupled(PathCoupled { protocol: Some(17), dst_port: Some(22), ..v4() })));
}

/// GIST-A.3.1.1-05 GIST-A.3.1.1-07: without P the protocol and without T the DS-field are ignored; reserved bits are
/// ignored too. An echo still repeats the octets.
#[test]
fn ignored_fields() {
    let vector = octets("00 7f 40 1f c0000201 c6336407 20 20 06 bb");
    assert_eq!(mri_parse(&vector), Ok(Mri::PathCoupled(v4())));
    let label = octets(
        "00 00 62 00 20010db8000000000000000000000001 20010db8000000000000000000000002 80 80 00 00 fff00001",
    );
    let expected = Mri::PathCoupled(PathCoupled { flow_label: Some(1), ..v6() });
    assert_eq!(mri_parse(&label), Ok(expected));
}

/// A reply echoes the received octets; only the direction changes.
#[test]
fn echo() {
    for (came, goes) in [
        ("00 7f 40 1f c0000201 c6336407 20 20 06 bb", "00 7f 40 3f c0000201 c6336407 20 20 06 bb"),
        ("01 00 47 ff c0000201 c6336407", "01 00 4f ff c0000201 c6336407"),
    ] {
        let (came, goes) = (octets(came), octets(goes));
        let mut m = composed(signalbox_gist::wire::MessageType::DATA, Direction::Downstream);
        m.nslp_data = Some(&[]);
        for (from, to) in [(&came, &goes), (&goes, &came)] {
            let mri = MriObject { mri: mri_parse(from).unwrap(), octets: from };
            m.mri = Some(mri.inverted());
            let octets = encode(&m).unwrap();
            assert_eq!(hex(&octets[12..12 + to.len()]), hex(to));
            assert_eq!(find_mri(&octets), Some(mri.inverted().mri));
        }
    }
}

/// GIST-A.3.1.1-13 GIST-A.3.1.1-08 GIST-A.3.1.1-09 GIST-A.3.1.1-10 GIST-A.4.4.10-04 GIST-5.8.1.1-04: flags that exclude
/// each other are 10/2 and the offset shows the flag.
#[test]
fn flag_constraints() {
    let addresses = "c0000201 c6336407 20 20 11 00";
    for (flags, tail, at) in [
        ("42 00", "00000001", 6),
        ("41 00", "00000001", 6),
        ("40 80", "00010002", 7),
        ("40 40", "00010002", 7),
        ("43 c0", "0000000100000002 00030004", 6),
    ] {
        let value = octets(&format!("00 00 {flags} {addresses} {tail}"));
        assert_eq!(code(mri_parse(&value)), (10, 2, at), "{flags}");
    }
}

/// GIST-A.3.1.1-13 GIST-A.2-02: a length that does not fit the flags is 10/0: no port word with A, or one too many.
#[test]
fn lengths() {
    for value in [
        "",
        "00 00 40 00",
        "00 00 48 80 c0000201 c6336407 20 20 11 00",
        "00 00 40 00 c0000201 c6336407 20 20 11 00 00000000",
        "00 00 60 00 c0000201 c6336407 20 20 11 00",
        "01 00 40 00 c0000201",
        "01 00 40 00 c0000201 c6336407 20 20 11 00",
    ] {
        let (c, subcode, _) = code(mri_parse(&octets(value)));
        assert_eq!((c, subcode), (10, 0), "{value}");
    }
}

/// GIST-5.8.1.1-04 GIST-A.4.4.10-03 GIST-9-08: a method, IP version or prefix that does not exist is 10/1.
#[test]
fn values() {
    for (value, at) in [
        ("63 00 40 00 c0000201 c6336407 20 20 11 00", 4),
        ("02 00", 4),
        ("00 00 50 00 c0000201 c6336407 20 20 11 00", 6),
        ("00 00 00 00 c0000201 c6336407 20 20 11 00", 6),
        ("01 00 f0 00 c0000201 c6336407", 6),
        ("00 00 40 00 c0000201 c6336407 21 20 11 00", 16),
        ("00 00 40 00 c0000201 c6336407 20 21 11 00", 17),
    ] {
        assert_eq!(code(mri_parse(&octets(value))), (10, 1, at), "{value}");
    }
}

/// GIST-A.3.1.2-01 GIST-A.3.1.2-02 GIST-5.8.2-01: loose-end vectors, 3 words for IPv4 and 9 for IPv6.
#[test]
fn loose_end_vectors() {
    let v4 = LooseEnd {
        src: [192, 0, 2, 1].into(),
        dst: [198, 51, 100, 7].into(),
        direction: Direction::Upstream,
    };
    let v6 = LooseEnd {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        direction: Direction::Downstream,
    };
    for (mri, vector) in [
        (v4, "01 00 48 00 c0000201 c6336407"),
        (v6, "01 00 60 00 20010db8000000000000000000000001 20010db8000000000000000000000002"),
    ] {
        assert_eq!(hex(&written(&Mri::LooseEnd(mri))), hex(&octets(vector)));
        assert_eq!(mri_parse(&octets(vector)), Ok(Mri::LooseEnd(mri)));
    }
}

/// GIST-5.8.2-06: from the edge there is no Q-mode; the RFC has no subcode; this node sends 10/1. A Response has D=1.
#[test]
fn loose_end_upstream() {
    let mri = "0000 0003 01 00 48 00 c0000201 c6336407";
    let query = message(QUERY_HEADER, &[mri, SID, NLI, QUERY_COOKIE]);
    let error = Message::parse(&query, Encapsulation::QMode).unwrap_err();
    assert_eq!(error.gist_error().map(|e| (e.code.0, e.subcode)), Some((10, 1)));
    assert_eq!((error.field, error.offset), ("D-flag", 14));
    let response = message(RESPONSE_HEADER, &[mri, SID, NLI, QUERY_COOKIE]);
    Message::parse(&response, Encapsulation::Normal).unwrap();
}
