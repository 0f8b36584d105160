//! Local repair: after a change of routes, sessions discover their next hops again, a part of them at a time.

use core::net::IpAddr;

use signalbox_core::Key;
use signalbox_core::node::Prefix;

use super::Casp;
use super::session::Mark;

/// Changes of routes that are handled apart. More of them become one for all destinations.
const SEPARATE: usize = 16;

/// A walk over all sessions that goes on.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Destinations; `None`: all.
    prefix: Option<Prefix>,
    /// The place in the table where it goes on.
    from: u32,
}

impl Casp {
    pub(super) fn on_route_changed(&mut self, prefix: Prefix) {
        if self.sweeps.len() >= SEPARATE {
            self.sweeps.clear();
            self.sweeps.push_back(Sweep { prefix: None, from: 0 });
        } else {
            self.sweeps.push_back(Sweep { prefix: Some(prefix), from: 0 });
        }
    }

    /// Visits some sessions whose route may have changed.
    pub(super) fn run_sweeps(&mut self) {
        let Some(sweep) = self.sweeps.front_mut() else { return };
        let concerns = |dst: IpAddr| sweep.prefix.is_none_or(|prefix| prefix.contains(dst));
        let mut found: Vec<Key> = Vec::new();
        let next = self.sessions.slab.walk(sweep.from, |key, session| {
            // A session that still looks for its first hop gets the present route anyway.
            if concerns(session.flow.dst()) && session.next.last().is_some() {
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
        for key in found {
            self.repair(key);
        }
    }

    /// Discovers the next hop of a session again: at once, unless a change of routes made it discover a moment ago.
    fn repair(&mut self, key: Key) {
        let now = self.now;
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
