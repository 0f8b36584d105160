//! The configuration of the application.

use core::time::Duration;

use signalbox_core::NslpId;

/// The session state that a node keeps (RFC 5974 §4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StateKeeping {
    /// State of each session: the node answers, refreshes and repairs.
    #[default]
    Stateful,
    /// The sum of rates for each interface: the node admits and forwards, and never answers.
    Reduced,
    /// No state: the node notes in the QSPEC what it can give, forwards it, and never answers.
    Stateless,
}

/// The action of a receiver for the reverse direction of a bidirectional reservation (RFC 5974 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ReverseDirection {
    /// None: another node makes the reservation, or there is none.
    None,
    /// It reserves: two sender-initiated reservations (Figure 9).
    #[default]
    Reserve,
    /// It sends a QUERY with RESERVE-INIT: a sender-initiated and a receiver-initiated reservation (Figure 10).
    Ask,
}

/// An aggregate that end-to-end reservations enter at this node (RFC 5974 §4.5).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Aggregate {
    /// Name of the egress interface into the aggregation region. Flows that leave by it enter the aggregate.
    pub interface: String,
    /// The node where the region ends: the QNR of the aggregate.
    pub deaggregator: core::net::IpAddr,
    /// Code point of the packets of the aggregate (0–63).
    pub dscp: u8,
    /// The rate of the aggregate is a multiple of this one, in octets a second, above 0. So not every flow changes the
    /// aggregate.
    pub step: u64,
}

