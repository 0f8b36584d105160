//! ADSPEC (RFC 2210 §3.3): composed by hand, and advanced hop by hop.

use signalbox_resources::intserv::{Bandwidth, ErrorTerms, Latency, LocalTerms, Path};
use signalbox_rsvp::wire::{
    Adspec, ControlledLoad, Guaranteed, LocalService, LocalServices, MessageType, Overrides, RawAdspec,
    Service, TrafficControlValue,
};

use super::support::{hex, written};

/// The general fragment of a path of one hop, with this break bit, header and hops in hexadecimal.
const GENERAL: &str = "01000008 04000001 00000001 06000001 49989680 08000001 00000064 0a000001 000005dc";
const EMPTY_GUARANTEED: &str = "02000000";
const TERMS: &str = "02000008 85000001 000005dc 86000001 00000050 87000001 000005dc 88000001 00000050";
const CONTROLLED: &str = "05000000";

fn object(fragments: &[&str]) -> Vec<u8> {
    let contents = hex(&fragments.concat());
    let words = u32::try_from(contents.len() / 4).unwrap();
    let length = u16::try_from(contents.len() + 8).unwrap();
    [&length.to_be_bytes()[..], &[13, 2], &words.to_be_bytes(), &contents].concat()
}

fn read(fragments: &[&str]) -> Result<Adspec, TrafficControlValue> {
    RawAdspec::from_octets(&object(fragments)).unwrap().read().map_err(|fault| fault.value)
}

fn advance(fragments: &[&str], local: &LocalServices) -> Vec<u8> {
    let mut out = vec![0xee];
    RawAdspec::from_octets(&object(fragments)).unwrap().advance(local, &mut out).unwrap();
    assert_eq!(out.remove(0), 0xee, "appended");
    out
}

fn service() -> LocalService {
    LocalService { overrides: Overrides::default(), terms: LocalTerms { c: 1500, d: 80 }, reshapes: false }
}

/// A node with both services on a link of 1.25 MB/s with an MTU of 1000.
fn local() -> LocalServices {
    LocalServices {
        general: Path::hop(1_250_000, Latency(10), 1000),
        guaranteed: Some(service()),
        controlled_load: Some(service()),
    }
}

/// The same path after one more hop.
const GENERAL_2: &str = "01000008 04000001 00000002 06000001 49989680 08000001 0000006e 0a000001 000003e8";

/// Proves RSVP-A.12-01, RSVPIS-2210-3.3.2-01, RSVPIS-2210-3.3.3-01, RSVPIS-2210-3.3.3-02, RSVPIS-2210-3.3.4-01 and
/// RSVPIS-2210-3.3.6-01.
#[test]
fn by_hand() {
    let general = Path {
        broken: false,
        hops: 1,
        bandwidth: Bandwidth::of_link(1_250_000),
        latency: Latency(100),
        mtu: 1500,
    };
    let terms = ErrorTerms { c_tot: 1500, d_tot: 80, c_sum: 1500, d_sum: 80 };
    let whole = Adspec {
        general,
        guaranteed: Some(Guaranteed { broken: false, terms: Some(terms), overrides: Overrides::default() }),
        controlled_load: Some(ControlledLoad::default()),
    };
    let empty = Adspec {
        guaranteed: Some(Guaranteed { broken: true, terms: None, ..Guaranteed::default() }),
        ..whole
    };
    let without = Adspec { guaranteed: None, ..whole };
    let all = [
        (whole, 84, &[GENERAL, TERMS, CONTROLLED][..]),
        (empty, 52, &[GENERAL, "02800000", CONTROLLED]),
        (without, 48, &[GENERAL, CONTROLLED]),
    ];
    for (adspec, octets, fragments) in all {
        assert_eq!(object(fragments).len(), octets);
        assert_eq!(read(fragments), Ok(adspec));
        assert_eq!(written(MessageType::PATH, |w| _ = w.adspec(&adspec))[8..], object(fragments));
    }
    assert_eq!(object(&[GENERAL, TERMS, CONTROLLED])[4..8], [0, 0, 0, 19]);
    assert_eq!(without.path(Service::Guaranteed), None, "not listed: not to be asked for");
    assert_eq!(empty.path(Service::Guaranteed), Some(Path { broken: true, ..general }));
    assert_eq!(empty.path(Service::ControlledLoad), Some(general));
    let start = written(MessageType::PATH, |w| _ = w.adspec(&Adspec::START));
    assert_eq!(start.len(), 8 + 84);
    assert_eq!(RawAdspec::from_octets(&start[8..]).unwrap().read(), Ok(Adspec::START));
}

