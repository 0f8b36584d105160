//! Where the RESERVEs of a session come from. Most sessions of a node come from few peers, and share it.

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::recent;
use signalbox_core::security::Identity;
use signalbox_core::{IfIndex, Recent, invariant};
use signalbox_resources::Proof;

use super::Qos;
use super::holders::{Holder, Holders};
use super::waiting::Arrival;

/// The source of the last RESERVE of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// Its authenticated sender.
    pub(super) peer: Option<Arc<Identity>>,
    /// The address of that, as far as GIST has proof of it.
    pub(super) address: Option<IpAddr>,
    /// What shows the address.
    pub(super) proof: Proof,
    /// The interface by which it came in.
    pub(super) ifindex: IfIndex,
    /// Whose place in the table the session has, since it began.
    pub(super) holder: Holder,
}

impl Source {
    /// A session without a RESERVE of a peer.
    pub(super) const fn of(holder: Holder) -> Self {
        Self { peer: None, address: None, proof: Proof::None, ifindex: IfIndex::NONE, holder }
    }

    /// The sender of a message.
    pub(super) fn by(arrival: &Arrival) -> Self {
        Self {
            peer: arrival.peer.clone(),
            address: arrival.peer_address,
            proof: arrival.proof,
            ifindex: arrival.ifindex,
            holder: Holders::of(arrival.peer_address),
        }
    }
}

/// Sources that were stored lately.
#[derive(Debug, Default)]
pub(super) struct Sources(Recent<Source>);

impl Sources {
    /// A source, in the storage of an equal one.
    pub(super) fn shared(&mut self, source: &Source) -> Arc<Source> {
        let octets = |address: Option<IpAddr>| match address {
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(address)) => address.octets(),
            None => [0; 16],
        };
        let number = recent::sum([octets(source.address), octets(source.holder)].as_flattened());
        self.0.shared(number, source)
    }
}

impl Qos {
    /// Stores who sent the last RESERVE of a session. Its place in the table stays that of its first one.
    pub(super) fn set_source(&mut self, key: signalbox_core::Key, source: &Source) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a source has a session") else { return };
        let source = Source { holder: session.source.holder, ..source.clone() };
        if *session.source != source {
            session.source = self.sources.shared(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_source_share_it() {
        let mut sources = Sources::default();
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address| Some(IpAddr::from(address)));
        let mut shared = |holder| sources.shared(&Source::of(holder));
        let [first, second, again, own] = [one, other, one, None].map(&mut shared);
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!([first.holder, second.holder, own.holder], [one, other, None]);
    }
}
