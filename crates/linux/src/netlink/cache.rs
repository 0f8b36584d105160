//! The kernel's answers about routes during the last second.
//!
//! A set-up asks for the routes of many flows between the same hosts, and each question costs a system call or two. Every
//! report of the kernel about links, addresses, routes and rules empties the cache, so that a user who follows these
//! reports misses nothing. What the kernel does not report (the MTU of a path, a redirect of ICMP) is a second old at most.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use signalbox_core::node::{NoRoute, Route, RouteQuery};

use super::codec::Connection;
use super::lookup::{DSCP, Question};

/// Number of answers that are kept, a power of two. A new answer replaces the one in its place.
const SLOTS: usize = 4096;
const LIFETIME: Duration = Duration::from_secs(1);
/// FRA_IP_PROTO, FRA_SPORT_RANGE and FRA_DPORT_RANGE: conditions of a rule on ports.
const PORT_CONDITIONS: [u16; 3] = [22, 23, 24];
const POLICIES: [&str; 2] =
    ["/proc/sys/net/ipv4/fib_multipath_hash_policy", "/proc/sys/net/ipv6/fib_multipath_hash_policy"];

/// Everything in a question that can change the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Answers of former generations count no more.
    generation: u64,
    dst: IpAddr,
    question: Question,
    dscp: u8,
    protocol: Option<u8>,
    ports: [Option<u16>; 2],
}

/// An answer of the kernel.
#[derive(Clone, Copy)]
struct Kept {
    key: Key,
    answer: Result<Route, NoRoute>,
}

/// The answers, and when they end.
pub(super) struct Cache {
    /// Empty until the first answer is kept.
    slots: Vec<Option<Kept>>,
    hasher: RandomState,
    generation: u64,
    expires: Option<Instant>,
    /// Whether routes of IPv4 and of IPv6 can depend on ports.
    by_ports: [bool; 2],
    /// The kernel's parameter that decides by what a route with several next hops is split, for both IP versions. A
    /// kernel without such routes has none.
    policies: [Option<File>; 2],
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            hasher: RandomState::new(),
            generation: 0,
            expires: None,
            by_ports: [true; 2],
            // A confined process can read an open file, but not open it.
            policies: POLICIES.map(|path| File::open(path).ok()),
        }
    }

    /// Forgets every answer.
    pub(super) const fn clear(&mut self) {
        self.expires = None;
    }

    /// The key of a question. An expired cache is emptied first, and then reads by `connection` whether ports matter.
    pub(super) fn key(&mut self, connection: &mut Connection, query: &RouteQuery, question: Question) -> Key {
        let now = Instant::now();
        if self.expires.is_none_or(|expires| expires <= now) {
            self.generation += 1;
            self.expires = Some(now + LIFETIME);
            self.by_ports = [libc::AF_INET, libc::AF_INET6].map(|family| {
                let policy = &self.policies[usize::from(family == libc::AF_INET6)];
                policy.as_ref().is_some_and(splits_by_ports) || has_rule_on_ports(connection, family)
            });
        }
        let with_ports = self.by_ports[usize::from(query.dst.is_ipv6())];
        let ports = if with_ports { [query.src_port, query.dst_port] } else { [None, None] };
        let generation = self.generation;
        Key { generation, dst: query.dst, question, dscp: query.tos & DSCP, protocol: query.protocol, ports }
    }

    /// The kernel's answer, if it is known.
    pub(super) fn get(&self, key: &Key) -> Option<Result<Route, NoRoute>> {
        let kept = self.slots.get(self.slot(key))?.as_ref()?;
        (kept.key == *key).then_some(kept.answer)
    }

    /// Keeps an answer of the kernel. A failure of the request itself is no answer.
    pub(super) fn put(&mut self, key: Key, answer: &Result<Route, NoRoute>) {
        if matches!(answer, Err(NoRoute::Failed)) {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        let at = self.slot(&key);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Some(Kept { key, answer: *answer });
        }
    }

    fn slot(&self, key: &Key) -> usize {
        self.hasher.hash_one(key) as usize % SLOTS
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
    found || dumped.is_err()
}