/// Proves RSVPIS-2210-3.3.2-03, RSVPIS-2210-3.3.3-04, RSVPIS-2210-3.3.4-02 and RSVPIS-2215-3.2-01: both services are
/// supported.
#[test]
fn one_hop_further() {
    let terms = "02000008 85000001 00000bb8 86000001 000000a0 87000001 00000bb8 88000001 000000a0";
    assert_eq!(advance(&[GENERAL, TERMS, CONTROLLED], &local()), object(&[GENERAL_2, terms, CONTROLLED]));
    let reshaped = "02000008 85000001 00000bb8 86000001 000000a0 87000001 000005dc 88000001 00000050";
    let reshaping = LocalService { reshapes: true, ..service() };
    assert_eq!(
        advance(&[GENERAL, TERMS], &LocalServices { guaranteed: Some(reshaping), ..local() }),
        object(&[GENERAL_2, reshaped])
    );
    let saturated = TERMS.replace("000005dc", "fffffff0");
    let expected = "02000008 85000001 ffffffff 86000001 000000a0 87000001 ffffffff 88000001 000000a0";
    assert_eq!(advance(&[GENERAL, &saturated], &local()), object(&[GENERAL_2, expected]));
}

/// Proves RSVPIS-2210-3.3.3-03: the empty fragment is expanded, its break bit stays.
#[test]
fn empty_guaranteed_fragment() {
    for (empty, flag) in [(EMPTY_GUARANTEED, "00"), ("02800000", "80")] {
        let before = object(&[GENERAL, empty, CONTROLLED]);
        let after = advance(&[GENERAL, empty, CONTROLLED], &local());
        let terms = format!("02{flag}{}", &TERMS[4..]);
        assert_eq!(after, object(&[GENERAL_2, &terms, CONTROLLED]));
        assert_eq!(after.len(), before.len() + 32);
    }
}

/// Proves RSVPIS-2210-2.1-03, RSVPIS-2210-3.3-03, RSVPIS-2210-3.3-04, RSVPIS-2210-3.3.3-05 and RSVPIS-2210-3.3.2-02: an
/// unsupported service gets its break bit and nothing else; services are not added.
#[test]
fn services_that_are_not_done() {
    let nothing = LocalServices { guaranteed: None, controlled_load: None, ..local() };
    let strange = "4d000003 99000002 11111111 22222222";
    assert_eq!(
        advance(&[GENERAL, TERMS, CONTROLLED, strange], &nothing),
        object(&[
            GENERAL_2,
            &TERMS.replacen("02000008", "02800008", 1),
            "05800000",
            &strange.replacen("4d00", "4d80", 1)
        ])
    );
    assert_eq!(advance(&[GENERAL, EMPTY_GUARANTEED], &nothing), object(&[GENERAL_2, "02800000"]));
    assert_eq!(advance(&[GENERAL], &local()), object(&[GENERAL_2]));
    // Nodes without RSVP in between: the global break bit, which is never cleared.
    let gap = LocalServices { general: Path { broken: true, ..local().general }, ..local() };
    let broken = GENERAL_2.replacen("01000008", "01800008", 1);
    assert_eq!(advance(&[GENERAL], &gap), object(&[&broken]));
    let arrived = GENERAL.replacen("01000008", "01800008", 1);
    assert_eq!(advance(&[&arrived], &local()), object(&[&broken]));
}