/// The configuration of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Config {
    /// NSLPID. All nodes need the same.
    pub nslp: NslpId,
    /// NSLPID of end-to-end messages inside an aggregation region, whose nodes do not process them (RFC 5974 §3.3.1);
    /// `None`: this node is not at the edge of a region.
    pub bypass_nslp: Option<NslpId>,
    /// Aggregates that begin here; they need `bypass_nslp`.
    pub aggregates: Vec<Aggregate>,
    /// The session state that this node keeps.
    pub state: StateKeeping,
    /// This node is the P-QNE: messages with PROXY end here (RFC 5974 §4.8).
    pub proxy: bool,
    /// This node reserves for the sender of a flow that ends here, if the sender asks for it (RFC 5974 §5.4.2).
    pub accept_reserve_init: bool,
    /// Its action for the reverse direction of a bidirectional reservation that ends here.
    pub way_back: ReverseDirection,
    /// It accepts and sends refreshes without QSPEC (RFC 5974 §3.2.5).
    pub reduced_refresh: bool,
    /// Most further sessions in one refresh to the same peer (RFC 5974 §3.2.6); 0: no summary refreshes.
    pub summary: u16,
    /// It asks the next peer to acknowledge refreshes (RFC 5974 §5.4.1).
    pub acknowledged_refresh: bool,
    /// A reservation of this node stays although a node on the path does not support one of its parameters (N flag,
    /// RFC 5975 §4.2.2). Otherwise this node tears it down.
    pub accept_not_supported: bool,
    /// It tears the old branch down after the new one is confirmed (RFC 5974 §3.2.12).
    pub tear_old_branch: bool,
    /// A tear of this node requests a RESPONSE and is retransmitted until it comes, unless messages are sent reliably.
    /// RFC 5974 §5.2.4 advises against it. But a tear in a lost datagram would leave the reservation for a lifetime.
    pub repeat_tear: bool,
    /// QoS is provided by other means where routers do not have QoS NSLP: BREAK is not set for them (RFC 5974 §3.3.5).
    pub ignore_gaps: bool,
    /// Malformed messages are answered even if their sender is not authenticated (RFC 5974 §5.4).
    pub answer_faults: bool,
    /// RESPONSEs contain the text of the rule that refused.
    pub report_rule: bool,
    /// When a session is torn down, sessions bound to it with another code than 0x04 are notified (RFC 5974 §5.4.1).
    pub notify_bound: bool,
    /// A RESPONSE reports that a message waited too long for the message it was bound to (RFC 5974 §4.6).
    pub report_unsynchronised: bool,
    /// Refresh period R (RFC 5974 §5.3.4).
    pub refresh: Duration,
    /// K of the state lifetime `(K + 0.5) · 1.5 · R` (RFC 2205 §3.7).
    pub refresh_multiple: u8,
    /// Longest lifetime of state after a refresh, whatever refresh period the peer sent; not below the lifetime that follows
    /// from `refresh`. A peer that refreshes less often loses its reservation.
    pub max_lifetime: Duration,
    /// QOSNSLP_REQUEST_RETRY (RFC 5974 §5.2.4).
    pub request_retry: Duration,
    /// QOSNSLP_RETRY_MAX (RFC 5974 §5.2.4).
    pub retry_max: Duration,
    /// Number of new attempts after a transient failure of a reservation or query of this node. The first comes after
    /// `request_retry`, each other after twice the time (RFC 5974 §5.3.5); 0: the failure is reported at once.
    pub transient_retries: u8,
    /// Shortest interval between two refreshes of a session that are forwarded because they have an RII (RFC 5974 §7).
    pub forced_refresh_interval: Duration,
    /// Time in which GIST has to find the next node. After it this node is the last one.
    pub relay_timeout: Duration,
    /// Messages are sent reliably.
    pub reliable: bool,
    /// Messages are sent and accepted over authenticated channels only.
    pub secure: bool,
    /// Messages without verified routing state are accepted: stateless ones (Q-mode Data, RFC 5971 §5.3.2), payloads of
    /// Queries, and explicitly routed ones for unknown sessions. Anybody can send them, from any address. Nodes that keep
    /// no state (RFC 5974 §4.7) and receive stateless messages need it.
    pub accept_stateless: bool,
    /// Most sessions with a reservation or a request for one.
    pub max_sessions: u32,
    /// Most sessions with a QUERY only.
    pub max_queries: u32,
    /// Most octets that all sessions, and messages that wait for another message, keep of QSPECs and other objects beyond 512 each; a
    /// quarter is for sources that keep few. 0: none may keep more than 512.
    pub max_contents: u32,
    /// Most reservations and queries of users at one time.
    pub max_commands: u32,
    /// Most messages that wait for a route or for another message.
    pub max_parked: u32,
    /// Most messages whose status GIST reports.
    pub max_watched: u32,
    /// Most sessions that one session may be bound to, and most other flows that it may keep (REPLACE=0).
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
            report_rule: true,
            notify_bound: true,
            report_unsynchronised: true,
            refresh: Duration::from_secs(30),
            refresh_multiple: 3,
            max_lifetime: Duration::from_secs(600),
            request_retry: Duration::from_secs(2),
            retry_max: Duration::from_secs(30),
            transient_retries: 0,
            forced_refresh_interval: Duration::from_secs(1),
            relay_timeout: Duration::from_secs(3),
            reliable: false,
            secure: false,
            accept_stateless: false,
            max_sessions: 100_000,
            max_queries: 10_000,
            max_contents: 64 << 20,
            max_commands: 20_000,
            max_parked: 4096,
            max_watched: 4096,
            max_bound: 8,
        }
    }
}

impl Config {
    /// The refresh period in milliseconds, at least 1, as in REFRESH-PERIOD (RFC 5974 §5.1.3.3).
    #[must_use]
    pub fn period_ms(&self) -> u32 {
        u32::try_from(self.refresh.as_millis()).unwrap_or(u32::MAX).max(1)
    }

    /// State lifetime after a refresh of a peer with this refresh period (RFC 2205 §3.7), at most
    /// [`max_lifetime`](Self::max_lifetime).
    #[must_use]
    pub fn lifetime(&self, period_ms: u32) -> Duration {
        // (K + 0.5) · 1.5 · R = (2K + 1) · 3 · R / 4
        let quarters = (2 * u64::from(self.refresh_multiple) + 1) * 3;
        let lifetime = |period_ms: u32| Duration::from_millis((u64::from(period_ms) * quarters).div_ceil(4));
        lifetime(period_ms).min(self.max_lifetime.max(lifetime(self.period_ms())))
    }

    /// Whether tears of this node are retransmitted.
    #[must_use]
    pub const fn repeats_tears(&self) -> bool {
        self.repeat_tear && !self.reliable && !self.secure
    }

    /// Whether `nslp` is an NSLPID of the application.
    #[must_use]
    pub fn is_ours(&self, nslp: NslpId) -> bool {
        nslp == self.nslp || Some(nslp) == self.bypass_nslp
    }
}
