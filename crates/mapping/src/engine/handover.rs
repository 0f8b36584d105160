//! A planned restart: what this node leaves to its successor, and what it does with what its predecessor left.
//!
//! Hosts notice nothing: the epoch goes on, and each mapping stands. The successor asks the path for each of them at once, with its place
//! as wish. A host is told only if it gets another place, or none.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::wheel::Link;
use signalbox_core::{IfIndex, Time};
use signalbox_wire::{Reader, Short, Writer};

use super::Mapper;
use super::io::Inside;
use super::map::wanted;
use super::outbox::Back;
use super::record::{Holder, Record, Stage, Wish, seconds};
use crate::wire::Filter;

const EPOCH: u8 = 1;
const MAPPING: u8 = 2;

const PCP: u8 = 1;
const NAT_PMP: u8 = 0;

/// A mapping of which its host was told.
struct Former {
    inside: Inside,
    holder: Holder,
    back: Back,
    wish: Wish,
    place: SocketAddr,
    /// What was left of its lifetime, in seconds.
    left: u32,
    filters: Vec<Filter>,
    description: Option<Box<str>>,
}

impl Mapper {
    /// Writes the epoch and the mappings of which hosts were told. It walks over all of them, so it is for a node that ends.
    pub fn hand_over(&self, now: Time, to: &mut Entries) {
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets);
        w.u8(EPOCH);
        w.u32(self.epoch_at(now));
        w.bytes(&self.last_outside.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        to.push(&octets);
        for (_, record) in self.mappings.iter() {
            octets.clear();
            if write(record, now, &mut octets).is_some() && !to.push(&octets) {
                return;
            }
        }
    }

    /// Takes what the node before this one wrote, so long ago.
    pub(super) fn take_over(&mut self, mut entries: Entries, elapsed: Duration) {
        while let Some(entry) = entries.take() {
            let mut r = Reader::new(entry);
            match r.u8() {
                Ok(EPOCH) => {
                    if let (Ok(epoch), Ok(outside)) = (r.u32(), r.array::<4>()) {
                        self.go_on(epoch.saturating_add(seconds(elapsed)), Ipv4Addr::from(outside));
                    }
                }
                Ok(MAPPING) => match read(&mut r) {
                    Ok(former) => self.restore(former, elapsed),
                    Err(Short { .. }) => {
                        tracing::debug!(reason = "damaged", "mapping of the predecessor dropped");
                    }
                },
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// The epoch of the node before this one goes on: nothing is announced.
    fn go_on(&mut self, epoch: u32, outside: Ipv4Addr) {
        (self.epoch_base, self.epoch_from) = (epoch, self.now);
        (self.announcing, self.restart_at, self.started) = (None, None, true);
        self.last_outside = Some(outside).filter(|outside| !outside.is_unspecified());
    }

    /// Asks the path for a mapping of the node before this one. It is judged as a request of its host would be.
    fn restore(&mut self, former: Former, elapsed: Duration) {
        let Former { inside, holder, back, wish, place, left, filters, description } = former;
        let left = left.min(seconds(self.config.max_lifetime)).saturating_sub(seconds(elapsed));
        let possible = self.may_ask(back.ifindex, back.client.ip(), back.local)
            && filters.len() <= self.config.max_filters
            && inside.port != 0
            && left > 0;
        if !possible
            || self.mappings.find(&inside).is_some()
            || self.mappings.place(inside.client, &self.config).is_err()
        {
            tracing::debug!(client = %inside.client, port = inside.port, "mapping of the predecessor dropped");
            return;
        }
        let (ends, until) = (self.now + Duration::from_secs(left.into()), self.now + self.config.repair);
        let stage = Stage::Repairing { place, ends, until, again: None, stale: false };
        let asked_again = Some(self.now);
        let link = Link::default();
        let record = Record { inside, holder, back, wish, filters, description, stage, asked_again, link };
        let mut wanted = wanted(&record);
        (wanted.wish, wanted.exactly) = (place, false);
        if let Some(id) = self.mappings.insert(record) {
            self.counters.restored += 1;
            self.out.open(id, wanted);
        }
    }
}

fn write(record: &Record, now: Time, to: &mut Vec<u8>) -> Option<()> {
    let (place, ends) = record.told()?;
    let Record { inside, holder, back, wish, .. } = record;
    // Filters that the path has not granted are not those of the mapping.
    let filters = match &record.stage {
        Stage::Changing { before, .. } => before,
        Stage::Asking { .. } | Stage::Standing { .. } | Stage::Repairing { .. } => &record.filters,
    };
    let mut w = Writer::new(to);
    w.u8(MAPPING);
    address(&mut w, inside.client);
    w.u8(inside.protocol);
    w.u16(inside.port);
    let (kind, nonce) = match holder {
        Holder::Pcp(nonce) => (PCP, *nonce),
        Holder::NatPmp => (NAT_PMP, [0; 12]),
    };
    w.u8(kind);
    w.bytes(&nonce);
    end(&mut w, back.client);
    address(&mut w, back.local);
    w.u32(back.ifindex.0);
    end(&mut w, wish.place);
    w.u8(u8::from(wish.exactly));
    end(&mut w, place);
    w.u32(seconds(ends.since(now)));
    w.u8(u8::try_from(filters.len()).ok()?);
    for filter in filters {
        w.u8(filter.prefix?);
        w.u16(filter.port);
        address(&mut w, filter.address);
    }
    w.bytes(record.description.as_deref().unwrap_or_default().as_bytes());
    Some(())
}

fn read(r: &mut Reader<'_>) -> Result<Former, Short> {
    let inside = Inside { client: read_address(r)?, protocol: r.u8()?, port: r.u16()? };
    let (kind, nonce) = (r.u8()?, r.array()?);
    let holder = if kind == PCP { Holder::Pcp(nonce) } else { Holder::NatPmp };
    let back = Back { client: read_end(r)?, local: read_address(r)?, ifindex: IfIndex(r.u32()?) };
    let wish = Wish { place: read_end(r)?, exactly: r.u8()? != 0 };
    let (place, left) = (read_end(r)?, r.u32()?);
    let mut filters = Vec::new();
    for _ in 0..r.u8()? {
        let (prefix, port) = (Some(r.u8()?), r.u16()?);
        filters.push(Filter { prefix, port, address: read_address(r)? });
    }
    let text = core::str::from_utf8(r.take_rest()).unwrap_or_default();
    let description = Some(text).filter(|text| !text.is_empty()).map(Into::into);
    Ok(Former { inside, holder, back, wish, place, left, filters, description })
}

fn address(w: &mut Writer<'_>, address: IpAddr) {
    w.bytes(&match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    });
}

fn read_address(r: &mut Reader<'_>) -> Result<IpAddr, Short> {
    Ok(Ipv6Addr::from(r.array::<16>()?).to_canonical())
}

fn end(w: &mut Writer<'_>, end: SocketAddr) {
    address(w, end.ip());
    w.u16(end.port());
}

fn read_end(r: &mut Reader<'_>) -> Result<SocketAddr, Short> {
    Ok(SocketAddr::new(read_address(r)?, r.u16()?))
}
