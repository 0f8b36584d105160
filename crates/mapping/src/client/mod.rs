//! A client of one server, without I/O: a gateway asks the next one, which speaks PCP or NAT-PMP only (RFC 7648).
//!
//! The caller gives it packets of the server and the time, and takes what it wants to send. A mapping is known by protocol and
//! internal port, which are the caller's own. It is asked for until the server answers, renewed until the caller releases it,
//! and asked for at once when the server's epoch shows that it lost its mappings.
//!
//! * `epoch` judges the epochs of responses, `schedule` says when requests are sent again and mappings renewed.
//! * `mapping` is one mapping, `receive` reads responses.

mod epoch;
mod mapping;
mod receive;
mod schedule;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::Wheel;
use signalbox_core::{Random, Time};
use signalbox_wire::Writer;

use crate::wire::{Filter, ResultCode};
use epoch::Epoch;
use mapping::{Mapping, Next, Speech};

/// Longest lifetime that is taken from a response (RFC 6887 §8.3).
const LONGEST: Duration = Duration::from_secs(86_400);

/// Random delay before mappings are renewed because of an announcement (RFC 6887 §14.1.3, RFC 6886 §3.7).
const SPREAD: Duration = Duration::from_secs(5);

/// Configuration of a [`Client`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The server, with its port, 5351.
    pub server: SocketAddr,
    /// The address from which requests leave, which PCP repeats in each request.
    pub local: IpAddr,
    /// Most mappings.
    pub max_mappings: u32,
}

/// A mapping that the caller wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// IP protocol, one with ports.
    pub protocol: u8,
    /// Port of the caller.
    pub port: u16,
    /// What proves to the server that it is the same client: a number that cannot be guessed, another one for each server.
    pub nonce: [u8; 12],
    /// The external place that is wished; unspecified and 0 where any will do.
    pub wish: SocketAddr,
    /// Nothing but the wish will do.
    pub exactly: bool,
    /// Who may send; empty: anybody.
    pub filters: Vec<Filter>,
    /// Requested lifetime.
    pub lifetime: Duration,
}

/// Protocol and internal port of a mapping.
pub type Name = (u8, u16);

/// What the caller learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The mapping stands, or has another place now. NAT-PMP gives a port only; the address is unspecified then.
    Granted {
        /// The mapping.
        name: Name,
        /// Its external place.
        place: SocketAddr,
        /// Its lifetime. The client renews it.
        lifetime: Duration,
    },
    /// The server refused. It is not asked again before the caller wants it again.
    Refused {
        /// The mapping.
        name: Name,
        /// The result of PCP, or the one that corresponds to that of NAT-PMP.
        code: ResultCode,
        /// How long the same error is to be expected.
        lifetime: Duration,
    },
    /// The server did not answer the renewals of a mapping until its end.
    Ended {
        /// The mapping.
        name: Name,
    },
    /// No answer to any attempt by NAT-PMP, which ends after nine. PCP is tried as long as the caller wants.
    Silent {
        /// The mapping.
        name: Name,
    },
}

/// What a [`Client`] gives out.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Send these octets to the server from [`Config::local`].
    Send(&'a [u8]),
    /// The caller learns of a mapping.
    Event(Event),
}

#[derive(Debug)]
enum Queued {
    Send(Vec<u8>),
    Event(Event),
}

/// What the client counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Datagrams that are not from the server, or answer nothing that was asked.
    pub stray: u64,
    /// Datagrams that cannot be read.
    pub malformed: u64,
    /// Responses by which the server showed that it had lost its mappings.
    pub lost: u64,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    config: Config,
    now: Time,
    rng: Random,
    mappings: Slab<Mapping>,
    names: HashMap<Name, Key, KeyedHasher>,
    wheel: Wheel,
    epoch: Epoch,
    /// The server has answered by PCP.
    speaks_pcp: bool,
    /// No new mapping is asked of the server before (RFC 6887 §11.4).
    no_new_before: Time,
    counts: Counts,
    queue: VecDeque<Queued>,
    lent: Vec<u8>,
}

