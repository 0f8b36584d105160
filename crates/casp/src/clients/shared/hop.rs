//! The hop that sent a request.

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::IfIndex;
use signalbox_core::security::Identity;
use signalbox_resources::{Neighbor, Proof, RequestedBy, Requester};

use crate::engine::ArrivalOf;

/// The hop that sent a request, with what is proved of it.
#[derive(Debug, Clone)]
pub(in crate::clients) struct Hop {
    pub(in crate::clients) address: IpAddr,
    pub(in crate::clients) identity: Option<Arc<Identity>>,
    ifindex: IfIndex,
    pub(in crate::clients) proof: Proof,
}

impl Hop {
    /// The hop that sent a message.
    pub(in crate::clients) fn of<D>(arrival: &ArrivalOf<D>) -> Self {
        let proof = match (&arrival.identity, arrival.answered) {
            (Some(_), _) => Proof::Identity,
            (None, true) => Proof::Handshake,
            (None, false) => Proof::Link,
        };
        let ArrivalOf { peer: address, ifindex, identity, .. } = arrival;
        Self { address: *address, identity: identity.clone(), ifindex: *ifindex, proof }
    }

    /// The requester: this hop, which may speak for another address.
    pub(in crate::clients) fn requester(&self, claimed: IpAddr) -> Requester {
        let Self { address, ifindex, proof, .. } = *self;
        let by = RequestedBy::Neighbor(Neighbor { address, ifindex, proof });
        Requester::new(by, self.identity.clone(), Some(claimed))
    }
}
