//! A session that this node initiated.

use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::traffic::ServiceClass;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Key, Random, Time};

use super::interfaces::Iface;
use super::io::{ServiceParameters, Unreachable};
use crate::wire::{Ends, FlowSpec, KEY_FIRST, Rates, ReturnProof};

/// How long the replies to the first, second and third send are waited for.
const REPLY_TIMERS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// Most loops of one set-up or change.
pub(super) const MAX_LOOPS: u8 = 8;

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The route to the far end is looked up.
    Route,
    /// A set-up or a change has no reply yet.
    Setup,
    /// Reserved; the timer is that of the next refresh, or of the reply to one.
    Established,
    /// A release has no reply yet.
    Closing,
}

/// A session that this node initiated.
#[derive(Debug)]
pub(super) struct Session {
    link: Link,
    /// The user's id; `None`: the user was given the last event.
    pub(super) id: Option<u64>,
    pub(super) state: State,
    /// Addresses of its requests.
    pub(super) ends: Ends,
    pub(super) flow: FlowSpec,
    pub(super) oif: Iface,
    /// What the next message asks for: pairs of rates as in a message.
    pub(super) wanted: Vec<Rates>,
    /// IntServ parameters beside the token rates, which are then the pair of `wanted`.
    pub(super) intserv: Option<ServiceParameters>,
    /// What the path reserved.
    pub(super) granted: Option<Rates>,
    pub(super) refresh: u8,
    pub(super) key: u64,
    /// Proofs of return, with the flags of their options: what the last reply had, and the next request returns.
    pub(super) proofs: Vec<(u16, ReturnProof)>,
    /// A route lookup is under way.
    pub(super) looks_up: bool,
    /// The user waits for the answer to a set-up or a change.
    pub(super) asked: bool,
    pub(super) user: Option<[u8; 8]>,
    /// It only asks what the path has.
    pub(super) query: bool,
    /// Its user waits until the release is answered.
    pub(super) confirms: bool,
    /// A router reported that the far end cannot be reached, since the last reply.
    pub(super) unreachable: Option<Unreachable>,
    /// Its last message had an authentication.
    pub(super) signed: bool,
    /// The nodes that grant it name themselves.
    pub(super) names_nodes: bool,
    /// When its last message left.
    pub(super) sent_at: Time,
    /// Sends since the last reply; their transaction numbers.
    outstanding: [Option<u32>; 3],
    sends: u8,
    pub(super) loops: u8,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    // BOOM-3.2.1-09
    pub(super) fn new(id: u64, ends: Ends, flow: FlowSpec, wanted: Vec<Rates>, refresh: u8) -> Self {
        Self {
            link: Link::default(),
            id: Some(id),
            state: State::Route,
            ends,
            flow,
            oif: Iface::LOCAL,
            wanted,
            intserv: None,
            granted: None,
            refresh,
            key: KEY_FIRST,
            proofs: Vec::new(),
            looks_up: false,
            asked: true,
            user: None,
            query: false,
            confirms: false,
            unreachable: None,
            signed: false,
            names_nodes: false,
            sent_at: Time::ZERO,
            outstanding: [None; 3],
            sends: 0,
            loops: 0,
        }
    }

    /// Whether its requests go to a group: nothing comes back.
    pub(super) const fn is_for_group(&self) -> bool {
        self.ends.dst.is_multicast()
    }

    pub(super) const fn service(&self) -> ServiceClass {
        match self.intserv {
            None => ServiceClass::Dscp(self.flow.classifier.tos >> 2),
            Some(ServiceParameters { guaranteed: None, .. }) => ServiceClass::ControlledLoad,
            Some(ServiceParameters { guaranteed: Some(_), .. }) => ServiceClass::Guaranteed,
        }
    }

    /// Whether its messages are about what the path granted before.
    pub(super) fn stands(&self) -> bool {
        self.granted.is_some() && self.state != State::Closing && !self.is_for_group()
    }

    /// Removes the sends so far: a reply came, or another message is sent from now on. The result is their transactions.
    pub(super) fn settle(&mut self) -> [Option<u32>; 3] {
        self.sends = 0;
        self.unreachable = None;
        core::mem::take(&mut self.outstanding)
    }

    /// Counts a message, sent or not. The result is how long its reply is waited for. BOOM-G16-01.
    pub(super) fn attempt(&mut self) -> Duration {
        let at = usize::from(self.sends).min(2);
        self.sends = self.sends.saturating_add(1);
        REPLY_TIMERS.get(at).copied().unwrap_or(REPLY_TIMERS[0])
    }

    /// Notes a send. The result is how long its reply is waited for.
    pub(super) fn sent(&mut self, transaction: u32) -> Duration {
        let at = usize::from(self.sends).min(2);
        if let Some(place) = self.outstanding.get_mut(at) {
            *place = Some(transaction);
        }
        self.attempt()
    }

    /// Whether a message waits for its reply.
    pub(super) const fn is_waiting(&self) -> bool {
        self.sends > 0
    }

    /// Whether the last message was sent as often as it is. BOOM-2.1-03, BOOM-F4.2.1-01.
    pub(super) const fn is_given_up(&self) -> bool {
        self.sends >= 3
    }

    /// When the next refresh is due: the interval is only ever made shorter, so that sessions do not fall into step.
    /// BOOM-3.2.1-02, BOOM-G14-03, BOOM-2.1-01, BOOM-3.2.1-03.
    pub(super) fn next_refresh(&self, now: Time, rng: &mut Random) -> Time {
        now + rng.jitter(Duration::from_secs(self.refresh.into()), 0.8, 1.0)
    }
}

/// The session that each transaction without reply belongs to.
pub(super) type ByTransaction = HashMap<u32, Key, KeyedHasher>;
