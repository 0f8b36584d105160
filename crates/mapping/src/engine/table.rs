//! The table of mappings: by what is inside, and by host.

use core::net::IpAddr;
use std::collections::HashMap;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::shares::{Refused, Shares, source};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::Wheel;
use signalbox_core::{IfIndex, Random, Time, invariant};

use super::config::Config;
use super::io::{Inside, MappingId};
use super::record::{Record, Stage};

/// Why a host gets no further mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// It has as many as a host may have, or as many requests wait.
    OfHost,
    /// The table is full, or what is left is for other hosts.
    OfAll,
    /// The path is asked for too much at the moment.
    ForNow,
}

#[derive(Debug)]
pub(super) struct Mappings {
    records: Slab<Record>,
    index: Index,
    hasher: KeyedHasher,
    /// The mappings of each host. A host has at most `max_of_host`, so a walk over them is short.
    hosts: HashMap<IpAddr, Vec<Key>, KeyedHasher>,
    shares: Shares<IpAddr>,
    wheel: Wheel,
}

impl Mappings {
    pub(super) fn new(config: &Config, rng: &mut Random) -> Self {
        Self {
            records: Slab::new(config.max_mappings),
            index: Index::new(),
            hasher: KeyedHasher::new(rng),
            hosts: HashMap::with_hasher(KeyedHasher::new(rng)),
            shares: Shares::new(config.max_mappings, KeyedHasher::new(rng)),
            wheel: Wheel::default(),
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.records.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MappingId, &Record)> {
        self.records.iter().map(|(key, record)| (MappingId(key.to_u64()), record))
    }

    /// Visits mappings from a place on: see [`Slab::walk`].
    pub(super) fn walk(&self, from: u32, mut visit: impl FnMut(MappingId, &Record) -> bool) -> Option<u32> {
        self.records.walk(from, |key, record| visit(MappingId(key.to_u64()), record))
    }

    /// The mapping of this inside.
    pub(super) fn find(&self, inside: &Inside) -> Option<Key> {
        let hash = self.hasher.hash_one(inside);
        let index = self
            .index
            .find(hash, |index| self.records.get_index(index).is_some_and(|one| one.inside == *inside))?;
        self.records.key_of(index)
    }

    pub(super) fn get(&self, key: Key) -> Option<&Record> {
        self.records.get(key)
    }

    /// The record of an identifier that the path gave back; nothing if the mapping has ended meanwhile.
    pub(super) fn of(&self, id: MappingId) -> Option<Key> {
        let key = Key::from_u64(id.0);
        self.records.get(key).map(|_| key)
    }

    /// Changes a record, and arms its timer anew.
    pub(super) fn change<R>(&mut self, key: Key, change: impl FnOnce(&mut Record) -> R) -> Option<R> {
        let record = self.records.get_mut(key)?;
        let result = change(record);
        let due = record.due();
        self.wheel.arm(&mut self.records, key.index(), due);
        Some(result)
    }

    /// Whether a host may have one mapping more.
    pub(super) fn place(&self, client: IpAddr, config: &Config) -> Result<(), NoPlace> {
        let host = source(client);
        let keys = self.hosts.get(&host).map_or(&[][..], Vec::as_slice);
        let waiting =
            |key: &&Key| self.records.get(**key).is_some_and(|one| matches!(one.stage, Stage::Asking { .. }));
        let all = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let waits = u32::try_from(keys.iter().filter(waiting).count()).unwrap_or(u32::MAX);
        if all >= config.max_of_host || waits >= config.max_waiting {
            return Err(NoPlace::OfHost);
        }
        match self.shares.check(&host, 1) {
            Ok(()) => Ok(()),
            Err(Refused::Full | Refused::Share) => Err(NoPlace::OfAll),
        }
    }

    /// Enters a mapping for which there is a [`place`](Self::place).
    pub(super) fn insert(&mut self, record: Record) -> Option<MappingId> {
        let (inside, due) = (record.inside, record.due());
        let host = source(inside.client);
        let key = invariant!(self.records.insert(record).ok(), "there is a place in the table")?;
        let Self { records, index, hasher, .. } = self;
        let hash_of = |index: u32| records.get_index(index).map_or(0, |one| hasher.hash_one(&one.inside));
        index.insert(hasher.hash_one(&inside), key.index(), hash_of);
        self.hosts.entry(host).or_default().push(key);
        self.shares.hold(host);
        self.wheel.arm(&mut self.records, key.index(), due);
        Some(MappingId(key.to_u64()))
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Record> {
        self.wheel.cancel(&mut self.records, key.index());
        let record = self.records.remove(key)?;
        let hash = self.hasher.hash_one(&record.inside);
        self.index.remove(hash, |index| index == key.index());
        let host = source(record.inside.client);
        self.shares.release(host);
        if let Some(keys) = self.hosts.get_mut(&host) {
            keys.retain(|one| *one != key);
            if keys.is_empty() {
                self.hosts.remove(&host);
            }
        }
        Some(record)
    }

    /// Whether a host has a mapping that works: the path proved that somebody there asked for it.
    pub(super) fn has_standing(&self, client: IpAddr) -> bool {
        let keys = self.hosts.get(&source(client)).map_or(&[][..], Vec::as_slice);
        keys.iter().any(|key| self.records.get(*key).is_some_and(|one| one.told().is_some()))
    }

    /// The mappings of one address behind this interface, and of one protocol.
    pub(super) fn of_client(&self, (client, ifindex): (IpAddr, IfIndex), protocol: u8) -> Vec<Key> {
        let keys = self.hosts.get(&source(client)).map_or(&[][..], Vec::as_slice);
        let same = |key: &Key| {
            self.records.get(*key).is_some_and(|one| {
                one.inside.client == client && one.back.ifindex == ifindex && one.inside.protocol == protocol
            })
        };
        keys.iter().copied().filter(same).collect()
    }

    /// The next mapping whose timer is due.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Key> {
        let index = self.wheel.pop_due(&mut self.records, now)?;
        self.records.key_of(index)
    }
}