/// Proves RSVPIS-2210-3.3-02, RSVPIS-2210-3.3.5-01, RSVPIS-2210-3.3.5-02, RSVPIS-2210-3.3.5-03, RSVPIS-2210-3.3.5-04 and
/// RSVPIS-2215-2-01: values of one service.
#[test]
fn overrides() {
    // A value arrives, and there is none here: it is composed with the general value of this node.
    let bandwidth = |value: f32| format!("06000001 {:08x}", value.to_bits());
    let arriving = format!("05000002 {}", bandwidth(2e6));
    let after = format!("05000002 {}", bandwidth(1.25e6));
    assert_eq!(advance(&[GENERAL, &arriving], &local()), object(&[GENERAL_2, &after]));
    let arriving = format!("05000002 {}", bandwidth(1e6));
    assert_eq!(advance(&[GENERAL, &arriving], &local()), object(&[GENERAL_2, &arriving]));
    // No value arrives, and there is one here: it is composed with the general value that arrived, and inserted.
    let mine =
        Overrides { mtu: Some(250), hops: None, bandwidth: Some(Bandwidth::of_link(1000)), latency: None };
    let here = LocalService { overrides: mine, ..service() };
    let own = LocalServices { guaranteed: Some(here), controlled_load: Some(here), ..local() };
    let terms = "85000001 00000bb8 86000001 000000a0 87000001 00000bb8 88000001 000000a0";
    let after = [
        GENERAL_2.to_owned(),
        format!("0200000c {terms} {} 0a000001 000000fa", bandwidth(1000.0)),
        format!("05000004 {} 0a000001 000000fa", bandwidth(1000.0)),
    ];
    assert_eq!(advance(&[GENERAL, TERMS, CONTROLLED], &own), object(&after.each_ref().map(String::as_str)));
    // Both values are composed; unknown parameters stay at their places.
    let arriving =
        format!("05000008 {} 07000001 0000abcd 0a000001 000000c8 4d000001 00000007", bandwidth(500.0));
    let both = advance(&[GENERAL, &arriving], &own);
    assert_eq!(both, object(&[GENERAL_2, &arriving]));
    // A receiver takes the service's value where there is one.
    let adspec = RawAdspec::from_octets(&both).unwrap().read().unwrap();
    let path = adspec.path(Service::ControlledLoad).unwrap();
    assert_eq!((path.mtu, path.bandwidth.value(), path.hops), (200, 500.0, 2));
    assert_eq!(adspec.general.mtu, 1000);
}

/// Proves RSVPIS-2210-3.3-01: the general fragment first. The services should follow by number; other orders are
/// accepted, because some nodes have them.
#[test]
fn order() {
    let bad = Err(TrafficControlValue::BAD_ADSPEC);
    assert_eq!(read(&[CONTROLLED, GENERAL]), bad);
    let any = read(&[GENERAL, CONTROLLED, TERMS]).unwrap();
    assert_eq!(any, read(&[GENERAL, TERMS, CONTROLLED]).unwrap());
    assert!(!advance(&[GENERAL, CONTROLLED, TERMS], &local()).is_empty());
    assert_eq!(read(&[GENERAL, CONTROLLED, CONTROLLED]), bad);
    assert_eq!(read(&[GENERAL, GENERAL]), bad);
    assert_eq!(read(&[]), bad);
    assert!(read(&[GENERAL, "04000000", CONTROLLED, "06000000"]).is_ok(), "services that are not known");
}

