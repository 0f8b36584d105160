//! Configuration of the engine, with the defaults of RFC 5971.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::Prefix;

use super::association::AssociationConfig;

/// When routing state is installed at a responding node (RFC 5971 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Installation {
    /// On the Query, without a Confirm. It is fast, but forged Queries install state.
    Immediate,
    /// On the Query. The state is removed unless a Confirm with a valid cookie is received. Responses are retransmitted.
    Confirmed,
    /// On a Confirm with a valid cookie. A Query makes no state.
    #[default]
    Delayed,
}

/// The name of an interface in [`IngressFilter`] and [`OwnAddress`] for all interfaces that have no entry of their own.
pub const ANY_INTERFACE: &str = "*";

/// Flows that may enter by an interface: the sources of downstream Queries must be in one of its prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct IngressFilter {
    /// The name of the interface, or [`ANY_INTERFACE`]. Interfaces without any filter accept all sources.
    pub interface: String,
    /// Sources that are accepted.
    pub prefix: Prefix,
}

/// An address of this node in the Network-Layer-Information of messages that leave by an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OwnAddress {
    /// The name of the interface, or [`ANY_INTERFACE`].
    pub interface: String,
    /// The address. It is used while it is an address of this node, at any interface.
    pub address: IpAddr,
}

