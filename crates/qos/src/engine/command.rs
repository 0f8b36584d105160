//! Commands of users.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::{Direction, Mri, SessionId};

use super::event::Refusal;

/// A command to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Command {
    /// Reserve, or change the reservation with this identifier.
    Reserve(Box<ReserveRequest>),
    /// Tear down the reservation with this identifier, or end the query.
    Release,
    /// Tear down these reservations with as few messages as possible.
    ReleaseMany(Vec<u64>),
    /// Query the QoS that the path can give.
    Query(Box<QueryRequest>),
}

/// The packets of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Flow {
    /// Destination: a unicast address.
    pub dst: IpAddr,
    /// Source, of the same IP version. `None`: the address of this node.
    #[cfg_attr(feature = "serde", serde(default))]
    pub src: Option<IpAddr>,
    /// IP protocol; `None` stands for any.
    #[cfg_attr(feature = "serde", serde(default))]
    pub protocol: Option<u8>,
    /// Source port; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub src_port: Option<u16>,
    /// Destination port; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dst_port: Option<u16>,
    /// Differentiated-services code point, 0–63.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dscp: Option<u8>,
    /// IPv6 flow label, 20 bits.
    #[cfg_attr(feature = "serde", serde(default))]
    pub flow_label: Option<u32>,
    /// IPsec security parameter index; needs `protocol`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub spi: Option<u32>,
}

impl Flow {
    /// All packets from this node to `dst`.
    #[must_use]
    pub const fn to(dst: IpAddr) -> Self {
        Self {
            dst,
            src: None,
            protocol: None,
            src_port: None,
            dst_port: None,
            dscp: None,
            flow_label: None,
            spi: None,
        }
    }

    /// The MRI of the flow (RFC 5971 §3.2).
    ///
    /// # Errors
    /// [`Refusal::NoRoute`] without a source, [`Refusal::Address`], [`Refusal::Ports`].
    pub fn mri(&self, direction: Direction) -> Result<Mri, Refusal> {
        let src = self.src.ok_or(Refusal::NoRoute)?;
        let unicast = |addr: IpAddr| {
            let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
            !addr.is_unspecified() && !addr.is_multicast() && !broadcast
        };
        if src.is_ipv4() != self.dst.is_ipv4() || !unicast(src) || !unicast(self.dst) {
            return Err(Refusal::Address);
        }
        let needs_protocol = self.src_port.is_some() || self.dst_port.is_some() || self.spi.is_some();
        if needs_protocol && self.protocol.is_none() {
            return Err(Refusal::Ports);
        }
        let dscp = self.dscp.is_some_and(|dscp| dscp > 63);
        let label = self.flow_label.is_some_and(|label| label > 0x000f_ffff || src.is_ipv4());
        if dscp || label {
            return Err(Refusal::Value);
        }
        Ok(Mri::PathCoupled(PathCoupled {
            protocol: self.protocol,
            dscp: self.dscp,
            flow_label: self.flow_label,
            spi: self.spi,
            src_port: self.src_port,
            dst_port: self.dst_port,
            direction,
            ..PathCoupled::between(src, self.dst)
        }))
    }
}

/// The requested service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Service {
    /// Service like on an unloaded network (RFC 2211).
    #[default]
    ControlledLoad,
    /// A bound on the delay (RFC 2212).
    Guaranteed,
    /// The per-hop behaviour of this code point, 0–63.
    Dscp(u8),
}

/// The requested QoS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct QosRequest {
    /// Rate of IP packets, in octets a second, above 0.
    pub rate: u64,
    /// Burst in octets; `None`: a tenth of a second at `rate`, at least two packets of the largest size.
    #[cfg_attr(feature = "serde", serde(default))]
    pub burst: Option<u32>,
    /// Peak rate in octets a second, at least `rate`; `None`: no limit.
    #[cfg_attr(feature = "serde", serde(default))]
    pub peak: Option<u64>,
    /// Minimum policed unit in octets: shorter packets count with this size.
    #[cfg_attr(feature = "serde", serde(default))]
    pub min_policed: u32,
    /// Largest packet in octets.
    #[cfg_attr(feature = "serde", serde(default = "default_packet"))]
    pub max_packet: u32,
    /// `max_packet` is what the user wants. Otherwise it is a first attempt, and where a link of the path is smaller, smaller packets
    /// are asked for.
    #[cfg_attr(feature = "serde", serde(default))]
    pub fixed_packet: bool,
    /// Service.
    #[cfg_attr(feature = "serde", serde(default))]
    pub service: Service,
    /// Largest queueing delay along the path, with [`Service::Guaranteed`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub delay: Option<Duration>,
    /// Lowest acceptable rate in octets a second, if `rate` is not available.
    #[cfg_attr(feature = "serde", serde(default))]
    pub minimum: Option<u64>,
}

const fn default_packet() -> u32 {
    1500
}

impl QosRequest {
    /// Controlled load at `rate` octets a second.
    #[must_use]
    pub const fn rate(rate: u64) -> Self {
        Self {
            rate,
            burst: None,
            peak: None,
            min_policed: 0,
            max_packet: default_packet(),
            fixed_packet: false,
            service: Service::ControlledLoad,
            delay: None,
            minimum: None,
        }
    }

