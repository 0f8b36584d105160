//! MAP requests of PCP (RFC 6887 §11).

use core::net::SocketAddr;

use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::wheel::Link;

use super::Mapper;
use super::io::{Inside, MappingId, Wanted};
use super::outbox::Back;
use super::record::{Asked, Holder, Record, Stage, Wish, seconds};
use super::table::NoPlace;
use crate::wire::{CLIENT_PORT, Filter, Known, Map, Request, ResultCode, SERVER_PORT};

/// Most octets of a description that are kept (RFC 7220 §2: at least 128).
const KEPT_DESCRIPTION: usize = 128;

/// IP protocols that a NAT maps.
const TRANSLATED: [u8; 2] = [6, 17];

/// What the options of a MAP request demand.
#[derive(Debug, Default)]
struct Demands {
    exactly: bool,
    /// The filters were removed before those of `filters` came.
    cleared: bool,
    filters: Vec<Filter>,
    /// What to keep as description: nothing if the option is absent or no UTF-8, an empty text to erase it.
    description: Option<Box<str>>,
    /// The option was there, whatever it contained.
    described: bool,
}

impl Mapper {
    pub(super) fn receive_map(&mut self, back: Back, octets: &[u8], request: &Request<'_>, map: &Map) {
        self.counters.maps_received += 1;
        let inside = Inside { client: back.client.ip(), protocol: map.protocol, port: map.internal_port };
        let demands = match self.demands(request, map) {
            Ok(demands) => demands,
            Err(code) => return self.refuse_pcp(back, octets, true, code, code.usual_lifetime()),
        };
        let limited =
            demands.exactly && !self.exact_rate.allow(self.now, &(source(inside.client), back.ifindex));
        if limited {
            self.counters.rate += 1;
            tracing::debug!(client = %back.client, reason = "rate limit of PREFER_FAILURE", "request dropped");
            return;
        }
        let known = self.mappings.find(&inside);
        if self.is_elsewhere(known, back) {
            return;
        }
        if let Some(key) = known
            && let Some(rest) = self.foreign_nonce(key, map)
        {
            return self.refuse_pcp(back, octets, true, ResultCode::NOT_AUTHORIZED, rest);
        }
        match known {
            _ if request.lifetime == 0 => {
                if let Some(key) = known {
                    self.delete(key);
                }
                // Suggestions of a deletion are copied (RFC 6887 §15.1).
                self.grant_pcp(back, octets, map.external, 0, None);
            }
            Some(key) => self.renew(key, back, octets, request.lifetime, map, demands),
            None => self.ask(back, octets, request.lifetime, inside, map, demands),
        }
    }

    /// Reads what is demanded, in the order of RFC 6887 §7.3 and §11.3.
    fn demands(&self, request: &Request<'_>, map: &Map) -> Result<Demands, ResultCode> {
        if map.protocol == 0 && map.internal_port != 0 {
            return Err(ResultCode::MALFORMED_REQUEST);
        }
        let mut demands = Demands::default();
        for option in request.options.iter() {
            let known = match option.known() {
                Ok(known) => known,
                // An option that may be ignored never causes an error (RFC 6887 §7.3).
                Err(_) if !option.code.is_mandatory() => continue,
                Err(_) => return Err(ResultCode::MALFORMED_OPTION),
            };
            match known {
                None if option.code.is_mandatory() => return Err(ResultCode::UNSUPP_OPTION),
                None => {}
                // Switched off (RFC 6887 §13.1).
                Some(Known::ThirdParty(_)) => return Err(ResultCode::UNSUPP_OPTION),
                Some(Known::PreferFailure) => {
                    if demands.exactly || request.lifetime == 0 || map.external.port() == 0 {
                        return Err(ResultCode::MALFORMED_OPTION);
                    }
                    demands.exactly = true;
                }
                Some(Known::Filter(filter)) => {
                    if request.lifetime == 0 {
                        return Err(ResultCode::MALFORMED_OPTION);
                    }
                    self.add_filter(&mut demands, filter, request)?;
                }
                // An option that is understood and may be there once (RFC 6887 §7.3, RFC 7220 §2).
                Some(Known::Description(_)) if demands.described => return Err(ResultCode::MALFORMED_OPTION),
                Some(Known::Description(text)) => {
                    demands.described = true;
                    let text = core::str::from_utf8(text).ok().filter(|text| !text.contains('\0'));
                    demands.description =
                        text.map(|text| signalbox_wire::beginning(text, KEPT_DESCRIPTION).into());
                }
            }
        }
        let wildcard = map.protocol == 0 || map.internal_port == 0;
        let translated = self.config.translates && request.client.is_ipv4();
        let supported = !wildcard && (!translated || TRANSLATED.contains(&map.protocol))
            || wildcard && self.config.wildcards && !translated;
        if !supported && request.lifetime > 0 {
            return Err(ResultCode::UNSUPP_PROTOCOL);
        }
        Ok(demands)
    }