/// Configuration of a [`Gist`](super::Gist).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Peer identity in the Network-Layer-Information of this node, 1–255 octets; empty: each engine draws 16 random octets
    /// (RFC 5971 §4.4.3).
    pub identity: Vec<u8>,
    /// Validity time of routing state that this node proposes and requires; 1 s to 49 days; default 30 s (§4.4.4).
    pub validity: Duration,
    /// First interval between Queries, T1; 10 ms to 1 min; default 500 ms (§5.3.3).
    pub t1: Duration,
    /// Longest interval between Queries, T2; at least T1; default 64·T1 = 32 s.
    pub t2: Duration,
    /// Queries (and retransmitted Responses) of one handshake before giving up; 1–32; default 7, which is
    /// 63.5 s with the default T1.
    pub attempts: u8,
    /// How long a Querying state machine without application traffic is kept (`Inactive_QNode`); at least
    /// 1 s; default 60 s. `SetStateLifetime` changes it per session.
    pub inactivity: Duration,
    /// When a responding node installs state.
    pub installation: Installation,
    /// How long a Responder-Cookie's secret is used; cookies are valid for one to two periods; default 60 s.
    pub cookie_period: Duration,
    /// Answer invalid cookies with an error: for debugging only, since it makes backscatter (§8.5).
    pub cookie_errors: bool,
    /// Put the first message into the Query if its attributes allow it; otherwise it is sent after the Confirm.
    pub piggyback: bool,
    /// Deliver Q-mode Data for which there is no routing state, flagged as such (§6.1 rule 4).
    pub stateless_data: bool,
    /// Use the signaling source address (S=1) in every n-th retransmission of a Query; 0: never; default 3.
    pub signaling_source_every: u8,
    /// Send Queries upstream as well, for upstream messages without routing state (path-coupled method only, §5.8.1.3);
    /// default false. It is useful where the upstream peer is one IP hop away and is the next hop towards the flow's
    /// source, as at a host or at the border of a stub network. A peer that is further away refuses the Query.
    pub upstream_queries: bool,
    /// DSCP of messages, 0–63; default 0. Q-mode packets of a flow with a DSCP in its MRI have that DSCP (§5.8.1.2).
    pub dscp: u8,
    /// IP TTL of messages, 1–255; default 64. Upstream Queries always have 255.
    pub ip_ttl: u8,
    /// GIST hop count of messages, 1–255; default 64.
    pub hops: u8,
    /// Flow destinations (IPv4) to which Q-mode packets are sent without Router Alert; default: no destination. Only for
    /// destinations where the next GIST node is known to intercept packets without the option (§5.3.2.1). IPv6 packets
    /// always have the option.
    pub without_router_alert: Vec<Prefix>,
    /// Treat intercepted packets without Router Alert as Q-mode, if they are Queries or C=1 Data by their header; default
    /// false: they are forwarded as IP packets.
    pub intercept_without_alert: bool,
    /// Shortest destination mask that a downstream Query may have to be forwarded, IPv4; default 32 (§4.3.4).
    pub min_dst_prefix_v4: u8,
    /// The same for IPv6; default 128.
    pub min_dst_prefix_v6: u8,
    /// Filters for flows that enter the node; empty: all flows may enter.
    pub ingress_filters: Vec<IngressFilter>,
    /// Addresses of this node in the Network-Layer-Information, which are also the sources of its datagrams and
    /// associations (§5.2.2, §7.4). Empty: the address of the flow's end, or the one that routing selects.
    pub own_addresses: Vec<OwnAddress>,
    /// Largest GIST message in a datagram, in octets from the common header on; 128–1472; default 512, which fits any path
    /// (§4.3.3). If the MTU of the first hop is less than this and 64 octets, the limit is lower.
    pub max_datagram: u16,
    /// D-mode messages that this node sends per second, of all types together (§5.3.3); 0: no limit, for networks where
    /// capacity is engineered; default 20 000.
    pub dmode_rate: u32,
    /// Use `dmode_rate` only while the speed of no link is known, and then 5 % of the slowest one, also if that is more;
    /// default true.
    pub dmode_by_link: bool,
    /// Capacity of the slowest interface in octets per second; 0: not known. [`Config::dmode_limit`] takes it into
    /// account. The node sets it from the capacities that its links are configured with, and by [`super::Gist::slowest_link`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub slowest_link: u64,
    /// Messages that may be sent in a burst; default 5 000.
    pub dmode_burst: u32,
    /// Error messages per second; 0: no Error is sent; default 100. They also count for `dmode_rate`.
    pub error_rate: u32,
    /// Queries per second whose Response goes to the same IPv4 address or IPv6 /64, for applications of this node; a
    /// quarter of it in a burst; 0: no limit; default 50 000 (§8.4). Some addresses share one limit.
    pub query_rate_per_source: u32,
    /// Candidate Q-mode packets processed per second (§5.3.2.3); 0: no limit; default 200 000.
    pub intercept_rate: u32,
    /// How long the SII handle of a former peer stays valid for explicit routing; default 60 s.
    pub sii_retention: Duration,
    /// Timeout of the peering decision of an application; default 1 s.
    pub check_timeout: Duration,
    /// Most sessions; default 2 000 000.
    pub max_sessions: u32,
    /// Most pieces of routing state with peers at the same IPv4 address or IPv6 /64. Beyond that, a Query of such a peer
    /// installs no state; 0: no limit; default 1 000 000 (§8.4).
    pub max_sessions_per_source: u32,
    /// Most peers; default 65 536.
    pub max_peers: u32,
    /// Most messages queued for one session's handshake; default 16.
    pub max_queued_session: usize,
    /// Most octets queued for all handshakes together; default 16 MiB.
    pub max_queued: usize,
    /// Most peering decisions pending at one time; default 256.
    pub max_checks: usize,
    /// Most packets waiting for a route lookup; default 256.
    pub max_lookups: usize,
    /// Hold-down time: how long a further change of a destination's route waits after a change that was followed. It
    /// doubles with each further change; 0: no hold-down; default 1 s (RFC 5971 §7.1.3, §7.1.4). Sessions without their
    /// interface do not wait.
    pub hold_down: Duration,
    /// The longest hold-down time, at least `hold_down`; default 16 s.
    pub hold_down_max: Duration,
    /// Most destinations with a hold-down at one time; changes of other routes are followed at once; default 65 536.
    pub max_holds: usize,
    /// Mark upstream state Tentative as well when a downstream route changes: the same change may have moved the flow away
    /// from this node (§7.1.3). The repair then waits for one to two times `t1`, or until the next Query of the upstream
    /// peer. Default false.
    pub upstream_tentative: bool,
    /// Connection mode; off by default.
    pub associations: AssociationConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            identity: Vec::new(),
            validity: Duration::from_secs(30),
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(32),
            attempts: 7,
            inactivity: Duration::from_secs(60),
            installation: Installation::Delayed,
            cookie_period: Duration::from_secs(60),
            cookie_errors: false,
            piggyback: false,
            stateless_data: true,
            signaling_source_every: 3,
            upstream_queries: false,
            dscp: 0,
            ip_ttl: 64,
            hops: 64,
            without_router_alert: Vec::new(),
            intercept_without_alert: false,
            min_dst_prefix_v4: 32,
            min_dst_prefix_v6: 128,
            ingress_filters: Vec::new(),
            own_addresses: Vec::new(),
            max_datagram: 512,
            dmode_rate: 20_000,
            dmode_by_link: true,
            slowest_link: 0,
            dmode_burst: 5_000,
            error_rate: 100,
            query_rate_per_source: 50_000,
            intercept_rate: 200_000,
            sii_retention: Duration::from_secs(60),
            check_timeout: Duration::from_secs(1),
            max_sessions: 2_000_000,
            max_sessions_per_source: 1_000_000,
            max_peers: 65_536,
            max_queued_session: 16,
            max_queued: 16 << 20,
            max_checks: 256,
            max_lookups: 256,
            hold_down: Duration::from_secs(1),
            hold_down_max: Duration::from_secs(16),
            max_holds: 65_536,
            upstream_tentative: false,
            associations: AssociationConfig::default(),
        }
    }
}

/// A value out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("gist.{field}: {rule}")]
pub struct ConfigError {
    /// The field of [`Config`].
    pub field: &'static str,
    /// The range.
    pub rule: &'static str,
}

