//! A gateway between hosts inside and a peer outside, whose messages are made here, before the clock starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Result, ensure};
use signalbox_core::kit::interface;
use signalbox_core::packet::{Received, router_alert_v4};
use signalbox_core::pinhole::PinholeId;
use signalbox_core::{Entry, IfIndex, SessionId, Time};
use signalbox_gist::gateway::{Config, Gateway, Input, Output};
use signalbox_gist::wire::PORT;

use super::super::machine::timed;
use super::messages;

/// Most flows: each has two bindings, and the gateway a million of them at most.
pub(super) const MOST_FLOWS: u32 = 300_000;
const GATEWAY_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const INSIDE: IfIndex = IfIndex(1);
const OUTSIDE: IfIndex = IfIndex(2);
/// First host inside, and number of hosts. Each has two ports, so that all find external ones.
const FIRST_HOST: u32 = 0x0a01_0001;
const HOSTS: u32 = 16_384;
/// First destination. Each turn of the hosts has one of its own.
const FIRST_FAR: u32 = 0xcb00_7101;
/// The port of flows.
const DATA: u16 = 5004;
/// Messages between two looks at the clock.
pub(super) const BATCH: u32 = 512;
/// Virtual time that a batch takes: all flows are refreshed long before they would expire.
const BATCH_TIME: Duration = Duration::from_millis(20);

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first Query of a flow, and its Response.
    Query,
    Response,
    /// The next ones.
    Refresh,
    RefreshResponse,
}

impl Kind {
    const fn is_response(self) -> bool {
        matches!(self, Self::Response | Self::RefreshResponse)
    }

    const fn part(self) -> &'static str {
        match self {
            Self::Query => "Query",
            Self::Response => "Response",
            Self::Refresh => "Query, refresh",
            Self::RefreshResponse => "Response, refresh",
        }
    }
}

/// A packet of a batch, in the buffer of its octets.
#[derive(Debug, Clone)]
struct Packet {
    src: SocketAddr,
    dst: SocketAddr,
    payload: Vec<u8>,
}

/// The gateway.
pub(super) struct World {
    gateway: Gateway,
    now: Time,
    /// Queries that left in the batch.
    sent: Vec<Packet>,
}

fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_HOST + number % HOSTS)
}

fn session(number: u32) -> SessionId {
    SessionId(((u128::from(number) << 96) | 7).to_be_bytes())
}

/// Returns the Query of a flow's source.
fn query(number: u32) -> Result<Packet> {
    let (src, dst) = (source(number), Ipv4Addr::from_bits(FIRST_FAR + number / HOSTS));
    let [from, to] = [src, dst].map(|address| SocketAddrV4::new(address, DATA));
    let payload = messages::query(from, to, session(number))?;
    Ok(Packet { src: (src, PORT).into(), dst: (dst, PORT).into(), payload })
}

/// Returns the Response to a Query that has passed the gateway.
fn response(query: &Packet) -> Result<Packet> {
    let payload = messages::response(&query.payload, query.dst.ip())?;
    Ok(Packet { src: query.dst, dst: query.src, payload })
}

impl World {
    pub(super) fn new() -> Result<Self> {
        let inside = interface(INSIDE.0, vec![GATEWAY_INSIDE.into()]);
        let outside = interface(OUTSIDE.0, vec![EXTERNAL.into()]);
        let config = Config {
            inside: vec![inside.name.clone()],
            outside: vec![outside.name.clone()],
            first_port: 1024,
            last_port: u16::MAX,
            max_bindings: 1_000_000,
            queries_of_source: 0,
            ..Config::default()
        };
        let mut gateway = Gateway::new(config, [9; 32])?;
        gateway.handle(Time::ZERO, Input::Interfaces(&[inside, outside]));
        Ok(Self { gateway, now: Time::ZERO, sent: Vec::new() })
    }

    /// Bindings of the gateway.
    pub(super) fn held(&self) -> u32 {
        let [bindings, _] = self.gateway.tables();
        bindings.size
    }

    /// Gives the gateway one message for each flow from `first` on; returns the processor time. The Responses of a batch follow
    /// its Queries.
    pub(super) fn take(&mut self, kind: Kind, first: u32, count: u32) -> Result<Duration> {
        self.now = self.now + BATCH_TIME;
        let packets: Vec<Packet> = if kind.is_response() {
            self.sent.iter().map(response).collect::<Result<_>>()?
        } else {
            (first..first + count).map(query).collect::<Result<_>>()?
        };
        let (options, ifindex) = match kind.is_response() {
            true => (Vec::new(), OUTSIDE),
            false => (router_alert_v4(0).to_vec(), INSIDE),
        };
        let mut left = Vec::with_capacity(packets.len());
        left.resize(packets.len(), Packet { src: EXTERNAL_END, dst: EXTERNAL_END, payload: vec![0; 512] });
        let mut sent = 0;
        let (gateway, now) = (&mut self.gateway, self.now);
        let meter = timed(kind.part(), || {
            for packet in &packets {
                gateway.handle(
                    now,
                    Input::Datagram(Received {
                        entry: Entry::Udp(PORT),
                        src: packet.src,
                        dst: packet.dst,
                        ifindex,
                        ttl: 64,
                        tos: 0,
                        options: &options,
                        payload: &packet.payload,
                    }),
                );
                sent += drain(gateway, now, left.get_mut(sent..).unwrap_or_default());
            }
            Ok(count.into())
        })?;
        ensure!(sent == packets.len(), "{sent} messages left instead of {}", packets.len());
        self.sent = left;
        Ok(meter.time)
    }
}

const EXTERNAL_END: SocketAddr = SocketAddr::new(IpAddr::V4(EXTERNAL), PORT);

/// Acts as a kernel that sends all and makes all bindings. Returns the number of packets, which are copied to `left`.
fn drain(gateway: &mut Gateway, now: Time, left: &mut [Packet]) -> usize {
    let mut sent = 0;
    let mut opened: Option<PinholeId> = None;
    let mut sought: Option<PinholeId> = None;
    loop {
        match gateway.poll() {
            Some(Output::Transmit(packet)) => {
                if let Some(place) = left.get_mut(sent) {
                    (place.src, place.dst) = (packet.src, packet.dst);
                    place.payload.clear();
                    place.payload.extend_from_slice(packet.payload);
                }
                sent += 1;
            }
            Some(Output::Open { id, .. }) => opened = Some(id),
            Some(Output::Find { id, .. }) => sought = Some(id),
            Some(Output::Close { .. }) => {}
            None => return sent,
        }
        if let Some(id) = sought.take() {
            gateway.handle(now, Input::Found { id, translation: None });
        }
        if let Some(id) = opened.take() {
            gateway.handle(now, Input::Opened { id, result: Ok(()) });
        }
    }
}