    fn add_filter(
        &self,
        demands: &mut Demands,
        filter: Filter,
        request: &Request<'_>,
    ) -> Result<(), ResultCode> {
        let Some(_) = filter.prefix else {
            demands.filters.clear();
            demands.cleared = true;
            return Ok(());
        };
        if filter.address.is_ipv4() != request.client.is_ipv4() {
            return Err(ResultCode::MALFORMED_OPTION);
        }
        if !demands.filters.contains(&filter) {
            demands.filters.push(filter);
        }
        if demands.filters.len() > self.config.max_filters {
            return Err(ResultCode::EXCESSIVE_REMOTE_PEERS);
        }
        Ok(())
    }

    /// Whether a mapping belongs to a host behind another interface. A host here that names its address is another one: it gets no answer.
    pub(super) fn is_elsewhere(&mut self, known: Option<Key>, back: Back) -> bool {
        let record = known.and_then(|key| self.mappings.get(key));
        let elsewhere = record.is_some_and(|record| record.back.ifindex != back.ifindex);
        if elsewhere {
            self.counters.foreign += 1;
            tracing::debug!(client = %back.client, reason = "the host is behind another interface", "request dropped");
        }
        elsewhere
    }

    /// What is left of a mapping that another nonce made; nothing if the nonce is right or the mapping has none.
    fn foreign_nonce(&self, key: Key, map: &Map) -> Option<u32> {
        let record = self.mappings.get(key)?;
        match record.holder {
            Holder::Pcp(nonce) if nonce != map.nonce => {
                Some(record.rest(self.now, ResultCode::NO_RESOURCES.usual_lifetime()))
            }
            Holder::Pcp(_) | Holder::NatPmp => None,
        }
    }

    /// The lifetime in seconds that a request of PCP gets.
    fn granted(&self, requested: u32) -> u32 {
        requested.clamp(seconds(self.config.min_lifetime), seconds(self.config.max_lifetime))
    }

    /// Asks the path for a mapping that does not exist yet.
    fn ask(&mut self, back: Back, octets: &[u8], lifetime: u32, inside: Inside, map: &Map, demands: Demands) {
        let reserved = is_reserved(map.protocol, map.external.port());
        if reserved && demands.exactly {
            return self.refuse_limit(back, octets, ResultCode::CANNOT_PROVIDE_EXTERNAL);
        }
        let asked = Asked { octets: octets.into(), lifetime: self.granted(lifetime) };
        let port = if reserved { 0 } else { map.external.port() };
        let place = SocketAddr::new(map.external.ip(), port);
        let wish = Wish { place, exactly: demands.exactly };
        let mut record = self.record(back, inside, Holder::Pcp(map.nonce), wish, asked);
        record.filters = demands.filters;
        record.description = demands.description.filter(|text| !text.is_empty());
        match self.enter(record) {
            Ok(()) => {}
            Err(NoPlace::ForNow) => self.busy(back),
            Err(NoPlace::OfHost) => self.refuse_limit(back, octets, ResultCode::USER_EX_QUOTA),
            Err(NoPlace::OfAll) => self.refuse_limit(back, octets, ResultCode::NO_RESOURCES),
        }
    }

