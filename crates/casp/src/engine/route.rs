//! Local repair: after a change of routes, or where another router may have the place of a gateway, sessions discover their next hops
//! again, a part of them at a time. Where a connection to a next hop failed, that node may have restarted: sessions are refreshed
//! before their time.

use core::time::Duration;

use signalbox_core::Key;
use signalbox_core::node::Prefix;
use signalbox_core::stamp::Moment;

use super::Casp;
use super::egress::Neighbor;
use super::session::Mark;

/// Changes of routes that are handled apart. More of them become one for all destinations.
const SEPARATE: usize = 16;
/// Shortest time from the failure of a connection to the refresh of its sessions. The longest is a third more: a node that restarts takes connections by then.
const AFTER_LOSS: Duration = Duration::from_millis(2500);
/// An established connection that fails brings the refreshes to its node forward once in this time.
const LOSSES_APART: Duration = Duration::from_secs(5);
/// Attempts to connect that fail behind that, and bring them forward again: the node needs longer for its start.
const TRIES: u8 = 3;

/// Which sessions a walk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concerned {
    All,
    /// Those with these destinations.
    To(Prefix),
    /// Those whose data go to this neighbor.
    By(Neighbor),
    /// Those with this next hop.
    Over(Key),
}

/// A walk over all sessions that goes on.
#[derive(Debug)]
pub(super) struct Sweep {
    concerned: Concerned,
    /// The place in the table where it goes on.
    from: u32,
}

impl Casp {
    pub(super) fn on_route_changed(&mut self, prefix: Prefix) {
        if self.sweeps.len() >= SEPARATE {
            self.sweeps.clear();
            self.sweeps.push_back(Sweep { concerned: Concerned::All, from: 0 });
        } else {
            self.sweeps.push_back(Sweep { concerned: Concerned::To(prefix), from: 0 });
        }
    }

    /// Another router may have the place of a neighbor: the present hop answers the discovery if it has not. Where too much waits,
    /// sessions follow with their next refresh.
    pub(super) fn on_neighbor_moved(&mut self, neighbor: Neighbor) {
        let concerned = Concerned::By(neighbor);
        let waits = self.sweeps.iter().any(|sweep| sweep.from == 0 && sweep.concerned == concerned);
        if !waits && self.sweeps.len() < SEPARATE {
            self.sweeps.push_back(Sweep { concerned, from: 0 });
        }
    }

    /// The last connection to a node failed, and it may have lost what it knew; `up`: it was established.
    pub(super) fn on_peer_gone(&mut self, peer: Key, up: bool) {
        if self.peers.connection_to(peer).is_some() || self.sweeps.len() >= SEPARATE {
            return;
        }
        let now = self.now;
        // No session may need it any more.
        let Some(one) = self.peers.peers.get_mut(peer) else { return };
        if up {
            if !one.gone_at.is_due(now) {
                return;
            }
            one.gone_at = (now + LOSSES_APART).into();
        } else {
            if one.tries >= TRIES {
                return;
            }
            one.tries += 1;
        }
        self.sweeps.push_back(Sweep { concerned: Concerned::Over(peer), from: 0 });
    }

    /// Visits some sessions whose route may have changed, or whose next hop may have restarted.
    pub(super) fn run_sweeps(&mut self) {
        let Self { sweeps, sessions, egresses, .. } = self;
        let Some(sweep) = sweeps.front_mut() else { return };
        let concerned = sweep.concerned;
        let mut found: Vec<Key> = Vec::new();
        let next = sessions.slab.walk(sweep.from, |key, session| {
            let dst = session.flow.dst();
            let concerns = match concerned {
                Concerned::All => true,
                Concerned::To(prefix) => prefix.contains(dst),
                Concerned::By(neighbor) => egresses.leads_to(dst, neighbor),
                Concerned::Over(peer) => session.next.is_last(peer),
            };
            // A session that still looks for its first hop gets the present route anyway.
            if concerns && session.next.last().is_some() {
                found.push(key);
            }
            true
        });
        match next {
            Some(from) => sweep.from = from,
            None => {
                self.sweeps.pop_front();
            }
        }
        if matches!(concerned, Concerned::By(_)) {
            self.counters.neighbors_followed += found.len() as u64;
        }
        if matches!(concerned, Concerned::Over(_)) {
            return found.into_iter().for_each(|key| self.refresh_soon(key));
        }
        for key in found {
            self.repair(key);
        }
    }

    /// Plans the next refresh of a session before its time, if this node makes any.
    fn refresh_soon(&mut self, key: Key) {
        let at = self.now + self.rng.jitter(AFTER_LOSS, 1.0, 4.0 / 3.0);
        let Some(session) = self.sessions.get_mut(key).filter(|one| one.refresh_at != Moment::NEVER) else {
            return;
        };
        session.refresh_at = session.refresh_at.min(at.into());
        self.arm(key);
    }

    /// Discovers the next hop of a session again: at once, unless a change of routes made it discover a moment ago.
    fn repair(&mut self, key: Key) {
        let now = self.now;
        // The repair of another session may have torn this one down, which it replaces.
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.note(Mark::Rediscover, true);
        if session.is(Mark::Repaired) && !session.discover_at.is_due(now) {
            session.refresh_at = session.refresh_at.min(session.discover_at);
            return self.arm(key);
        }
        // The discovery of a refresh a moment ago may have found the hop that is lost now.
        session.discover_at = now.into();
        // D makes its sender the previous hop. The route that changed may be the one by which messages came to this node, so D is set
        // only if there is another next hop.
        let own = session.is_own();
        if let Some(message) = self.refresh_message(key, own) {
            self.deliver(key, &message, None);
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.note(Mark::Repaired, true);
        }
    }
}