/// Proves RSVPIS-2215-3.3-02 and RSVPIS-2215-3.3-01: invalid bandwidths; 0 is unknown.
#[test]
fn bandwidths() {
    let general = |bits: u32| GENERAL.replacen("49989680", &format!("{bits:08x}"), 1);
    for bits in [0x8000_0000, 0xff80_0000, 0x7fc0_0000, 0xbf80_0000, 0x3f00_0000] {
        assert_eq!(read(&[&general(bits)]), Err(TrafficControlValue::BAD_ADSPEC), "{bits:#x}");
        let over = format!("05000002 06000001 {bits:08x}");
        assert_eq!(read(&[GENERAL, &over]), Err(TrafficControlValue::BAD_ADSPEC), "{bits:#x}");
    }
    assert_eq!(read(&[&general(0)]).unwrap().general.bandwidth, Bandwidth::UNKNOWN);
    let unlimited = read(&[&general(f32::INFINITY.to_bits())]).unwrap();
    assert_eq!(unlimited.general.bandwidth, Bandwidth::MOST, "the next link limits it");
    assert_eq!(advance(&[&general(0)], &local()), object(&[&GENERAL_2.replacen("49989680", "00000000", 1)]));
}

/// Proves RSVPIS-2210-3.3-05, and RSVPIS-2210-A1-05 for ADSPECs: the lengths decide.
#[test]
fn lengths() {
    let bad = |octets: &[u8]| {
        let raw = RawAdspec::from_octets(octets).unwrap();
        let mut out = Vec::new();
        let both = (
            raw.read().map_err(|f| f.value).map(|_| ()),
            raw.advance(&local(), &mut out).map_err(|f| f.value),
        );
        assert!(out.is_empty() || both.1.is_ok());
        both == (Err(TrafficControlValue::BAD_ADSPEC), Err(TrafficControlValue::BAD_ADSPEC))
    };
    let good = object(&[GENERAL, TERMS, CONTROLLED]);
    assert!(!bad(&good));
    // The headers of message, fragments and parameters, each off by one.
    for word in [1, 2, 3, 5, 7, 9, 12, 14, 20] {
        for off in [1_u32.wrapping_neg(), 1, 0x7fff] {
            let mut octets = good.clone();
            let field = &mut octets[word * 4..word * 4 + 4];
            let value = u32::from_be_bytes((&*field).try_into().unwrap());
            let value = (value & 0xffff_0000) | (value.wrapping_add(off) & 0xffff);
            field.copy_from_slice(&value.to_be_bytes());
            assert!(bad(&octets), "word {word}");
        }
    }
    let mut version = good.clone();
    version[4] = 0x10;
    assert!(bad(&version));
    // A fragment that is longer by an unknown parameter.
    let longer = TERMS.replacen("02000008", "0200000a", 1) + "ef000001 12345678";
    assert!(!bad(&object(&[GENERAL, &longer])));
    let nothing = LocalServices { guaranteed: None, controlled_load: None, ..local() };
    let broken = longer.replacen("02000", "02800", 1);
    assert_eq!(advance(&[GENERAL, &longer], &nothing), object(&[GENERAL_2, &broken]));
    assert!(bad(&object(&[GENERAL, "02000002 85000001 00000001"])), "only one of four terms");
}

/// Of bad contents the part that can be parsed is used.
#[test]
fn a_bad_part_is_left_out() {
    let part = |fragments: &[&str]| RawAdspec::from_octets(&object(fragments)).unwrap().read_part();
    let whole = read(&[GENERAL, TERMS, CONTROLLED]).unwrap();
    assert_eq!(part(&[GENERAL, TERMS, CONTROLLED]), Some(whole));
    assert_eq!(part(&[GENERAL, TERMS, CONTROLLED, CONTROLLED]), Some(whole));
    let broken_terms = "02000002 85000001 00000001";
    let left = part(&[GENERAL, broken_terms, CONTROLLED]).unwrap();
    assert_eq!((left.guaranteed, left.controlled_load), (None, whole.controlled_load));
    assert_eq!(part(&[CONTROLLED, GENERAL]), None);
    assert_eq!(part(&[]), None);
}
