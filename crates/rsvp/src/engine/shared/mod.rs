//! Values that records share.
//!
//! * [`Shared`]: Tspecs and flowspecs. Hosts often ask for flows of one size.
//! * `packed`: addresses. `hops`: next hops and previous hops. `recent`: a cache in front of an index of addresses.

mod hops;
mod packed;
mod recent;

use std::sync::Arc;

use signalbox_core::recent as stored;
use signalbox_resources::intserv::TSpec;

pub(super) use hops::Hops;
pub(super) use packed::Packed;
pub(super) use recent::Recent;

use crate::wire::FlowSpec;

/// The specifications that were stored last. A record has 8 octets for one, instead of 20 or 32.
#[derive(Debug, Default)]
pub(super) struct Shared {
    tspecs: stored::Recent<TSpec>,
    flowspecs: stored::Recent<FlowSpec>,
}

/// A number of a Tspec, equal for equal ones.
fn number_of(tspec: &TSpec) -> u64 {
    let octets = [tspec.rate(), tspec.bucket(), tspec.peak()].map(|value| value.to_bits().to_be_bytes());
    stored::sum(octets.as_flattened())
}

impl Shared {
    /// The Tspec, in the storage of an equal one.
    pub(super) fn tspec(&mut self, tspec: &TSpec) -> Arc<TSpec> {
        self.tspecs.shared(number_of(tspec), tspec)
    }

    /// The flowspec, in the storage of an equal one.
    pub(super) fn flowspec(&mut self, flowspec: &FlowSpec) -> Arc<FlowSpec> {
        self.flowspecs.shared(number_of(&flowspec.tspec), flowspec)
    }
}

#[cfg(test)]
mod tests {
    use signalbox_resources::intserv::RSpec;

    use super::*;

    #[test]
    fn equal_specifications_are_stored_once() {
        let mut shared = Shared::default();
        let tspec = |rate| TSpec::new(rate, 3000.0, f32::INFINITY, 64, 1500).unwrap();
        let tspecs = [1e4, 1e4, 2e4].map(|rate| shared.tspec(&tspec(rate)));
        assert!(Arc::ptr_eq(&tspecs[0], &tspecs[1]));
        assert_eq!((*tspecs[1], *tspecs[2]), (tspec(1e4), tspec(2e4)));

        // Requests for two services differ, also with the same Tspec.
        let rspec = RSpec::new(1e4, 0).unwrap();
        let specs = [None, Some(rspec), None].map(|rspec| FlowSpec { tspec: tspec(1e4), rspec });
        let flowspecs = specs.map(|flowspec| shared.flowspec(&flowspec));
        assert_eq!([&*flowspecs[0], &*flowspecs[1], &*flowspecs[2]], [&specs[0], &specs[1], &specs[2]]);
    }
}
