//! What this node forgets of a neighbor when an administrator says so: it is then like one that never sent a message.
//!
//! Sequence numbers of security associations stay, because without them old messages could be sent again (RFC 2747 §4.2). So do the
//! counts of messages and this node's own instance in Hellos: by another one the neighbor would find that this node restarted, and
//! treat the link as down (RFC 3209 §5.3).

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::slab::Key;

use super::Neighbors;
use super::peers::Peer;

impl Neighbors {
    /// Forgets a neighbor, at one interface or at all: whether it handles MESSAGE_IDs, the MESSAGE_IDs that it sent and those that it
    /// acknowledged, the order of its messages, what Hello showed, and that its address is right. What waits for it is sent before.
    /// Returns the interfaces where anything was known of it.
    ///
    /// This walks all MESSAGE_IDs. No message causes it.
    pub fn forget(&mut self, neighbor: IpAddr, ifindex: Option<IfIndex>) -> Vec<IfIndex> {
        self.out.recycle();
        let wanted =
            |peer: &Peer| peer.addr == neighbor && ifindex.is_none_or(|ifindex| peer.ifindex == ifindex);
        let found = self.peers.slab.iter().filter(|(_, peer)| wanted(peer)).map(|(key, _)| key);
        let found: Vec<Key> = found.collect();
        let mut places = self.standings.clear(self.mark(neighbor), ifindex);
        for key in found {
            self.flush_bundle(key);
            self.flush_acks(key);
            self.received.forget(key.index());
            self.sent.forget(key.index());
            if let Some(peer) = self.peers.get_mut(key) {
                peer.forget(self.now);
                places.push(peer.ifindex);
            }
            self.peers.rearm(key);
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}
