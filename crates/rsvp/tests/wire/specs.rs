//! FLOWSPEC and SENDER_TSPEC (RFC 2210 §3.1, §3.2, appendix A).

use signalbox_resources::intserv::{RSpec, TSpec};
use signalbox_rsvp::wire::{FlowSpec, MessageType, RawFlowSpec, RawTspec, Service, TrafficControlValue};

use super::support::{CONTROLLED, GUARANTEED, TSPEC, hex, written};

fn flowspec(octets: &str) -> Result<FlowSpec, TrafficControlValue> {
    RawFlowSpec::from_octets(&hex(octets)).unwrap().read().map_err(|fault| fault.value)
}

fn tspec(octets: &str) -> Result<TSpec, TrafficControlValue> {
    RawTspec::from_octets(&hex(octets)).unwrap().read().map_err(|fault| fault.value)
}

/// `octets` with the 32-bit word at `word` replaced.
fn with(octets: &str, word: usize, value: u32) -> String {
    let mut octets = hex(octets);
    octets[word * 4..word * 4 + 4].copy_from_slice(&value.to_be_bytes());
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Proves RSVP-A.8-01, RSVPIS-2210-3.2.1-01, RSVPIS-2210-3.2.2-01, RSVPIS-2210-A1-04, RSVPIS-2212-Invocation-03 and
/// RSVPIS-2215-3.6-01.
#[test]
fn by_hand() {
    let asked = TSpec::new(125_000.0, 10_000.0, 125_000.0, 64, 1500).unwrap();
    let controlled = FlowSpec { tspec: asked, rspec: None };
    assert_eq!(flowspec(CONTROLLED), Ok(controlled));
    assert_eq!(controlled.service(), Service::ControlledLoad);
    assert_eq!(written(MessageType::RESV, |w| _ = w.flowspec(&controlled))[8..], hex(CONTROLLED));
    let guaranteed = FlowSpec { rspec: Some(RSpec::new(250_000.0, 1000).unwrap()), ..controlled };
    assert_eq!(flowspec(GUARANTEED), Ok(guaranteed));
    assert_eq!((guaranteed.service(), Service::Guaranteed.number()), (Service::Guaranteed, 2));
    assert_eq!(written(MessageType::RESV, |w| _ = w.flowspec(&guaranteed))[8..], hex(GUARANTEED));
    let sent = TSpec::new(125_000.0, 10_000.0, f32::INFINITY, 64, 1500).unwrap();
    assert_eq!(tspec(TSPEC), Ok(sent));
    assert_eq!(written(MessageType::PATH, |w| _ = w.sender_tspec(&sent))[8..], hex(TSPEC));
}

/// Proves RSVPIS-2210-3.1-04, RSVPIS-2215-3.6-02, RSVPIS-2215-3.6-03 and RSVPIS-2212-Invocation-02: invalid values of r,
/// b, p and M. What is 0 or without a service rate is not given (`Given`).
#[test]
fn values_that_are_none() {
    let floats = [-0.0, -1.0, 0.5, f32::NAN, f32::NEG_INFINITY, 5e13];
    for value in floats.map(f32::to_bits) {
        for word in [4, 5, 6] {
            if word == 5 && value == 5e13_f32.to_bits() {
                continue;
            }
            assert_eq!(
                flowspec(&with(CONTROLLED, word, value)),
                Err(TrafficControlValue::BAD_FLOWSPEC),
                "{value:#x}"
            );
            assert_eq!(
                flowspec(&with(GUARANTEED, word, value)),
                Err(TrafficControlValue::BAD_FLOWSPEC),
                "{value:#x}"
            );
            assert_eq!(tspec(&with(TSPEC, word, value)), Err(TrafficControlValue::BAD_TSPEC), "{value:#x}");
        }
        assert_eq!(
            flowspec(&with(GUARANTEED, 10, value)),
            Err(TrafficControlValue::BAD_FLOWSPEC),
            "R {value:#x}"
        );
    }
    let infinite = f32::INFINITY.to_bits();
    assert!(flowspec(&with(GUARANTEED, 10, infinite)).is_err());
    assert!(flowspec(&with(GUARANTEED, 6, infinite)).is_ok(), "an unknown peak");
    assert_eq!(tspec(&with(TSPEC, 5, 3e11_f32.to_bits())), Err(TrafficControlValue::BAD_TSPEC), "b");
    // m, and M below it.
    assert_eq!(tspec(&with(TSPEC, 7, 0)).unwrap().min_policed(), 0, "m is not given");
    assert_eq!(tspec(&with(TSPEC, 8, 0)).unwrap().max_packet(), 0, "M is not given");
    assert_eq!(tspec(&with(TSPEC, 4, 0)).unwrap().rate(), 0.0, "r is not given");
    assert_eq!(tspec(&with(TSPEC, 6, 0)).unwrap().peak(), f32::INFINITY, "p is not given");
    assert_eq!(flowspec(&with(GUARANTEED, 10, 0)).unwrap().rspec, RSpec::new(125_000.0, 1000).ok());
    assert_eq!(tspec(&with(TSPEC, 8, 63)), Err(TrafficControlValue::BAD_TSPEC));
    assert_eq!(flowspec(&with(CONTROLLED, 7, 0)).unwrap().tspec.min_policed(), 0);
    assert_eq!(flowspec(&with(CONTROLLED, 8, 63)), Err(TrafficControlValue::BAD_FLOWSPEC));
    // Guaranteed service: R and p not below r.
    assert_eq!(
        flowspec(&with(GUARANTEED, 10, 124_999_f32.to_bits())),
        Err(TrafficControlValue::BAD_FLOWSPEC)
    );
    assert_eq!(flowspec(&with(GUARANTEED, 6, 124_999_f32.to_bits())), Err(TrafficControlValue::BAD_FLOWSPEC));
    assert!(flowspec(&with(CONTROLLED, 6, 124_999_f32.to_bits())).is_ok(), "controlled load may ignore p");
}

/// Proves RSVPIS-2210-A1-01, RSVPIS-2210-A1-02, RSVPIS-2210-A1-03 and RSVPIS-2210-A1-05: versions and lengths.
#[test]
fn headers() {
    for (octets, bad) in [(CONTROLLED, false), (GUARANTEED, false), (TSPEC, true)] {
        let read = |octets: &str| if bad { tspec(octets).map(|_| ()) } else { flowspec(octets).map(|_| ()) };
        let expected = if bad { TrafficControlValue::BAD_TSPEC } else { TrafficControlValue::BAD_FLOWSPEC };
        let words = hex(octets).iter().skip(1).step_by(4).map(|_| ()).count();
        assert!(read(octets).is_ok() && words > 8);
        let word = |at: usize| u32::from_be_bytes(hex(octets)[at * 4..at * 4 + 4].try_into().unwrap());
        for at in [1, 2, 3] {
            for wrong in [0, word(at) & 0xffff, (word(at) & 0xffff) + 1, 0xffff] {
                let value = (word(at) & 0xffff_0000) | wrong;
                if value != word(at) {
                    assert_eq!(read(&with(octets, at, value)), Err(expected), "word {at} {value:#x}");
                }
            }
        }
        assert_eq!(read(&with(octets, 1, 0x1000_0000 | word(1))), Err(expected), "version 1");
        assert!(read(&with(octets, 1, 0x0fff_0000 | word(1))).is_ok(), "unused bits");
        assert_eq!(read(&with(octets, 3, 0x7e00_0005)), Err(expected), "another parameter");
        assert_eq!(read(&with(octets, 3, 0x7f80_0005)), Err(expected), "marked invalid");
    }
}

/// Proves RSVPIS-2210-2.2-02 and RSVPIS-2215-1-02: one service, which is known.
#[test]
fn services() {
    assert_eq!(flowspec(&with(CONTROLLED, 2, 0x4d00_0006)), Err(TrafficControlValue::SERVICE_UNSUPPORTED));
    let without = flowspec(&with(CONTROLLED, 2, 0x0200_0006)).unwrap();
    assert_eq!(without.rspec, RSpec::new(125_000.0, 0).ok(), "no RSpec: R = r");
    assert_eq!(tspec(&with(TSPEC, 2, 0x0500_0006)), Err(TrafficControlValue::BAD_TSPEC));
    // Two fragments.
    let second = &CONTROLLED[CONTROLLED.find("05000006").unwrap()..];
    let two = format!("00400902 0000000e {second} {second}");
    assert_eq!(flowspec(&two), Err(TrafficControlValue::BAD_FLOWSPEC));
    let second = second.replace("05000006", "01000006");
    assert_eq!(tspec(&format!("00400c02 0000000e {second} {second}")), Err(TrafficControlValue::BAD_TSPEC));
    // One more parameter.
    assert_eq!(
        flowspec(&format!("00280902 00000008 05000007 {} 09000000", &CONTROLLED[27..])),
        Err(TrafficControlValue::BAD_FLOWSPEC)
    );
}
