//! The table of sessions: how they are found, entered and removed.

use core::net::IpAddr;

use signalbox_core::index::KeyedHasher;
use signalbox_core::{Key, SessionChange, invariant};

use super::Sessions;
use super::destinations::Place;
use super::record::{NONE, Session};
use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::wire::{self, SessionKind};

/// Reason why no state is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Refusal {
    /// A zero and a non-zero DstPort for the same destination and protocol (RFC 2205 §3.2).
    DestPorts,
    /// A zero and a non-zero SrcPort of the same sender (RFC 2205 §3.2).
    SenderPorts,
    /// A table is full.
    Full,
}

/// The octets by which a session is hashed.
fn session_octets(dest: u32, v6: bool, protocol: u8, kind: SessionKind, port: u16) -> [u8; 8] {
    let [d3, d2, d1, d0] = dest.to_be_bytes();
    let [p1, p0] = port.to_be_bytes();
    let kind = u8::from(v6) << 1 | u8::from(kind == SessionKind::Gpi);
    [d3, d2, d1, d0, p1, p0, protocol, kind]
}

fn session_hash(hasher: &KeyedHasher, one: &Session) -> u64 {
    hasher.hash_octets(&session_octets(one.dest, one.v6, one.protocol, one.kind, one.port))
}

impl Sessions {
    /// The hash of a session. `dest`: its destination, packed.
    fn hash(&self, wanted: &wire::Session, dest: u32) -> u64 {
        let v6 = wanted.dest.is_ipv6();
        self.hasher.hash_octets(&session_octets(dest, v6, wanted.protocol, wanted.kind, wanted.port))
    }

    fn find(&self, wanted: &wire::Session, dest: u32, hash: u64) -> Option<Key> {
        let v6 = wanted.dest.is_ipv6();
        let index = self.index.find(hash, |index| {
            self.slab.get_index(index).is_some_and(|one| {
                one.dest == dest
                    && one.v6 == v6
                    && one.protocol == wanted.protocol
                    && one.port == wanted.port
                    && one.kind == wanted.kind
            })
        })?;
        self.slab.key_of(index)
    }

    /// Enters an empty session; `None`: the table is full.
    fn insert(&mut self, wanted: &wire::Session, dest: u32, hash: Option<u64>) -> Option<Key> {
        let Self { slab, hasher, index: by_session, .. } = self;
        if by_session.is_full() {
            by_session.rebuild(slab.iter().map(|(key, _)| key.index()), |index| {
                slab.get_index(index).map_or(0, |one| session_hash(hasher, one))
            });
        }
        let record = Session {
            dest,
            port: wanted.port,
            protocol: wanted.protocol,
            kind: wanted.kind,
            v6: wanted.dest.is_ipv6(),
            style: None,
            multicast: wanted.dest.is_multicast(),
            count: 0,
            first: NONE,
            branches: NONE,
            reserved: 0,
            extra: None,
        };
        let key = slab.insert(record).ok()?;
        let hash = hash.or_else(|| Some(session_hash(hasher, slab.get(key)?)));
        by_session.insert(hash.unwrap_or(0), key.index(), |index| {
            slab.get_index(index).map_or(0, |one| session_hash(hasher, one))
        });
        let gpi = wanted.kind == SessionKind::Gpi;
        let place = Place { dest: wanted.dest, protocol: wanted.protocol, gpi };
        self.destinations.insert(key.index(), place);
        self.portless += u32::from(wanted.port == 0);
        self.changes.note(|| SessionChange::opened(wanted.to_string()));
        Some(key)
    }

    /// Removes a session to this destination.
    fn remove(&mut self, key: Key, dest: IpAddr) {
        let Some(record) = invariant!(self.slab.remove(key), "a session ends once") else { return };
        let hash = session_hash(&self.hasher, &record);
        let Session { protocol, kind, port, .. } = record;
        self.portless -= u32::from(port == 0);
        self.changes.note(|| SessionChange::closed(wire::Session { dest, protocol, kind, port }.to_string()));
        self.destinations.remove(key.index(), Place { dest, protocol, gpi: kind == SessionKind::Gpi });
        self.index.remove(hash, |index| index == key.index());
    }
}

