//! What the addresses of a requester are worth to rules.

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;

use crate::request::{Proof, RequestedBy, Requester};
use crate::units::Net;

/// A requester, and whether it speaks for the address that it claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedRequester<'a> {
    pub(super) requester: &'a Requester,
    /// The policy trusts all its neighbors, or it is a user of this host.
    pub(super) speaks: bool,
}

impl JudgedRequester<'_> {
    /// The party that a trusted neighbor speaks for, or the address of a user of this host.
    pub(super) fn party(&self) -> Option<IpAddr> {
        self.requester.claimed.filter(|_| self.speaks)
    }

    /// Whether every requester is in one of the prefixes. An address without a proof is in none.
    pub(super) fn is_from(&self, nets: &[Net], least: Proof) -> bool {
        match self.party() {
            Some(party) => contains(nets, party) && self.requester.proof() >= least,
            None => self.is_via(nets, least),
        }
    }

    /// Whether every neighbor is in one of the prefixes, with this proof.
    pub(super) fn is_via(&self, nets: &[Net], least: Proof) -> bool {
        let neighbors = self.requester.requested_by.neighbors();
        !neighbors.is_empty()
            && self.requester.proof() >= least
            && neighbors.iter().all(|neighbor| contains(nets, neighbor.address))
    }

    /// Whether any address that the request names for its requester is in one of the prefixes, proved or not. Rules that deny
    /// ask this: no requester avoids them by leaving a proof out.
    pub(super) fn names(&self, nets: &[Net]) -> bool {
        self.passes(nets) || self.requester.claimed.is_some_and(|claimed| contains(nets, claimed))
    }

    /// Whether any neighbor is in one of the prefixes, proved or not.
    pub(super) fn passes(&self, nets: &[Net]) -> bool {
        let mut neighbors = self.requester.requested_by.neighbors().iter();
        neighbors.any(|neighbor| contains(nets, neighbor.address))
    }

    /// Whether the packets are of a requester that these prefixes allow. A requester chooses the filter: one for all packets
    /// of a link would take those of all others. Who speaks for others asks for the packets of any of them, who does not for
    /// its own. A group has the members that it has.
    pub(super) fn owns(&self, nets: &[Net], filter: &FlowFilter) -> bool {
        if filter.dst.addr.is_multicast() {
            return true;
        }
        if self.speaks {
            return nets.iter().any(|net| net.covers(&filter.src) || net.covers(&filter.dst));
        }
        self.requester.requested_by.neighbors().iter().any(|neighbor| {
            let host = Prefix::host(neighbor.address);
            filter.src == host || filter.dst == host
        })
    }

    /// The address of a neighbor with this proof, or of a user of this host.
    pub(super) fn own_address(&self, least: Proof) -> Option<IpAddr> {
        match &self.requester.requested_by {
            RequestedBy::LocalUser(_) => self.requester.claimed,
            RequestedBy::Neighbor(one) => (self.requester.proof() >= least).then_some(one.address),
            RequestedBy::Unknown | RequestedBy::Neighbors(_) => None,
        }
    }
}

fn contains(nets: &[Net], address: IpAddr) -> bool {
    nets.iter().any(|net| net.0.contains(address))
}