    /// The burst: given, or derived from the rate.
    #[must_use]
    pub fn burst(&self) -> u32 {
        let derived = u32::try_from(self.rate / 10).unwrap_or(u32::MAX);
        self.burst.unwrap_or_else(|| derived.max(self.max_packet.saturating_mul(2)))
    }

    fn check(&self) -> Result<(), Refusal> {
        let peak = self.peak.is_some_and(|peak| peak < self.rate);
        let minimum = self.minimum.is_some_and(|minimum| minimum > self.rate || minimum == 0);
        let service = match self.service {
            Service::Dscp(dscp) => dscp > 63 || self.delay.is_some(),
            Service::ControlledLoad => self.delay.is_some(),
            Service::Guaranteed => false,
        };
        let packet = self.max_packet == 0 || self.min_policed > self.max_packet;
        if self.rate == 0 || peak || minimum || service || packet || self.burst() < self.max_packet {
            return Err(Refusal::Value);
        }
        Ok(())
    }
}

/// Priorities that decide between reservations when resources are short (RFC 5975 §5.2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Priority {
    /// It takes resources from reservations whose `defending` is lower.
    pub preemption: u16,
    /// It keeps them against reservations whose `preemption` is not higher. At least `preemption`.
    pub defending: u16,
}

/// A request for a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ReserveRequest {
    /// The flow.
    pub flow: Flow,
    /// The QoS.
    pub qos: QosRequest,
    /// Receiver-initiated: the far end makes the reservation (RFC 5974 §4.3).
    #[cfg_attr(feature = "serde", serde(default))]
    pub receiver_initiated: bool,
    /// Bidirectional: the reverse direction is reserved too (RFC 5974 §4.4).
    #[cfg_attr(feature = "serde", serde(default))]
    pub bidirectional: bool,
    /// The flow ends at this node, which reserves towards its source, as far as a proxy (RFC 5974 §4.8).
    #[cfg_attr(feature = "serde", serde(default))]
    pub incoming: bool,
    /// The reservation ends at the P-QNE.
    #[cfg_attr(feature = "serde", serde(default))]
    pub proxy: bool,
    /// The reservation ends at the next node (SCOPING).
    #[cfg_attr(feature = "serde", serde(default))]
    pub next_node_only: bool,
    /// Lifetime; `None`: until released.
    #[cfg_attr(feature = "serde", serde(default))]
    pub hold: Option<Duration>,
    /// Priorities; `None`: no preemption.
    #[cfg_attr(feature = "serde", serde(default))]
    pub priority: Option<Priority>,
    /// Authorization: the attribute list of a SESSION-AUTH object (RFC 5981), whole words.
    #[cfg_attr(feature = "serde", serde(default))]
    pub token: Option<Vec<u8>>,
    /// After a change of the flow, the reservation of the old flow stays too (REPLACE=0).
    #[cfg_attr(feature = "serde", serde(default))]
    pub keep_old: bool,
    /// The release is reported after the far end has confirmed the tear.
    #[cfg_attr(feature = "serde", serde(default))]
    pub confirm_release: bool,
    /// The session that its user gets for this flow and this kind of request each time. What a crash or a lost link left under it on
    /// the path is then replaced, and not in the way. The sessions of a bidirectional request are this one with its first bit clear,
    /// and with it set. `None`: one at random. So is the session if another reservation of this node has this one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub session: Option<SessionId>,
}

impl ReserveRequest {
    /// A request for a sender-initiated reservation that lasts until it is released.
    #[must_use]
    pub const fn new(flow: Flow, qos: QosRequest) -> Self {
        Self {
            flow,
            qos,
            receiver_initiated: false,
            bidirectional: false,
            incoming: false,
            proxy: false,
            next_node_only: false,
            hold: None,
            priority: None,
            token: None,
            keep_old: false,
            confirm_release: false,
            session: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        self.qos.check()?;
        let both = self.incoming && (self.receiver_initiated || self.bidirectional);
        let token = self.token.as_ref().is_some_and(|token| token.len() % 4 != 0 || token.len() > 1024);
        let priority = self.priority.is_some_and(|priority| priority.defending < priority.preemption);
        if both || token || priority || (self.receiver_initiated && self.bidirectional) {
            return Err(Refusal::Value);
        }
        Ok(())
    }
}

/// A request for a QUERY.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct QueryRequest {
    /// The flow.
    pub flow: Flow,
    /// The QoS.
    pub qos: QosRequest,
    /// The QUERY ends at the P-QNE.
    #[cfg_attr(feature = "serde", serde(default))]
    pub proxy: bool,
    /// The QUERY ends at the next node (SCOPING).
    #[cfg_attr(feature = "serde", serde(default))]
    pub next_node_only: bool,
    /// Authorization, as in [`ReserveRequest::token`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub token: Option<Vec<u8>>,
}

impl QueryRequest {
    /// A QUERY for `flow` without options.
    #[must_use]
    pub const fn new(flow: Flow, qos: QosRequest) -> Self {
        Self { flow, qos, proxy: false, next_node_only: false, token: None }
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        self.qos.check()?;
        if self.token.as_ref().is_some_and(|token| token.len() % 4 != 0 || token.len() > 1024) {
            return Err(Refusal::Value);
        }
        Ok(())
    }
}