impl Client {
    /// A client without mappings. Times of retransmission are drawn from `seed`.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut rng = Random::new(seed);
        Self {
            config,
            now: Time::ZERO,
            mappings: Slab::new(config.max_mappings),
            names: HashMap::with_hasher(KeyedHasher::new(&mut rng)),
            rng,
            wheel: Wheel::default(),
            epoch: Epoch::default(),
            speaks_pcp: false,
            no_new_before: Time::ZERO,
            counts: Counts::default(),
            queue: VecDeque::new(),
            lent: Vec::new(),
        }
    }

    /// Asks for a mapping, or for a change of one. A server that had no resources is not asked for a new one before the time that it
    /// named: the answer is its error.
    pub fn want(&mut self, now: Time, wanted: Wanted) {
        self.now = self.now.max(now);
        let name = (wanted.protocol, wanted.port);
        let key = match self.names.get(&name) {
            Some(key) => *key,
            None => match self.enter(name, &wanted) {
                Ok(key) => key,
                Err(refused) => return self.tell(refused),
            },
        };
        if let Some(mapping) = self.mappings.get_mut(key) {
            mapping.want(wanted);
        }
        self.transmit(key);
    }

    fn enter(&mut self, name: Name, wanted: &Wanted) -> Result<Key, Event> {
        let refused = |lifetime| Event::Refused { name, code: ResultCode::NO_RESOURCES, lifetime };
        if self.no_new_before > self.now {
            return Err(refused(self.no_new_before.since(self.now)));
        }
        let usual = Duration::from_secs(ResultCode::NO_RESOURCES.usual_lifetime().into());
        let key = self.mappings.insert(Mapping::new(wanted.clone())).map_err(|_| refused(usual))?;
        self.names.insert(name, key);
        Ok(key)
    }

    /// Ends a mapping. The server is told once, and again until it answers or the mapping would have ended.
    pub fn release(&mut self, now: Time, name: Name) {
        self.now = self.now.max(now);
        let Some(key) = self.names.get(&name).copied() else { return };
        if let Some(mapping) = self.mappings.get_mut(key) {
            mapping.release(self.now);
        }
        self.transmit(key);
    }

    /// What is due. To be called at [`Client::next_deadline`].
    pub fn timer(&mut self, now: Time) {
        self.now = self.now.max(now);
        for _ in 0..signalbox_core::wheel::AT_ONCE {
            let Some(index) = self.wheel.pop_due(&mut self.mappings, self.now) else { break };
            if let Some(key) = self.mappings.key_of(index) {
                self.due(key);
            }
        }
    }

    /// When [`Client::timer`] is to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// The next output, if any. Its octets are valid until the next call.
    pub fn poll(&mut self) -> Option<Output<'_>> {
        Some(match self.queue.pop_front()? {
            Queued::Send(octets) => {
                self.lent = octets;
                Output::Send(&self.lent)
            }
            Queued::Event(event) => Output::Event(event),
        })
    }

    /// Number of mappings, with those that are being released.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.mappings.len()
    }

    /// Whether there is no mapping.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    fn tell(&mut self, event: Event) {
        self.queue.push_back(Queued::Event(event));
    }

    /// Sends the request of a mapping, and sets the time of the next one.
    fn transmit(&mut self, key: Key) {
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        let Some(wait) = mapping.sent(&mut self.rng) else { return self.silent(key) };
        let mut octets = Vec::new();
        mapping.request(self.config.local, &mut Writer::new(&mut octets));
        mapping.next = Next::Again;
        self.queue.push_back(Queued::Send(octets));
        self.arm(key, wait);
    }

    /// Sends a renewal, and sets the time of the next one.
    fn renew(&mut self, key: Key) {
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        let wait = mapping.renews(self.now, &mut self.rng);
        let mut octets = Vec::new();
        mapping.request(self.config.local, &mut Writer::new(&mut octets));
        self.queue.push_back(Queued::Send(octets));
        self.arm(key, wait);
    }

    fn arm(&mut self, key: Key, wait: Duration) {
        let mut at = self.now + wait;
        if let Some(ends) = self.mappings.get(key).and_then(Mapping::ends) {
            at = at.min(ends);
        }
        self.wheel.arm(&mut self.mappings, key.index(), at);
    }

    /// NAT-PMP had no answer to all of its attempts. What stands is renewed later, as long as it stands.
    fn silent(&mut self, key: Key) {
        if let Some(mapping) = self.mappings.get_mut(key).filter(|mapping| mapping.stands()) {
            mapping.begin();
            let wait = mapping.renewal(self.now, &mut self.rng);
            return self.arm(key, wait);
        }
        if let Some(mapping) = self.remove(key)
            && !mapping.is_released()
        {
            self.tell(Event::Silent { name: mapping.name() });
        }
    }

    fn due(&mut self, key: Key) {
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        if mapping.ends().is_some_and(|ends| ends <= self.now) {
            if let Some(mapping) = self.remove(key)
                && !mapping.is_released()
            {
                self.tell(Event::Ended { name: mapping.name() });
            }
            return;
        }
        match mapping.next {
            Next::Again => self.transmit(key),
            // A renewal begins with PCP each time anew (RFC 6887 appendix A), as every request does.
            Next::Renew => {
                mapping.begin();
                self.renew(key);
            }
        }
    }

    fn remove(&mut self, key: Key) -> Option<Mapping> {
        self.wheel.cancel(&mut self.mappings, key.index());
        let mapping = self.mappings.remove(key)?;
        self.names.remove(&mapping.name());
        Some(mapping)
    }

    /// The server lost its mappings: all that stand are asked for again, within `spread`. Those that are asked for now are left alone, and
    /// those that were granted just now wait, so that a server whose epochs change does not set the pace.
    fn renew_all(&mut self, spread: Duration) {
        self.counts.lost += 1;
        let standing = self.mappings.iter().filter(|(_, one)| one.stands() && !one.is_asked_for());
        let keys: Vec<Key> = standing.map(|(key, _)| key).collect();
        for key in keys {
            let wait = self.rng.jitter(spread, 0.0, 1.0);
            let Some(mapping) = self.mappings.get_mut(key) else { continue };
            mapping.begin();
            mapping.next = Next::Again;
            let wait = wait.max(mapping.rested(self.now));
            self.arm(key, wait);
        }
    }

    /// The way of speaking that a mapping uses now; for tests and users.
    #[must_use]
    pub fn speaks_nat_pmp(&self, name: Name) -> bool {
        let mapping = self.names.get(&name).and_then(|key| self.mappings.get(*key));
        mapping.is_some_and(|mapping| mapping.speech == Speech::NatPmp)
    }
}
