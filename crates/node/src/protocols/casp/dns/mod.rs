//! Discovery by DNS: the servers of the destination's domain by SRV records (RFC 2782), for servers that are not on the path.
//!
//! A domain is configured for prefixes of destinations. A destination's own name would be that of a host, and its reverse zone is
//! in the hands of who has the address. The resolvers are asked over TCP (RFC 7766) by streams of the node: what is
//! looked up is an output of the node as everything else, it can be recorded and simulated, and who does not read the
//! packets cannot forge an answer.
//!
//! There is one lookup for a domain at a time, and one result. Both are bounded by the configuration, not by what peers ask.

pub(crate) mod message;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use signalbox_casp::engine::{self, Transport};
use signalbox_core::metrics::Family;
use signalbox_core::node::{Prefix, StreamId, StreamKind};
use signalbox_core::rng::Random;
use signalbox_core::{Time, invariant};

use self::message::{Data, Fault, Kind, Name};
use crate::channels::{DriverRequest, Outbox};

/// Number of the mechanism for the messaging layer.
pub const DNS: u8 = 1;
/// Port of the resolvers.
const PORT: u16 = 53;
/// How long one resolver may take. The messaging layer waits 5 s, which is enough for two of them.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Servers of a domain that are looked up.
const SERVERS: usize = 8;
/// Addresses of one server and one IP version that are used.
const ADDRESSES: usize = 4;
/// How long a domain without servers is stored, and one that could not be looked up.
const NEGATIVE: Duration = Duration::from_secs(10);
/// The limits of how long servers are stored, whatever their records say, in seconds.
const TTL: core::ops::RangeInclusive<u32> = 1..=86_400;
/// How long a server that could not be reached is avoided.
const AVOIDED: Duration = Duration::from_secs(60);
/// The bit of the number of a stream that is to a resolver. The messaging layer counts from 1.
const OWN: u64 = 1 << 55;

/// Lookups of DNS.
const LOOKUPS: Family = Family::counter(
    "casp_dns_lookups",
    &["result"],
    "Lookups of the servers of a domain, for discovery by DNS.",
);

signalbox_core::counters! {
    /// Counters of discovery by DNS.
    pub struct Counters {
        /// Lookups that found servers.
        found: u64 => LOOKUPS { result: "found" },
        /// Lookups of domains without a usable server.
        empty: u64 => LOOKUPS { result: "empty" },
        /// Lookups that no resolver answered.
        failed: u64 => LOOKUPS { result: "failed" },
        /// Streams to resolvers that ended without a whole answer, or whose answers were malformed or refusals.
        attempts_failed: u64,
        /// SRV records with another port than that of this node: nodes do not connect to other ports.
        other_ports: u64,
    }
}

/// Settings of discovery by DNS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DnsConfig {
    /// The resolvers, in the order in which they are asked. Two have their turn within the time of a discovery.
    pub resolvers: Vec<IpAddr>,
    /// The domains of destinations; the first prefix that fits counts.
    pub domains: Vec<(Prefix, String)>,
}

/// Whether a domain has servers: a name of labels of letters, digits, hyphens and underscores, short enough for the service before it.
#[must_use]
pub fn is_domain(text: &str) -> bool {
    service(text, Transport::Sctp).is_some()
}

/// The name of the SRV records: the services and protocols follow the transports of draft-schulzrinne-nsis-casp-00.
fn service(domain: &str, transport: Transport) -> Option<Name> {
    let service = match transport {
        Transport::Tcp => "_casp._tcp",
        Transport::Tls => "_casps._tcp",
        Transport::Sctp => "_casp._sctp",
        Transport::Udp => "_casp._udp",
    };
    Name::from_text(&format!("{service}.{domain}"))
}

/// A server of a domain.
#[derive(Debug)]
struct Server {
    priority: u16,
    weight: u16,
    name: Name,
    addresses: Vec<IpAddr>,
}

/// A lookup that goes on.
#[derive(Debug)]
struct Lookup {
    stream: StreamId,
    /// Whether the driver has the stream; before that its source address is looked up.
    opened: bool,
    /// The resolver that is asked, by its place in the list.
    resolver: usize,
    /// When the resolver has taken too long.
    deadline: Time,
    /// Octets of an answer whose end has not come.
    octets: Vec<u8>,
    /// Queries without an answer: identifier, name, type, and the place of the server whose address it asks for.
    open: Vec<(u16, Name, Kind, usize)>,
    servers: Vec<Server>,
    ttl: u32,
}

