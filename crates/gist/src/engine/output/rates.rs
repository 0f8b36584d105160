//! Rate limits of messages that this node sends or takes (RFC 5971 §5.3.3, §8.4).

use core::net::{IpAddr, Ipv4Addr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::slab::Key;
use signalbox_core::{Causer, Direction, FairRate, IfIndex, SharedRate, Time, invariant};

use crate::engine::Gist;
use crate::engine::config::Config;

/// Who causes a D-mode message, for the rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Cause {
    /// The peer that began a session or was known before, or a user of this node.
    Known(Causer),
    /// The sender of a message that has proved nothing: its source, and the interface by which it came in.
    Stranger(IpAddr, IfIndex),
}

/// The rates of a node.
#[derive(Debug)]
pub(in crate::engine) struct Rates {
    /// Rate limit of D-mode messages (RFC 5971 §5.3.3), with a share for each interface, peer and source of flows.
    dmode: FairRate,
    /// The part of that limit that answers to senders without established state may take. They can be forged.
    strangers: SharedRate,
    /// Errors (RFC 5971 §5.6). Peers have a rate of their own beside that of all: forged messages would otherwise stop the Errors
    /// by which peers learn that this node has lost its state.
    errors: SharedRate,
    /// Q-mode messages that are taken (RFC 5971 §5.3.2.3).
    intercept: SharedRate,
}

impl Rates {
    /// The rates of a configuration, unused.
    pub(in crate::engine) fn new(config: &Config, hasher: KeyedHasher) -> Self {
        let (rate, burst) = (config.dmode_limit(), config.dmode_burst);
        Self {
            dmode: FairRate::new(rate, burst, hasher),
            strangers: SharedRate::new(rate.div_ceil(2), burst.div_ceil(2), None),
            errors: SharedRate::new(config.error_rate, config.error_rate.div_ceil(4), Some(hasher)),
            intercept: SharedRate::new(config.intercept_rate, config.intercept_rate.div_ceil(4), None),
        }
    }

    /// Takes the limits of other settings.
    pub(in crate::engine) fn set_limits(&mut self, now: Time, config: &Config) {
        self.set_dmode(now, config);
        self.intercept.set_limits(now, config.intercept_rate, config.intercept_rate.div_ceil(4));
        self.errors.set_limits(now, config.error_rate, config.error_rate.div_ceil(4));
    }

    /// Takes the limit of D-mode messages alone, which also follows the slowest link.
    pub(in crate::engine) fn set_dmode(&mut self, now: Time, config: &Config) {
        let (rate, burst) = (config.dmode_limit(), config.dmode_burst);
        self.dmode.set_limits(now, rate, burst);
        self.strangers.set_limits(now, rate.div_ceil(2), burst.div_ceil(2));
    }

    fn allow(&mut self, now: Time, cause: Cause) -> bool {
        match cause {
            Cause::Known(causer) => self.dmode.allow(now, || causer),
            // A flood of forged Queries leaves half of the rate to others.
            Cause::Stranger(src, ifindex) => {
                self.strangers.allow(now, (src, ifindex), || false) && self.dmode.allow_other(now)
            }
        }
    }

    /// Whether one more Error may be sent about a message from this source and interface. `known`: it is a peer's.
    pub(super) fn allow_error(
        &mut self,
        now: Time,
        origin: (IpAddr, IfIndex),
        known: impl FnOnce() -> bool,
    ) -> bool {
        self.errors.allow(now, origin, known)
    }

    /// Whether one more Q-mode message from this source and interface is taken.
    pub(in crate::engine) fn allow_q_mode(&mut self, now: Time, origin: (IpAddr, IfIndex)) -> bool {
        self.intercept.allow(now, origin, || false)
    }
}

impl Gist {
    /// Whether the rate limit allows one more D-mode message now (RFC 5971 §5.3.3). GIST-5.3.3-19.
    pub(in crate::engine) fn may_send(&mut self, cause: Cause) -> bool {
        let allowed = self.rates.allow(self.now, cause);
        self.counters.dmode_limited += u64::from(!allowed);
        allowed
    }

    /// The same for a message of a record: the peer that began it causes it, or a user of this node.
    pub(in crate::engine) fn may_send_for(&mut self, key: Key) -> bool {
        let Self { records, peers, rates, .. } = self;
        let causer = || {
            let Some(record) = invariant!(records.get(key), "only a session that stands sends messages")
            else {
                return of_user(None);
            };
            let party = record.flow.mri(Direction::Downstream).src();
            let began = record.halves.iter().find(|half| half.state.is_responding());
            let began =
                began.and_then(|half| invariant!(peers.peer(half.peer), "a responding direction has a peer"));
            match began {
                Some(peer) => Causer { ifindex: peer.ifindex, neighbor: peer.address.ip(), party },
                None => of_user(Some(party)),
            }
        };
        let allowed = rates.dmode.allow(self.now, causer);
        self.counters.dmode_limited += u64::from(!allowed);
        allowed
    }

    /// Who causes the answer to a message about a flow from this source: a known peer has its share beside that of strangers.
    pub(in crate::engine) fn cause_of_answer(
        &self,
        (src, ifindex): (IpAddr, IfIndex),
        party: IpAddr,
    ) -> Cause {
        if self.peers.is_known(src) {
            Cause::Known(Causer { ifindex, neighbor: src, party })
        } else {
            Cause::Stranger(src, ifindex)
        }
    }
}

/// A user of this node, with the source of its flow.
pub(in crate::engine) fn of_user(flow: Option<IpAddr>) -> Causer {
    let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Causer { ifindex: IfIndex::NONE, neighbor: none, party: flow.unwrap_or(none) }
}