    fn refuse_limit(&mut self, back: Back, octets: &[u8], code: ResultCode) {
        self.counters.refused += 1;
        self.refuse_pcp(back, octets, true, code, code.usual_lifetime());
    }

    /// A record whose first request waits for the path.
    pub(super) fn record(
        &self,
        back: Back,
        inside: Inside,
        holder: Holder,
        wish: Wish,
        asked: Asked,
    ) -> Record {
        let stage = Stage::Asking { asked, until: self.now + self.config.patience };
        let (filters, description) = (Vec::new(), None);
        Record {
            inside,
            holder,
            back,
            wish,
            filters,
            description,
            stage,
            asked_again: None,
            link: Link::default(),
        }
    }

    /// Enters a record and asks the path, if there is a place.
    pub(super) fn enter(&mut self, record: Record) -> Result<(), NoPlace> {
        self.mappings.place(record.inside.client, &self.config)?;
        if !self.may_open(record.back) {
            return Err(NoPlace::ForNow);
        }
        let wanted = wanted(&record);
        if let Some(id) = self.mappings.insert(record) {
            self.out.open(id, wanted);
        }
        Ok(())
    }

    /// Whether the path may be asked for one more, by the rates of the host and of all hosts.
    fn may_open(&mut self, back: Back) -> bool {
        let client = back.client.ip();
        let Self { open_rate, host_open_rate, mappings, now, .. } = self;
        host_open_rate.allow(*now, &(source(client), back.ifindex))
            && open_rate.allow(*now, (client, back.ifindex), || mappings.has_standing(client))
    }

    /// Takes a request for a mapping that exists.
    fn renew(&mut self, key: Key, back: Back, octets: &[u8], requested: u32, map: &Map, demands: Demands) {
        let lifetime = self.granted(requested);
        let ends = self.now + core::time::Duration::from_secs(lifetime.into());
        let Some(record) = self.mappings.get(key) else { return };
        let Some((place, _)) = record.told() else {
            if record.holder == Holder::NatPmp {
                return self.busy(back);
            }
            // A retransmission: the answer goes to where the newest request came from.
            self.mappings.change(key, |record| record.back = back);
            return;
        };
        // Exactly another place than the one that it has (RFC 6887 §11.3).
        if demands.exactly && differs(map.external, place) {
            let rest = record.rest(self.now, 0);
            return self.refuse_pcp(back, octets, true, ResultCode::CANNOT_PROVIDE_EXTERNAL, rest);
        }
        let filters = after(&record.filters, &demands);
        if filters.len() > self.config.max_filters {
            let code = ResultCode::EXCESSIVE_REMOTE_PEERS;
            return self.refuse_pcp(back, octets, true, code, code.usual_lifetime());
        }
        let same = filters == record.filters;
        let filtered = demands.cleared || !demands.filters.is_empty();
        match &record.stage {
            Stage::Standing { .. } if !same => {
                if !self.may_open(back) {
                    return self.busy(back);
                }
                let asked = Asked { octets: octets.into(), lifetime };
                self.change_filters(key, back, asked, filters, (map, demands));
                return;
            }
            // A retransmission of the request whose filters the path has not granted yet.
            Stage::Changing { .. } if filtered && same => {
                self.mappings.change(key, |record| record.back = back);
                return;
            }
            // One change at a time; the host sends its request again.
            Stage::Changing { .. } | Stage::Repairing { .. } if !same => {
                return self.busy(back);
            }
            Stage::Asking { .. }
            | Stage::Standing { .. }
            | Stage::Changing { .. }
            | Stage::Repairing { .. } => {}
        }
        let (nonce, wish) = (map.nonce, map.external);
        let kept = self.mappings.change(key, |record| {
            record.back = back;
            // A mapping of NAT-PMP is the host's own from now on.
            record.holder = Holder::Pcp(nonce);
            record.wish = Wish { place: wish, exactly: demands.exactly };
            describe(record, demands.description);
            prolong(&mut record.stage, ends);
            record.description.clone()
        });
        self.grant_pcp(back, octets, place, lifetime, kept.flatten().as_deref());
    }