impl Rsvp {
    pub(in crate::engine) fn find_session(&self, wanted: &wire::Session) -> Option<Key> {
        self.find_hashed(wanted, self.hash_of(wanted)?)
    }

    /// The hash of a session; `None` if no session has its destination.
    pub(in crate::engine) fn hash_of(&self, wanted: &wire::Session) -> Option<u64> {
        Some(self.sessions.hash(wanted, self.addresses.find(wanted.dest)?))
    }

    /// The session with this hash, which [`Self::hash_of`] computed.
    pub(in crate::engine) fn find_hashed(&self, wanted: &wire::Session, hash: u64) -> Option<Key> {
        self.sessions.find(wanted, self.addresses.find(wanted.dest)?, hash)
    }

    /// Whether a session with a zero port meets one with a non-zero port (RFC 2205 §3.2).
    pub(in crate::engine) fn ports_conflict(&self, wanted: &wire::Session) -> bool {
        if wanted.kind == SessionKind::Gpi {
            return false;
        }
        if wanted.port != 0 {
            return self.sessions.portless > 0
                && self.find_session(&wire::Session { port: 0, ..*wanted }).is_some();
        }
        // Of two sessions that are alike, one has a port.
        let place = Place { dest: wanted.dest, protocol: wanted.protocol, gpi: false };
        let mut some = self.sessions.destinations.alike(place).take(2);
        some.any(|index| self.sessions.get_index(index).is_some_and(|one| one.port != 0))
    }

    /// Creates an empty session. `hash`: its hash, if it was computed before.
    pub(in crate::engine) fn open_session(
        &mut self,
        wanted: &wire::Session,
        hash: Option<u64>,
    ) -> Result<Key, Refusal> {
        if self.ports_conflict(wanted) {
            return Err(Refusal::DestPorts);
        }
        let dest = self.addresses.pack(wanted.dest).map_err(|_| Refusal::Full)?;
        let Some(key) = self.sessions.insert(wanted, dest, hash) else {
            self.addresses.release(dest, wanted.dest.is_ipv6());
            self.counters.sessions_full += 1;
            tracing::debug!(session = %wanted, reason = "table of sessions full", "session not created");
            return Err(Refusal::Full);
        };
        Ok(key)
    }

    /// Removes a session without senders, reservations and applications.
    pub(in crate::engine) fn close_if_idle(&mut self, session: Key) {
        let Some(record) = self.sessions.get(session).filter(|one| one.is_idle()) else { return };
        let (dest, v6) = (record.dest, record.v6);
        self.sessions.remove(session, self.addresses.unpack(dest, v6));
        self.addresses.release(dest, v6);
    }

    /// A sender or a reservation of a session appears or disappears.
    pub(in crate::engine) fn note_changed(&mut self, session: Key) {
        let Self { sessions, addresses, .. } = self;
        let Sessions { slab, changes, .. } = sessions;
        let Some(record) = invariant!(slab.get(session), "a changed session stands") else { return };
        changes.note(|| {
            let dest = addresses.unpack(record.dest, record.v6);
            let Session { protocol, kind, port, .. } = *record;
            SessionChange::changed(wire::Session { dest, protocol, kind, port }.to_string())
        });
    }

    /// The SESSION of a record.
    pub(in crate::engine) fn session_of(&self, record: &Session) -> wire::Session {
        wire::Session {
            dest: self.addresses.unpack(record.dest, record.v6),
            protocol: record.protocol,
            kind: record.kind,
            port: record.port,
        }
    }

    /// The address of this node at an interface, for a session of this IP version.
    pub(in crate::engine) fn own_address(&self, iface: Iface, v6: bool) -> IpAddr {
        self.interfaces.address(iface, v6).unwrap_or(if v6 {
            IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED)
        })
    }
}
