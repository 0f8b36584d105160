//! Bodies of the fuzz targets: properties that hold for all octets. The targets in `fuzz/` are one line each, and
//! the tests replay `fuzz/corpus` through the same functions.
//!
//! Every function panics if its property does not hold.

use signalbox_wire::Writer;

use crate::wire::qspec::{Outcome, Qspec};
use crate::wire::{Message, identify};

#[cfg(feature = "kit")]
mod engine;
#[cfg(feature = "engine")]
mod rules;
#[cfg(feature = "kit")]
pub use engine::qos_engine;
#[cfg(feature = "engine")]
pub use rules::qspec_rules;

/// Each QSPEC that can be framed can be shown, and its faults are inside. Each that parses encodes, and the octets
/// parse to the same value and are stable. Each that does not parse has an answer. Input: the value of a QSPEC object.
pub fn qspec(octets: &[u8]) {
    let parsed = Qspec::parse(octets);
    if let Ok(framed) = Qspec::frame(octets) {
        assert!(!framed.to_string().is_empty());
        assert_eq!(framed.faults().next(), parsed.err());
        for fault in framed.faults() {
            assert!(fault.object_start <= fault.parameter_start, "{fault}");
            assert!(fault.parameter_start <= fault.offset && fault.offset < octets.len(), "{fault}");
        }
        let inside: usize = framed.objects().map(|object| 4 + object.octets().len()).sum();
        let encapsulated = framed.encapsulated().map_or(0, <[u8]>::len);
        assert_eq!(4 + inside + encapsulated, octets.len(), "the parts make up the whole");
    }
    let qspec = match parsed {
        Ok(qspec) => qspec,
        Err(error) => {
            assert!(error.offset <= octets.len(), "{error}: beyond {} octets", octets.len());
            assert!([Outcome::MALFORMED, Outcome::INCOMPATIBLE].contains(&error.outcome()));
            return;
        }
    };
    let once = encode(&qspec);
    match Qspec::parse(&once) {
        Ok(again) => {
            assert_eq!(again.header, qspec.header);
            for (a, b) in again.objects().zip(qspec.objects()) {
                assert_eq!((a.kind, a.error), (b.kind, b.error));
                for (a, b) in a.parameters().zip(b.parameters()) {
                    assert_eq!((a.id, a.value()), (b.id, b.value()));
                }
                assert_eq!(a.parameters().count(), b.parameters().count());
            }
            assert_eq!(encode(&again), once, "encoding is stable");
        }
        Err(error) => panic!("{error}: {qspec}"),
    }
}

fn encode(qspec: &Qspec<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    match qspec.encode(&mut Writer::new(&mut octets)) {
        Ok(()) => octets,
        Err(error) => panic!("{error}: {qspec}"),
    }
}

/// Each message that parses encodes, and the octets parse to the same value and are stable. For others the error names
/// a place inside, and RII and RSN can be read. Input: a whole message (the value of NSLP-Data of GIST).
pub fn nslp_message(octets: &[u8]) {
    let _ = identify(octets);
    let message = match Message::parse(octets) {
        Ok(message) => message,
        Err(error) => {
            assert!(error.offset <= octets.len() + 4, "{error}: beyond {} octets", octets.len());
            return;
        }
    };
    let mut once = Vec::new();
    match message.encode(&mut Writer::new(&mut once)) {
        Ok(()) => {}
        // Accepted from others, but never sent.
        Err(_) => return,
    }
    match Message::parse(&once) {
        Ok(again) => {
            assert_eq!(again.qspec, message.qspec);
            let mut twice = Vec::new();
            assert!(again.encode(&mut Writer::new(&mut twice)).is_ok());
            assert_eq!(twice, once, "encoding is stable");
        }
        Err(error) => panic!("{error}: our own message is not understood"),
    }
}