impl Config {
    /// The mean rate of D-mode messages, per second: [`Config::dmode_rate`], or less if messages of `max_datagram` octets
    /// would then take more than 5 % of the slowest interface (RFC 5971 §5.3.3). 0: no limit, since the operator
    /// engineers the capacity. GIST-5.3.3-25.
    #[must_use]
    pub fn dmode_limit(&self) -> u32 {
        if self.dmode_rate == 0 || self.slowest_link == 0 {
            return self.dmode_rate;
        }
        // 64 octets are allowed for the headers around a message, as in §4.3.3.
        let size = u64::from(self.max_datagram) + 64;
        let limit = u32::try_from(self.slowest_link / 20 / size).unwrap_or(u32::MAX);
        if self.dmode_by_link { limit.max(1) } else { self.dmode_rate.min(limit.max(1)) }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first field that is out of its range, and the range.
    pub fn validated(&self) -> Result<(), ConfigError> {
        let second = Duration::from_secs(1);
        let day = 86_400;
        let rules = [
            (self.identity.len() <= 255, "identity", "at most 255 octets"),
            (
                self.validity >= second && self.validity <= Duration::from_secs(49 * day),
                "validity",
                "1 s to 49 days",
            ),
            (
                self.t1 >= Duration::from_millis(10) && self.t1 <= Duration::from_secs(60),
                "t1",
                "10 ms to 60 s",
            ),
            (self.t2 >= self.t1 && self.t2 <= Duration::from_secs(day), "t2", "t1 to 1 day"),
            (self.attempts >= 1 && self.attempts <= 32, "attempts", "1 to 32"),
            (
                self.inactivity >= second && self.inactivity <= Duration::from_secs(49 * day),
                "inactivity",
                "1 s to 49 days",
            ),
            (self.cookie_period >= second, "cookie_period", "at least 1 s"),
            (
                self.hold_down_max >= self.hold_down && self.hold_down_max <= Duration::from_secs(day),
                "hold_down_max",
                "hold_down to 1 day",
            ),
            (self.dscp <= 63, "dscp", "0 to 63"),
            (self.ip_ttl >= 1, "ip_ttl", "1 to 255"),
            (self.hops >= 1, "hops", "1 to 255"),
            (self.min_dst_prefix_v4 <= 32, "min_dst_prefix_v4", "0 to 32"),
            (self.min_dst_prefix_v6 <= 128, "min_dst_prefix_v6", "0 to 128"),
            ((128..=1472).contains(&self.max_datagram), "max_datagram", "128 to 1472 octets"),
            (self.dmode_rate == 0 || self.dmode_burst >= 1, "dmode_burst", "at least 1"),
            (self.max_sessions >= 1, "max_sessions", "at least 1"),
            (self.max_peers >= 1, "max_peers", "at least 1"),
            (self.max_queued_session >= 1, "max_queued_session", "at least 1"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, field, rule)) => Err(ConfigError { field, rule }),
            None => self.associations.validated(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GIST-4.4.4-01, GIST-5.3.3-03, GIST-5.3.3-06: 30 s, 500 ms, 64·T1.
    #[test]
    fn defaults_are_those_of_the_rfc() {
        let config = Config::default();
        assert_eq!(config.validated(), Ok(()));
        assert_eq!(config.validity, Duration::from_secs(30));
        assert_eq!(config.t1, Duration::from_millis(500));
        assert_eq!(config.t2, config.t1 * 64);
        assert!(config.without_router_alert.is_empty() && !config.cookie_errors);
    }

    /// GIST-5.3.3-25: at 100 Mbit/s 5 % are 625 000 octets per second, and a message takes at most 576.
    #[test]
    fn the_rate_is_a_small_part_of_the_slowest_interface() {
        let config = Config { slowest_link: 12_500_000, ..Config::default() };
        assert_eq!(config.dmode_limit(), 1085);
        assert_eq!(Config { slowest_link: 1, ..config.clone() }.dmode_limit(), 1);
        assert_eq!(Config { slowest_link: 1_250_000_000, ..config.clone() }.dmode_limit(), 108_506);
        assert_eq!(Config { slowest_link: 0, ..config.clone() }.dmode_limit(), config.dmode_rate);
        let fixed = Config { dmode_by_link: false, ..config.clone() };
        assert_eq!(fixed.dmode_limit(), 1085);
        assert_eq!(Config { slowest_link: u64::MAX, ..fixed.clone() }.dmode_limit(), config.dmode_rate);
        assert_eq!(Config { dmode_rate: 10, ..fixed }.dmode_limit(), 10);
        // The operator engineers the capacity (§5.3.3).
        assert_eq!(Config { dmode_rate: 0, ..config }.dmode_limit(), 0);
    }

    /// GIST-A.3.3-02: a validity time of 0 is reserved; less than 1 s is not configured either.
    #[test]
    fn a_validity_time_of_zero_is_refused() {
        for validity in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(999)] {
            let config = Config { validity, ..Config::default() };
            assert_eq!(config.validated().unwrap_err().field, "validity");
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let config = Config { t2: Duration::from_millis(1), ..Config::default() };
        let error = config.validated().unwrap_err();
        assert_eq!(error.to_string(), "gist.t2: t1 to 1 day");
    }
}
