//! Neighbours as operators see them.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::{IfIndex, Time};

use super::failures::AuthenticationFailures;
use super::{IntegrityConfig, Neighbours};

/// A neighbour, or somebody who would be one and is not believed.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Its address, as it stands in its RSVP_HOP.
    pub address: IpAddr,
    /// Interface that it was heard by last.
    pub ifindex: IfIndex,
    /// When its last message came; `None`: none was believed, or that is long ago and nothing refers to it.
    pub last_message: Option<Time>,
    /// What this node is set to do there: MESSAGE_IDs, and with them Bundles and summary refreshes.
    pub reduction: (bool, bool),
    /// It sets the bit that says that it does refresh reduction.
    pub capable: bool,
    /// Hops without RSVP lie between: nothing is bundled for it nor summarised.
    pub far: bool,
    /// States that it or this node calls by a name.
    pub states: u32,
    /// Whether Hello says that it is there; `None`: none was exchanged.
    pub hello: Option<bool>,
    /// What is demanded there.
    pub integrity: IntegrityConfig,
    /// Identifier of the key that messages to it are signed with; `None`: there is none.
    pub signs_with: Option<u64>,
    /// By which keys it signs, and how far each is believed.
    pub associations: Vec<AssociationView>,
    /// What of it was not believed.
    pub failures: Option<AuthenticationFailures>,
}

/// A key that a neighbour signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssociationView {
    /// Its identifier.
    pub key_id: u64,
    /// The largest sequence number that was taken; `None`: nothing was.
    pub sequence: Option<u64>,
    /// Challenges sent of which none was answered yet; 0: it may be heard.
    pub asked: u32,
}

impl Neighbours {
    /// The neighbours, and who is not believed, by address and interface.
    #[must_use]
    pub fn view(&self, now: Time) -> Vec<View> {
        let mut all = BTreeMap::new();
        for (_, peer) in self.peers.slab.iter() {
            let view = entry(self, now, &mut all, (peer.addr, peer.ifindex));
            view.last_message = Some(peer.last_received());
            (view.capable, view.far, view.states) = (peer.says_capable(), peer.is_far(), peer.refs);
            view.hello = peer.hello.map(|hello| hello.is_up());
        }
        for (sender, ifindex, association) in self.associations.view() {
            entry(self, now, &mut all, (sender, ifindex)).associations.push(association);
        }
        for (who, failures) in self.failures.iter() {
            entry(self, now, &mut all, *who).failures = Some(*failures);
        }
        all.into_values().collect()
    }
}

fn entry<'a>(
    layer: &Neighbours,
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
            hello: None,
            integrity: settings.integrity,
            signs_with: layer.keys.in_use(layer.config.wall(now), ifindex, address),
            associations: Vec::new(),
            failures: None,
        }
    })
}