    /// Drops a request because another one waits for the path. The host sends it again.
    pub(super) fn busy(&mut self, back: Back) {
        self.counters.busy += 1;
        tracing::debug!(client = %back.client, reason = "another request waits for the path", "request dropped");
    }

    /// Asks the path for other filters of a mapping that stands.
    fn change_filters(
        &mut self,
        key: Key,
        back: Back,
        asked: Asked,
        filters: Vec<Filter>,
        (map, demands): (&Map, Demands),
    ) {
        let nonce = map.nonce;
        let until = self.now + self.config.patience;
        let wanted = self.mappings.change(key, |record| {
            let (Some((place, ends)), before) =
                (record.told(), core::mem::replace(&mut record.filters, filters))
            else {
                return wanted(record);
            };
            record.back = back;
            record.holder = Holder::Pcp(nonce);
            record.wish = Wish { place, exactly: demands.exactly };
            describe(record, demands.description);
            record.stage = Stage::Changing { place, ends, asked, before, until };
            wanted(record)
        });
        if let Some(wanted) = wanted {
            self.out.open(MappingId(key.to_u64()), wanted);
        }
    }

    /// Ends a mapping for its host.
    pub(super) fn delete(&mut self, key: Key) {
        self.counters.deleted += 1;
        self.end(key);
    }

    /// Removes a mapping, and closes it on the path unless the path has refused it last.
    pub(super) fn end(&mut self, key: Key) -> Option<Record> {
        let record = self.mappings.remove(key)?;
        if !matches!(record.stage, Stage::Repairing { again: Some(_), .. }) {
            self.out.close(MappingId(key.to_u64()));
        }
        Some(record)
    }
}

/// What the path is asked for because of a record.
pub(super) fn wanted(record: &Record) -> Wanted {
    let Wish { place: wish, exactly } = record.wish;
    Wanted {
        inside: record.inside,
        ifindex: record.back.ifindex,
        wish,
        exactly,
        filters: record.filters.clone(),
    }
}

/// Whether an external port is that of PCP and NAT-PMP themselves, which no host gets (RFC 6887 §11.3).
pub(super) const fn is_reserved(protocol: u8, port: u16) -> bool {
    const UDP: u8 = 17;
    protocol == UDP && matches!(port, CLIENT_PORT | SERVER_PORT)
}

/// Whether a place is another one than the wish, of which an address without a bit set matches any.
pub(super) fn differs(wish: SocketAddr, place: SocketAddr) -> bool {
    wish.port() != place.port() || !wish.ip().is_unspecified() && wish.ip() != place.ip()
}

/// The filters of a mapping after a request: those of before unless they were removed, and those of the request (RFC 6887 §13.3).
fn after(before: &[Filter], demands: &Demands) -> Vec<Filter> {
    let mut all = if demands.cleared { Vec::new() } else { before.to_vec() };
    for filter in &demands.filters {
        if !all.contains(filter) {
            all.push(*filter);
        }
    }
    all
}

fn describe(record: &mut Record, description: Option<Box<str>>) {
    if let Some(text) = description {
        record.description = Some(text).filter(|text| !text.is_empty());
    }
}

/// Sets the end of a mapping that its host has been told of.
pub(super) fn prolong(stage: &mut Stage, to: signalbox_core::Time) {
    match stage {
        Stage::Asking { .. } => {}
        Stage::Standing { ends, updates, .. } => {
            *ends = to;
            // The host has the place of now (RFC 6887 §14.2).
            *updates = None;
        }
        Stage::Changing { ends, .. } | Stage::Repairing { ends, .. } => *ends = to,
    }
}
