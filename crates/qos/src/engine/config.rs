//! What can be set.

use core::time::Duration;

use signalbox_core::NslpId;

/// What a node does with what a RESERVE asks for and how much of it it remembers (RFC 5974 §4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StateKeeping {
    /// Everything, for each session: it answers, refreshes, repairs.
    #[default]
    Stateful,
    /// The sum per interface only: it admits and passes on, and never answers.
    Reduced,
    /// Nothing: it notes in the QSPEC what it could give and passes on, and never answers.
    Stateless,
}

/// What the receiver of a bidirectional reservation does for the way back (§4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ReverseDirection {
    /// Nothing: somebody else reserves, or nobody.
    None,
    /// It reserves itself: two sender-initiated reservations (Figure 9).
    #[default]
    Reserve,
    /// It asks the initiator to reserve: a sender- and a receiver-initiated reservation (Figure 10).
    Ask,
}

/// An aggregate that end-to-end reservations enter at this node (§4.5).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Aggregate {
    /// Flows that leave by the interface of this name, into the aggregation region, go into it.
    pub interface: String,
    /// The node where the region ends: the QNR of the aggregate.
    pub deaggregator: core::net::IpAddr,
    /// The aggregate's packets carry this code point (0–63).
    pub dscp: u8,
    /// It grows and shrinks by multiples of this rate, in octets a second, above 0, so that not every flow changes it.
    pub step: u64,
}

/// Settings of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// The application's number; all nodes must agree.
    pub nslp: NslpId,
    /// The number that end-to-end messages have inside an aggregation region, where nodes pass them by (§3.3.1);
    /// `None`: this node is at no region's edge.
    pub bypass_nslp: Option<NslpId>,
    /// Aggregates that begin here; they need `bypass_nslp`.
    pub aggregates: Vec<Aggregate>,
    /// How much it remembers.
    pub state: StateKeeping,
    /// This node is the P-QNE: messages with PROXY set end here (§4.8).
    pub proxy: bool,
    /// It reserves when the sender of a flow that ends here asks for it (§5.4.2).
    pub accept_reserve_init: bool,
    /// What it does for the way back of a bidirectional reservation that ends here.
    pub way_back: ReverseDirection,
    /// It understands refreshes without QSPEC, and sends them (§3.2.5).
    pub reduced_refresh: bool,
    /// It puts sessions of the same next peer into one refresh, at most so many beside the first (§3.2.6); 0: none.
    pub summary: u16,
    /// It asks the next peer to acknowledge refreshes (§5.4.1).
    pub acknowledged_refresh: bool,
    /// A reservation of this node stands although a node on the path cannot interpret one of its parameters (N flag, RFC
    /// 5975 §4.2.2). Else this node tears it down.
    pub accept_not_supported: bool,
    /// It tears the old branch down once the new one stands (§3.2.12).
    pub tear_old_branch: bool,
    /// A tear of this node's own asks for a RESPONSE and is repeated until that comes, unless messages are sent reliably.
    /// §5.2.4 advises against it; but where datagrams get lost, so do tears, and then the reservation stands for a
    /// lifetime.
    pub repeat_tear: bool,
    /// QoS is provided by other means where routers do not know the application: BREAK is not set for them (§3.3.5).
    pub ignore_gaps: bool,
    /// Faulty messages are answered even if their sender is not authenticated (§5.4).
    pub answer_faults: bool,
    /// RESPONSEs carry the text of the rule that refused.
    pub tell_rule: bool,
    /// A session that depends on one that was torn down with another code than 0x04 is told by NOTIFY (§5.4.1).
    pub notify_bound: bool,
    /// A RESPONSE tells when a message waited in vain for the one it was bound to (§4.6).
    pub tell_unsynchronised: bool,
    /// Refresh period R (§5.3.4).
    pub refresh: Duration,
    /// K of the state lifetime `(K + 0.5) · 1.5 · R` (RFC 2205 §3.7).
    pub refresh_multiple: u8,
    /// QOSNSLP_REQUEST_RETRY (§5.2.4).
    pub request_retry: Duration,
    /// QOSNSLP_RETRY_MAX (§5.2.4).
    pub retry_max: Duration,
    /// How often a reservation or query of this node that failed for the moment is asked for again before its user hears
    /// of it, after `request_retry` at first and twice as long each time (§5.3.5); 0: the user decides.
    pub transient_retries: u8,
    /// Least time between two refreshes of a session that go on because they have an RII (§7).
    pub forced_refresh_interval: Duration,
    /// How long GIST may look for the next node before this one takes itself for the last.
    pub relay_timeout: Duration,
    /// Messages are sent reliably.
    pub reliable: bool,
    /// Messages are sent over authenticated channels only.
    pub secure: bool,
    /// Most sessions with a reservation, or waiting for one.
    pub max_sessions: u32,
    /// Most sessions of which only a QUERY was seen.
    pub max_queries: u32,
    /// Most reservations and queries that this node starts at one time.
    pub max_commands: u32,
    /// Most messages that wait for a route or for another message.
    pub max_parked: u32,
    /// Most messages whose fate is watched.
    pub max_watched: u32,
    /// Most sessions that one session may be bound to, and most further flows that it may keep (REPLACE=0).
    pub max_bound: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nslp: NslpId::QOS,
            bypass_nslp: None,
            aggregates: Vec::new(),
            state: StateKeeping::Stateful,
            proxy: false,
            accept_reserve_init: true,
            way_back: ReverseDirection::Reserve,
            reduced_refresh: true,
            summary: 0,
            acknowledged_refresh: false,
            accept_not_supported: true,
            tear_old_branch: true,
            repeat_tear: true,
            ignore_gaps: false,
            answer_faults: false,
            tell_rule: true,
            notify_bound: true,
            tell_unsynchronised: true,
            refresh: Duration::from_secs(30),
            refresh_multiple: 3,
            request_retry: Duration::from_secs(2),
            retry_max: Duration::from_secs(30),
            transient_retries: 0,
            forced_refresh_interval: Duration::from_secs(1),
            relay_timeout: Duration::from_secs(3),
            reliable: false,
            secure: false,
            max_sessions: 100_000,
            max_queries: 10_000,
            max_commands: 20_000,
            max_parked: 4096,
            max_watched: 4096,
            max_bound: 8,
        }
    }
}

impl Config {
    /// The refresh period in milliseconds, as REFRESH-PERIOD carries it: 1 at least.
    #[must_use]
    pub fn period_ms(&self) -> u32 {
        u32::try_from(self.refresh.as_millis()).unwrap_or(u32::MAX).max(1)
    }

    /// How long state lives after a refresh by a peer whose period is `period_ms`.
    #[must_use]
    pub fn lifetime(&self, period_ms: u32) -> Duration {
        // (K + 0.5) · 1.5 · R = (2K + 1) · 3 · R / 4
        let quarters = (2 * u64::from(self.refresh_multiple) + 1) * 3;
        Duration::from_millis((u64::from(period_ms) * quarters).div_ceil(4))
    }

    /// Whether own tears are repeated.
    #[must_use]
    pub const fn repeats_tears(&self) -> bool {
        self.repeat_tear && !self.reliable && !self.secure
    }

    /// Whether `nslp` is one of the application's numbers.
    #[must_use]
    pub fn is_ours(&self, nslp: NslpId) -> bool {
        nslp == self.nslp || Some(nslp) == self.bypass_nslp
    }
}
