//! The kernel's answers about routes during the last seconds.
//!
//! A set-up asks for the routes of many flows between the same hosts, and each question costs a system call or two: some 20 µs of a
//! message that comes after a pause. Every report of the kernel about links, addresses, routes and rules empties the cache, so that a
//! user who follows these reports misses nothing. For packets of this node, what the kernel does not report is a second old at most:
//! the MTU of a path, a redirect of ICMP. A router uses neither for what it forwards, by the kernel's defaults (`ip_forward_use_pmtu`,
//! `accept_redirects`). What else changes its forwarding without a report are settings of the administrator, such as the reverse
//! path filter. Answers about forwarded packets are therefore kept for ten seconds: most first messages of flows need no question.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_core::{IfIndex, KeyedHasher};

use super::codec::Connection;
use super::lookup::{DSCP, Question};
use crate::clock;

/// Number of answers that are kept, a power of two. A new answer replaces the one in its place.
const SLOTS: usize = 4096;
/// How long an answer about a packet of this node is kept, and how old is what is known about the influence of ports.
const LIFETIME: Duration = Duration::from_secs(1);
/// The same for a forwarded packet.
const FORWARDED: Duration = Duration::from_secs(10);
/// FRA_IP_PROTO, FRA_SPORT_RANGE and FRA_DPORT_RANGE: conditions of a rule on ports.
const PORT_CONDITIONS: [u16; 3] = [22, 23, 24];
const POLICIES: [&str; 2] =
    ["/proc/sys/net/ipv4/fib_multipath_hash_policy", "/proc/sys/net/ipv6/fib_multipath_hash_policy"];
/// Octets of a key.
const KEY: usize = 56;

/// Everything in a question that can change the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Two addresses, three interfaces, two ports, protocol, DSCP, flags and the generation. Answers of former generations count
    /// no more.
    octets: [u8; KEY],
    /// Their place in the cache. The answer is looked for and stored by one hash.
    slot: usize,
    /// When the question was asked, and how long its answer is kept.
    now: Instant,
    lifetime: Duration,
}

/// An answer of the kernel.
#[derive(Clone, Copy)]
struct Kept {
    octets: [u8; KEY],
    until: Instant,
    answer: Result<Route, NoRoute>,
}

/// The answers, and when they end.
pub(super) struct Cache {
    /// Empty until the first answer is kept.
    slots: Vec<Option<Kept>>,
    /// Keyed, because peers choose what is hashed.
    hasher: KeyedHasher,
    generation: u32,
    /// Whether routes of IPv4 and of IPv6 can depend on ports, and until when that is known.
    by_ports: [bool; 2],
    known_until: Option<Instant>,
    /// The kernel's parameter that decides by what a route with several next hops is split, for both IP versions. A
    /// kernel without such routes has none.
    policies: [Option<File>; 2],
}

impl Cache {
    /// An empty cache, with a key of the kernel's randomness.
    ///
    /// # Errors
    /// The kernel has no `getrandom`.
    pub(super) fn new() -> io::Result<Self> {
        let seed = clock::seed()?;
        Ok(Self {
            slots: Vec::new(),
            hasher: KeyedHasher::with_key(*seed.first_chunk().ok_or(io::ErrorKind::InvalidData)?),
            generation: 0,
            by_ports: [true; 2],
            known_until: None,
            // A confined process can read an open file, but not open it.
            policies: POLICIES.map(|path| File::open(path).ok()),
        })
    }

    /// Removes every answer.
    pub(super) const fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.known_until = None;
    }

    /// The key of a question. Once a second it first reads by `connection` whether ports matter.
    pub(super) fn key(&mut self, connection: &mut Connection, query: &RouteQuery, question: Question) -> Key {
        let now = Instant::now();
        if self.known_until.is_none_or(|until| until <= now) {
            self.known_until = Some(now + LIFETIME);
            self.by_ports = [libc::AF_INET, libc::AF_INET6].map(|family| {
                let policy = &self.policies[usize::from(family == libc::AF_INET6)];
                policy.as_ref().is_some_and(splits_by_ports) || has_rule_on_ports(connection, family)
            });
        }
        let ipv6 = query.dst.is_ipv6();
        let with_ports = self.by_ports[usize::from(ipv6)];
        // The question to the kernel is the same without a port and with port 0.
        let port = |port: Option<u16>| port.filter(|_| with_ports).unwrap_or(0).to_ne_bytes();
        let interface = |interface: Option<IfIndex>| interface.map_or(0, |one| one.0).to_ne_bytes();
        let mut octets = [0; KEY];
        octets[..16].copy_from_slice(&wide(query.dst));
        octets[16..32].copy_from_slice(&question.src.map_or([0; 16], wide));
        octets[32..36].copy_from_slice(&interface(question.iif));
        octets[36..40].copy_from_slice(&interface(question.oif));
        octets[40..44].copy_from_slice(&interface(question.without));
        octets[44..46].copy_from_slice(&port(query.src_port));
        octets[46..48].copy_from_slice(&port(query.dst_port));
        octets[48..52].copy_from_slice(&self.generation.to_ne_bytes());
        octets[52..54].copy_from_slice(&[query.protocol.unwrap_or(0), query.tos & DSCP]);
        octets[54..].copy_from_slice(&[
            u8::from(ipv6) | u8::from(question.src.is_some()) << 1,
            u8::from(question.forwarded),
        ]);
        let slot = self.hasher.hash_octets(&octets) as usize % SLOTS;
        Key { octets, slot, now, lifetime: if question.forwarded { FORWARDED } else { LIFETIME } }
    }

    /// The kernel's answer, if it is known.
    pub(super) fn get(&self, key: &Key) -> Option<Result<Route, NoRoute>> {
        let kept = self.slots.get(key.slot)?.as_ref()?;
        (kept.octets == key.octets && key.now < kept.until).then_some(kept.answer)
    }

    /// Keeps an answer of the kernel. A failure of the request itself is no answer.
    pub(super) fn put(&mut self, key: &Key, answer: &Result<Route, NoRoute>) {
        if matches!(answer, Err(NoRoute::Failed)) {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        if let Some(place) = self.slots.get_mut(key.slot) {
            *place = Some(Kept { octets: key.octets, until: key.now + key.lifetime, answer: *answer });
        }
    }
}

