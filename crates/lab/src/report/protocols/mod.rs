//! What the report shows of each signaling protocol: for people, and by names for programs.

mod counts;
mod gist;
mod gist_nat;
mod ping;

use serde_json::Value;

use super::Section;
use crate::run::evidence::Evidence;

/// What the report shows of a protocol.
pub(super) struct Shown {
    /// The name of the protocol.
    pub(super) protocol: &'static str,
    /// Returns what the report shows people.
    pub(super) sections: fn(&Evidence) -> Vec<Section>,
    /// Returns the measurements, by their names in the report.
    pub(super) measure: fn(&Evidence) -> Vec<(&'static str, Value)>,
}

/// In the order in which the report shows them. Of other protocols it shows what their steps and checks find.
pub(super) const SHOWN: &[Shown] = &[
    Shown { protocol: "gist", sections: gist::sections, measure: gist::measure },
    Shown { protocol: "ping", sections: ping::sections, measure: ping::measure },
    Shown {
        protocol: "rsvp",
        sections: |evidence| counts::rsvp(evidence).sections("RSVP messages on the links"),
        measure: |evidence| counts::rsvp(evidence).measure(),
    },
    Shown {
        protocol: "boomerang",
        sections: |evidence| counts::boomerang(evidence).sections("Boomerang messages on the links"),
        measure: |evidence| counts::boomerang(evidence).measure(),
    },
    Shown { protocol: "gist_nat", sections: gist_nat::sections, measure: gist_nat::measure },
    Shown {
        protocol: "casp",
        sections: |evidence| counts::casp(evidence).sections("CASP messages on the links"),
        measure: |evidence| counts::casp(evidence).measure(),
    },
];
