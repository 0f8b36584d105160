//! What operators are shown of neighbors.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::metrics::Table;
use signalbox_core::{IfIndex, Time};

use super::failures::AuthenticationFailures;
use super::standing::Naming;
use super::traffic::PeerTraffic;
use super::{IntegrityConfig, Neighbors};

/// A neighbor, or a sender that failed authentication.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Its address in RSVP_HOP.
    pub address: IpAddr,
    /// Interface of its last message.
    pub ifindex: IfIndex,
    /// Time of its last message; `None`: none was accepted, or the neighbor was removed or forgotten.
    pub last_message: Option<Time>,
    /// Settings of the interface: MESSAGE_IDs, and with them Bundles and Srefreshes.
    pub reduction: (bool, bool),
    /// It has the refresh-reduction-capable bit.
    pub capable: bool,
    /// Hops without RSVP lie between: no Bundles and Srefreshes go to it.
    pub far: bool,
    /// Number of states with a MESSAGE_ID of it or of this node.
    pub states: u32,
    /// It sends MESSAGE_IDs or acknowledgments, or has the bit.
    pub able: bool,
    /// It refused MESSAGE_IDs, or acknowledges nothing: it gets plain RFC 2205 for some time.
    pub plain: bool,
    /// What Hello shows; `None`: it is off for this neighbor.
    pub hello: Option<HelloState>,
    /// Messages from it and to it.
    pub traffic: PeerTraffic,
    /// Settings of the interface.
    pub integrity: IntegrityConfig,
    /// Identifier of the key for messages to it; `None`: there is no key.
    pub signs_with: Option<u64>,
    /// Its security associations.
    pub associations: Vec<AssociationView>,
    /// Its authentication failures.
    pub failures: Option<AuthenticationFailures>,
}

/// What Hello shows of a neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloState {
    /// It has sent no Hello that shows that it is up.
    Never,
    /// It is up.
    Up,
    /// It was up, and is silent or has restarted.
    Lost,
}

/// A security association of a neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssociationView {
    /// Key Identifier.
    pub key_id: u64,
    /// Largest accepted sequence number; `None`: none was accepted.
    pub sequence: Option<u64>,
    /// Challenges sent without an answer; 0: messages are accepted.
    pub asked: u32,
}

impl Neighbors {
    /// The table of neighbors.
    #[must_use]
    pub const fn table(&self) -> Table {
        Table::new("neighbors", self.peers.slab.len(), self.peers.slab.limit())
    }

    /// All neighbors and senders with failures, by address and interface.
    #[must_use]
    pub fn view(&self, now: Time) -> Vec<View> {
        self.merged(now, |_| true)
    }

    /// The rows whose keys are `wanted`.
    fn merged(&self, now: Time, wanted: impl Fn((IpAddr, IfIndex)) -> bool) -> Vec<View> {
        let mut all = BTreeMap::new();
        for (_, peer) in self.peers.slab.iter().filter(|(_, peer)| wanted((peer.addr, peer.ifindex))) {
            let view = entry(self, now, &mut all, (peer.addr, peer.ifindex));
            view.last_message = peer.last_received();
            (view.capable, view.far, view.states) = (peer.says_capable(), peer.is_far(), peer.refs);
            (view.able, view.traffic) = (peer.is_able(), peer.traffic);
            let towards = (peer.ifindex, self.mark(peer.addr));
            view.plain = peer.is_able() && self.standings.naming(now, towards) == Naming::No;
            view.hello = peer.hello.map(|hello| hello.view());
        }
        let associations = self.associations.view();
        for (sender, ifindex, association) in associations.filter(|(sender, at, _)| wanted((*sender, *at))) {
            entry(self, now, &mut all, (sender, ifindex)).associations.push(association);
        }
        for (who, failures) in self.failures.iter().filter(|(who, _)| wanted(*who)) {
            entry(self, now, &mut all, *who).failures = Some(*failures);
        }
        all.into_values().collect()
    }

    /// Number of neighbors.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.peers.slab.len()
    }

    /// At most `most` rows of [`view`](Self::view) that come after this address and interface. The tables have limits
    /// ([`Config`](super::Config)), so the cost has one, too.
    #[must_use]
    pub fn view_after(&self, now: Time, after: Option<(IpAddr, IfIndex)>, most: usize) -> Vec<View> {
        let peers = self.peers.slab.iter().map(|(_, peer)| (peer.addr, peer.ifindex));
        let associations = self.associations.view().map(|(sender, ifindex, _)| (sender, ifindex));
        let failures = self.failures.iter().map(|(who, _)| *who);
        let mut first = BTreeSet::new();
        for key in peers.chain(associations).chain(failures).filter(|key| after.is_none_or(|at| *key > at)) {
            first.insert(key);
            if first.len() > most {
                first.pop_last();
            }
        }
        self.merged(now, |key| first.contains(&key))
    }
}

fn entry<'a>(
    layer: &Neighbors,
    now: Time,
    all: &'a mut BTreeMap<(IpAddr, IfIndex), View>,
    (address, ifindex): (IpAddr, IfIndex),
) -> &'a mut View {
    all.entry((address, ifindex)).or_insert_with(|| {
        let settings = layer.config.of(ifindex);
        let reduction = settings.reduction;
        View {
            address,
            ifindex,
            last_message: None,
            reduction: (reduction.reliable, reduction.reliable && reduction.summary),
            capable: false,
            far: false,
            states: 0,
            able: false,
            plain: false,
            hello: None,
            traffic: PeerTraffic::default(),
            integrity: settings.integrity,
            signs_with: layer.keys.in_use(layer.config.wall(now), ifindex, address),
            associations: Vec::new(),
            failures: None,
        }
    })
}