/// An address in 16 octets, without its family.
const fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Whether a route with several next hops chooses one by more than addresses (policy 0). In doubt it does.
fn splits_by_ports(policy: &File) -> bool {
    let mut text = [0; 4];
    match policy.read_at(&mut text, 0) {
        Ok(length) => text.get(..length).is_none_or(|text| text.trim_ascii() != b"0"),
        Err(_) => true,
    }
}

/// Whether a policy rule has a condition on ports or the protocol. In doubt one has.
fn has_rule_on_ports(connection: &mut Connection, family: i32) -> bool {
    let mut found = false;
    let header = [family as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let dumped: io::Result<()> =
        connection.begin(libc::RTM_GETRULE, libc::NLM_F_DUMP, &header).transact(|rule| {
            let attributes = rule.split::<12>().map(|(_, attributes)| attributes);
            found |= attributes.into_iter().flatten().any(|(kind, _)| PORT_CONDITIONS.contains(&kind));
        });
    // A family that the kernel does not have has no rules.
    found || dumped.is_err_and(|error| error.raw_os_error() != Some(libc::EAFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Result<Route, NoRoute> = Err(NoRoute::Unreachable);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The key of the same question, asked `ms` milliseconds later.
    fn later(key: &Key, ms: u64) -> Key {
        Key { now: key.now + Duration::from_millis(ms), ..*key }
    }

    #[test]
    fn an_answer_ends_with_its_time_and_with_a_report_of_the_kernel() {
        let (mut cache, mut connection) = (Cache::new().unwrap(), Connection::open().unwrap());
        let query = RouteQuery::to(ip("192.0.2.1"));
        let forwarded = Question { src: Some(ip("198.51.100.1")), forwarded: true, ..Question::default() };
        for (question, lifetime) in [(Question::default(), 1), (forwarded, 10)] {
            let key = cache.key(&mut connection, &query, question);
            assert_eq!(cache.get(&key), None);
            cache.put(&key, &ANSWER);
            assert_eq!(cache.get(&later(&key, lifetime * 1000 - 1)), Some(ANSWER));
            assert_eq!(cache.get(&later(&key, lifetime * 1000)), None, "too old");
            cache.clear();
            let key = cache.key(&mut connection, &query, question);
            assert_eq!(cache.get(&key), None, "the kernel reported a change");
        }
    }

    #[test]
    fn each_part_of_a_question_counts() {
        let (mut cache, mut connection) = (Cache::new().unwrap(), Connection::open().unwrap());
        let to = |text| RouteQuery::to(ip(text));
        let asked = RouteQuery { tos: 0x20, protocol: Some(17), ..to("192.0.2.1") };
        let (none, src) = (Question::default(), Some(ip("192.0.2.1")));
        let one = Some(IfIndex(1));
        let questions = [
            (asked, none),
            (to("192.0.2.1"), none),
            (to("192.0.2.2"), none),
            (to("::ffff:192.0.2.1"), none),
            (to("::"), none),
            (to("0.0.0.0"), none),
            (RouteQuery { tos: 0x23, ..asked }, Question { src, ..none }),
            (asked, Question { src: Some(ip("::")), ..none }),
            (asked, Question { src, forwarded: true, ..none }),
            (asked, Question { src, iif: one, ..none }),
            (asked, Question { src, oif: one, ..none }),
            (asked, Question { src, without: one, ..none }),
        ];
        let keys = questions.map(|(query, question)| cache.key(&mut connection, &query, question).octets);
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
        // The congestion bits must not count.
        let marked = RouteQuery { tos: 0x22, ..asked };
        assert_eq!(cache.key(&mut connection, &marked, none).octets, keys[0]);
    }
}