#[derive(Debug)]
struct Domain {
    text: String,
    service: Name,
    lookup: Option<Box<Lookup>>,
    /// The result of the last lookup, by priority.
    servers: Vec<Server>,
    until: Time,
    /// Discoveries that wait for the lookup, with their destinations.
    waiting: Vec<(u64, IpAddr)>,
}

/// The mechanism.
#[derive(Debug)]
pub(super) struct Dns {
    resolvers: Vec<IpAddr>,
    prefixes: Vec<(Prefix, usize)>,
    domains: Vec<Domain>,
    /// The port that SRV records have to name.
    port: u16,
    own: Vec<IpAddr>,
    /// Servers that could not be reached, and until when they are avoided. They are servers of a domain.
    avoided: BTreeMap<IpAddr, Time>,
    streams: u64,
    rng: Random,
    answers: VecDeque<(u64, Option<IpAddr>)>,
    /// Streams to be opened, which need a source address.
    opening: VecDeque<(StreamId, IpAddr)>,
    pub(super) counters: Counters,
}

impl Dns {
    pub(super) fn new(config: &DnsConfig, engine: &engine::Config, seed: [u8; 32]) -> Self {
        let mut domains: Vec<Domain> = Vec::new();
        let mut prefixes = Vec::new();
        for (prefix, text) in &config.domains {
            let Some(service) = service(text, engine.transport) else { continue };
            let place = domains.iter().position(|one| one.service == service).unwrap_or(domains.len());
            if place == domains.len() {
                let (servers, waiting) = (Vec::new(), Vec::new());
                let text = text.clone();
                domains.push(Domain { text, service, lookup: None, servers, until: Time::ZERO, waiting });
            }
            prefixes.push((*prefix, place));
        }
        Self {
            resolvers: config.resolvers.clone(),
            prefixes,
            domains,
            port: if engine.transport == Transport::Tls { engine.tls_port } else { engine.port },
            own: Vec::new(),
            avoided: BTreeMap::new(),
            streams: 0,
            rng: Random::new(seed),
            answers: VecDeque::new(),
            opening: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Whether a stream is one to a resolver.
    pub(super) const fn has(stream: StreamId) -> bool {
        !stream.0.is_multiple_of(2) && stream.0 & OWN != 0
    }

    /// Takes the addresses of this node.
    pub(super) fn set_own(&mut self, own: Vec<IpAddr>) {
        self.own = own;
    }

    /// An answer to [`Dns::discover`], with its identifier; `None` in it: no server was found.
    pub(super) fn answer(&mut self) -> Option<(u64, Option<IpAddr>)> {
        self.answers.pop_front()
    }

    /// A stream that needs a source address, and its peer: [`Dns::open`] takes the answer.
    pub(super) fn opening(&mut self) -> Option<(StreamId, IpAddr)> {
        self.opening.pop_front()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.domains.iter().filter_map(|domain| Some(domain.lookup.as_ref()?.deadline)).min()
    }

    /// Searches a server for a destination.
    pub(super) fn discover(&mut self, now: Time, id: u64, dst: IpAddr) {
        let found = self.prefixes.iter().find(|(prefix, _)| prefix.contains(dst)).map(|(_, place)| *place);
        let Some((place, domain)) = found.and_then(|place| Some((place, self.domains.get_mut(place)?)))
        else {
            return self.answers.push_back((id, None));
        };
        if domain.lookup.is_none() && now < domain.until {
            let answer = self.choose(now, place, dst);
            return self.answers.push_back((id, answer));
        }
        domain.waiting.push((id, dst));
        if domain.lookup.is_none() {
            self.query(now, place, 0);
        }
    }

    /// Opens a stream to a resolver; none left: the lookup failed.
    fn query(&mut self, now: Time, place: usize, resolver: usize) {
        let Some(domain) = invariant!(self.domains.get_mut(place), "a question has a domain") else { return };
        let Some(address) = self.resolvers.get(resolver) else {
            self.counters.failed += 1;
            tracing::debug!(domain = domain.text, "no resolver answered");
            return self.conclude(now, place, Vec::new(), NEGATIVE);
        };
        let stream = StreamId(OWN | self.streams << 1 | 1);
        self.streams += 1;
        domain.lookup = Some(Box::new(Lookup {
            stream,
            opened: false,
            resolver,
            deadline: now + ATTEMPT,
            octets: Vec::new(),
            open: Vec::new(),
            servers: Vec::new(),
            ttl: *TTL.end(),
        }));
        self.opening.push_back((stream, *address));
    }

    /// The source address for a stream to a resolver; `None`: there is no route.
    pub(super) fn open(&mut self, now: Time, stream: StreamId, local: Option<IpAddr>, out: &mut Outbox) {
        // The lookup of the stream may be over; so below.
        let Some(place) = self.place(stream) else { return };
        let Some(lookup) = invariant!(
            self.domains.get_mut(place).and_then(|one| one.lookup.as_mut()),
            "a stream that opens is of a lookup"
        ) else {
            return;
        };
        match (local, self.resolvers.get(lookup.resolver)) {
            (Some(local), Some(peer)) => {
                lookup.opened = true;
                let peer = SocketAddr::new(*peer, PORT);
                out.push(DriverRequest::Open { stream, kind: StreamKind::Tcp, local, peer });
            }
            _ => self.closed(now, stream),
        }
    }

    /// A stream to a resolver is established.
    pub(super) fn connected(&mut self, stream: StreamId, out: &mut Outbox) {
        let Some(place) = self.place(stream) else { return };
        let Some(domain) = invariant!(self.domains.get_mut(place), "a stream has a domain") else { return };
        let Some(lookup) = invariant!(domain.lookup.as_mut(), "a stream has a lookup") else { return };
        let query = (random_id(&mut self.rng), domain.service.clone(), Kind::Srv, 0);
        out.write(stream, |octets| message::query(octets, query.0, &query.1, query.2));
        lookup.open.push(query);
    }

    /// A resolver wrote octets.
    pub(super) fn octets(&mut self, now: Time, stream: StreamId, octets: &[u8], out: &mut Outbox) {
        let Some(place) = self.place(stream) else { return };
        let Some(lookup) = invariant!(
            self.domains.get_mut(place).and_then(|one| one.lookup.as_mut()),
            "octets of a resolver are of a lookup"
        ) else {
            return;
        };
        lookup.octets.extend_from_slice(octets);
        // A resolver sends no more than it is asked for: a message for each query, and their number is bounded.
        loop {
            let Some(lookup) = self.domains.get_mut(place).and_then(|one| one.lookup.as_mut()) else {
                return;
            };
            let Some((length, rest)) = lookup.octets.split_first_chunk() else { return };
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return };
            lookup.octets.drain(..2 + length);
            if let Err(fault) = self.message(now, place, &message, out) {
                tracing::debug!(?fault, "a resolver gave no answer");
                out.push(DriverRequest::Close { stream, abort: true });
                return self.closed(now, stream);
            }
        }
    }

    /// Takes one message of a resolver.
    fn message(&mut self, now: Time, place: usize, octets: &[u8], out: &mut Outbox) -> Result<(), Fault> {
        let Some(domain) =
            invariant!(self.domains.get_mut(place), "a message of a resolver is about a domain")
        else {
            return Ok(());
        };
        let Some(lookup) = invariant!(domain.lookup.as_mut(), "answers have a lookup") else { return Ok(()) };
        let Lookup { stream, open, servers, ttl, .. } = &mut **lookup;
        let stream = *stream;
        let asked = open.iter().position(|(id, ..)| message::id(octets) == Some(*id));
        let (_, name, kind, server) = open.swap_remove(asked.ok_or(Fault::Malformed)?);
        let (port, mut others) = (self.port, 0);
        message::answer(octets, &name, kind, |lasts, data| match data {
            Data::Server { target, .. } if target.is_root() => {}
            Data::Server { port: other, .. } if other != port => others += 1,
            Data::Server { priority, weight, port: _, target: name } => {
                *ttl = lasts.min(*ttl);
                servers.push(Server { priority, weight, name, addresses: Vec::new() });
            }
            Data::Address(address) => {
                let Some(server) = servers.get_mut(server) else { return };
                let version = |one: &&IpAddr| one.is_ipv4() == address.is_ipv4();
                if server.addresses.iter().filter(version).count() < ADDRESSES {
                    *ttl = lasts.min(*ttl);
                    server.addresses.push(address);
                }
            }
        })?;
        self.counters.other_ports += others;
        if kind == Kind::Srv {
            servers.sort_by_key(|server| server.priority);
            servers.truncate(SERVERS);
            for (place, server) in servers.iter().enumerate() {
                for kind in [Kind::A, Kind::Aaaa] {
                    let mut id = random_id(&mut self.rng);
                    // Two queries of one stream have different identifiers.
                    while open.iter().any(|(other, ..)| *other == id) {
                        id = id.wrapping_add(1);
                    }
                    let query = (id, server.name.clone(), kind, place);
                    out.write(stream, |octets| message::query(octets, query.0, &query.1, query.2));
                    open.push(query);
                }
            }
        }
        if open.is_empty() {
            let (mut servers, ttl) = (core::mem::take(servers), *ttl);
            servers.retain(|server| !server.addresses.is_empty());
            out.push(DriverRequest::Close { stream, abort: false });
            let lasts = if servers.is_empty() {
                self.counters.empty += 1;
                NEGATIVE
            } else {
                self.counters.found += 1;
                Duration::from_secs(ttl.clamp(*TTL.start(), *TTL.end()).into())
            };
            self.conclude(now, place, servers, lasts);
        }
        Ok(())
    }

    /// A stream to a resolver ended before the answer was whole: the next one has its turn.
    pub(super) fn closed(&mut self, now: Time, stream: StreamId) {
        let Some(place) = self.place(stream) else { return };
        let Some(lookup) = invariant!(
            self.domains.get_mut(place).and_then(|one| one.lookup.take()),
            "a stream that ends is of a lookup"
        ) else {
            return;
        };
        self.counters.attempts_failed += 1;
        self.query(now, place, lookup.resolver + 1);
    }

    /// Ends what takes too long.
    pub(super) fn timer(&mut self, now: Time, out: &mut Outbox) {
        for place in 0..self.domains.len() {
            let lookup = self.domains.get(place).and_then(|domain| domain.lookup.as_ref());
            let due = lookup.filter(|lookup| lookup.deadline <= now);
            if let Some((stream, opened)) = due.map(|lookup| (lookup.stream, lookup.opened)) {
                if opened {
                    out.push(DriverRequest::Close { stream, abort: true });
                }
                self.closed(now, stream);
            }
        }
    }

    /// A lookup is over: who waits for it is answered.
    fn conclude(&mut self, now: Time, place: usize, servers: Vec<Server>, lasts: Duration) {
        let Some(domain) = invariant!(self.domains.get_mut(place), "an answer has a domain") else { return };
        (domain.servers, domain.until, domain.lookup) = (servers, now + lasts, None);
        for (id, dst) in core::mem::take(&mut domain.waiting) {
            let answer = self.choose(now, place, dst);
            self.answers.push_back((id, answer));
        }
    }

    /// A node could not be reached. If it is a server of a domain it is avoided for some time.
    pub(super) fn unreachable(&mut self, now: Time, address: IpAddr) {
        let mut servers = self.domains.iter().flat_map(|domain| &domain.servers);
        if servers.any(|server| server.addresses.contains(&address)) {
            self.avoided.retain(|_, until| now < *until);
            self.avoided.insert(address, now + AVOIDED);
        }
    }

    /// The server for a destination: of the lowest priority that has one that can be reached, by chance according to the weights
    /// (RFC 2782). The address is of the version of the destination if the server has one. A node that is a server itself finds no
    /// other one, so that no two servers of a domain pass a message to each other.
    fn choose(&mut self, now: Time, place: usize, dst: IpAddr) -> Option<IpAddr> {
        let Self { domains, own, avoided, rng, .. } = self;
        let servers = &domains.get(place)?.servers;
        if servers.iter().any(|server| server.addresses.iter().any(|one| own.contains(one))) {
            return None;
        }
        let usable = |server: &Server, all: bool| {
            let good = |one: &&IpAddr| all || avoided.get(*one).is_none_or(|until| *until <= now);
            let of_family = |same: bool| {
                server.addresses.iter().filter(move |one| (one.is_ipv4() == dst.is_ipv4()) == same)
            };
            of_family(true).find(good).or_else(|| of_family(false).find(good)).copied()
        };
        // If none of them can be reached, they are tried again.
        let all = !servers.iter().any(|server| usable(server, false).is_some());
        let mut fit: Vec<(&Server, IpAddr)> =
            servers.iter().filter_map(|server| Some((server, usable(server, all)?))).collect();
        let priority = fit.first()?.0.priority;
        fit.retain(|(server, _)| server.priority == priority);
        // Those of weight 0 first, so that they have a small chance.
        fit.sort_by_key(|(server, _)| server.weight);
        let total: u64 = fit.iter().map(|(server, _)| u64::from(server.weight)).sum();
        let drawn = rng.range(0..total + 1);
        let mut sum = 0;
        let chosen = fit.iter().find(|(server, _)| {
            sum += u64::from(server.weight);
            sum >= drawn
        });
        chosen.map(|(_, address)| *address)
    }

    /// The domain whose lookup has this stream. There are as many as the configuration has.
    fn place(&self, stream: StreamId) -> Option<usize> {
        self.domains.iter().position(|one| one.lookup.as_ref().is_some_and(|one| one.stream == stream))
    }
}

/// An identifier that cannot be guessed.
fn random_id(rng: &mut Random) -> u16 {
    u16::from_be_bytes(rng.array())
}
