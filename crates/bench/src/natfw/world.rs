//! A NAT between a firewall inside and a peer outside, whose messages are made here, before the clock starts.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signalbox_core::kit::{interface, received, route};
use signalbox_core::mri::PathCoupled;
use signalbox_core::service::{
    AddressValidation, Indication, MessageStatus, RecvMessage, Request, SiiHandle, StateHandle,
    TransferAttributes,
};
use signalbox_core::{IfIndex, Mri, NslpId, Time};
use signalbox_natfw::engine::{Config, Input, Middlebox, Natfw, Output};
use signalbox_natfw::kit::{create, octets, success};
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::{self as resources, Resources};

use super::super::machine::timed;
use super::super::runs::session;

/// The firewall that sends the requests on.
const INNER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const NAT_INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const NAT_OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const INSIDE: IfIndex = IfIndex(1);
const OUTSIDE: IfIndex = IfIndex(2);
/// First host inside, and number of hosts. Each has one port, so that all find an external one.
const FIRST_HOST: u32 = 0x0a01_0001;
const HOSTS: u32 = 16_384;
/// First destination. Each turn of the hosts has one of its own.
const FIRST_FAR: u32 = 0xcb00_7101;
const PORT: u16 = 5004;
const UDP: u8 = 17;
const LIFETIME: u32 = 1575;
/// Messages between two looks at the clock.
pub(super) const BATCH: u32 = 512;
/// Virtual time that a batch takes: ten million sessions are refreshed long before they would expire.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first CREATE of a session, and its RESPONSE.
    Create,
    Response,
    /// The next CREATE, and its RESPONSE.
    Refresh,
    RefreshResponse,
    Deletion,
}

impl Kind {
    const fn is_response(self) -> bool {
        matches!(self, Self::Response | Self::RefreshResponse)
    }

    /// Returns the name of such a message.
    const fn part(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Response => "RESPONSE",
            Self::Refresh => "CREATE, refresh",
            Self::RefreshResponse => "RESPONSE, refresh",
            Self::Deletion => "CREATE, deletion",
        }
    }

    /// Its octets.
    fn octets(self) -> Vec<u8> {
        let (msn, lifetime) = match self {
            Self::Create | Self::Response => (1, LIFETIME),
            Self::Refresh | Self::RefreshResponse => (2, LIFETIME),
            Self::Deletion => (3, 0),
        };
        octets(&if self.is_response() { success(msn, lifetime) } else { create(msn, lifetime) })
    }

    /// Whether a message is to leave towards the responder.
    const fn goes_on(self) -> bool {
        !self.is_response()
    }
}

/// The NAT.
pub(super) struct World {
    natfw: Natfw,
    resources: Resources,
    now: Time,
    /// MRI of the messages that left in the batch.
    sent: Vec<Mri>,
    /// MRI of each session beyond the NAT, from which the RESPONSEs of this batch are made.
    onward: Vec<Mri>,
}

fn flow(number: u32) -> Mri {
    let src = IpAddr::V4(Ipv4Addr::from_bits(FIRST_HOST + number % HOSTS));
    let dst = IpAddr::V4(Ipv4Addr::from_bits(FIRST_FAR + number / HOSTS));
    Mri::PathCoupled(PathCoupled {
        protocol: Some(UDP),
        src_port: Some(PORT),
        dst_port: Some(PORT),
        ..PathCoupled::between(src, dst)
    })
}

/// Returns a policy with one rule, which allows everything from the inside.
fn policy(sessions: u32) -> Result<Resources> {
    let rule = RuleConfig {
        opens: vec![Opening::Outward],
        from: vec!["10.0.0.0/8".parse()?],
        ..RuleConfig::new("hosts inside", Action::Allow)
    };
    // The last quarter of a table is for sources that hold little; all is of one source here.
    let max_pinholes = sessions.saturating_mul(2);
    let config = resources::Config { rules: vec![rule], max_pinholes, ..resources::Config::default() };
    Ok(Resources::new(config, 0, [1; 32])?)
}

impl World {
    pub(super) fn new(sessions: u32) -> Result<Self> {
        let interfaces = [interface(INSIDE.0, vec![NAT_INSIDE]), interface(OUTSIDE.0, vec![NAT_OUTSIDE])];
        let [inside, outside] = interfaces.each_ref().map(|one| vec![one.name.clone()]);
        let config = Config {
            middlebox: Middlebox::Nat,
            inside,
            outside,
            max_sessions: sessions.saturating_mul(2),
            ..Config::default()
        };
        let mut resources = policy(sessions)?;
        resources.interfaces(&interfaces);
        let mut natfw = Natfw::new(config, [9; 32]);
        natfw.handle(Time::ZERO, Input::Interfaces(&interfaces), &mut resources);
        Ok(Self { natfw, resources, now: Time::ZERO, sent: Vec::new(), onward: Vec::new() })
    }

    /// Sessions of the engine, and passages of the policy.
    pub(super) fn held(&self) -> (u32, u32) {
        (self.natfw.session_count(), self.resources.passage_count())
    }

    /// Gives the NAT one message for each session from `first` on; returns the processor time. The RESPONSEs of a batch
    /// follow its requests.
    pub(super) fn take(&mut self, kind: Kind, first: u32, count: u32) -> Result<Duration> {
        let octets = kind.octets();
        self.now = self.now + BATCH_TIME;
        if kind.is_response() {
            self.onward = std::mem::take(&mut self.sent);
        }
        self.sent.clear();
        let at_begin = *self.natfw.counters();
        let mut answered = 0;
        let meter = timed(kind.part(), || {
            for (at, number) in (first..first + count).enumerate() {
                let (mri, ifindex, peer) = if kind.is_response() {
                    let onward = self.onward.get(at).context("no request was sent on")?;
                    (onward.inverted(), OUTSIDE, OUTER)
                } else {
                    (flow(number), INSIDE, INNER)
                };
                let message = RecvMessage {
                    state: Some(StateHandle(number.into())),
                    sii: Some(SiiHandle(ifindex.0.into())),
                    peer_address: Some(peer),
                    attributes: TransferAttributes { reliable: true, ..TransferAttributes::default() },
                    validation: AddressValidation { return_routable: true, ..AddressValidation::default() },
                    ip_distance: 1,
                    hops: 9,
                    ifindex,
                    ..received(NslpId::NATFW, session(number), mri, &octets)
                };
                let input = Input::Indication(Indication::RecvMessage(message));
                self.natfw.handle(self.now, input, &mut self.resources);
                answered += self.drain();
            }
            Ok(count.into())
        })?;
        let refused = self.natfw.counters().refused - at_begin.refused;
        ensure!(refused == 0, "{refused} messages were refused");
        let on = if kind.goes_on() { self.sent.len() } else { usize::try_from(count)? };
        ensure!(on == usize::try_from(count)?, "{on} messages went on instead of {count}");
        let opened = if kind.is_response() { count } else { 0 };
        ensure!(answered == opened, "{answered} rules were made instead of {opened}");
        Ok(meter.time)
    }

    /// Acts as GIST that sends all, and as a kernel that routes and opens all. Returns the number of rules that were opened.
    fn drain(&mut self) -> u32 {
        let mut opened = 0;
        loop {
            let input = match self.natfw.poll() {
                Some(Output::Request(Request::SendMessage(message))) => {
                    if message.mri.direction() == signalbox_core::Direction::Downstream {
                        self.sent.push(message.mri);
                    }
                    let Some(handle) = message.handle else { continue };
                    let status = MessageStatus::Sent(message.attributes);
                    let session = message.session;
                    Input::Indication(Indication::MessageStatus {
                        nslp: NslpId::NATFW,
                        handle,
                        session,
                        status,
                    })
                }
                Some(Output::Open { id, .. }) => {
                    opened += 1;
                    Input::Opened { id, result: Ok(()) }
                }
                Some(Output::RouteLookup { id, query }) => {
                    let inside = matches!(query.dst, IpAddr::V4(dst) if dst.octets()[0] == 10);
                    let (ifindex, src) = if inside { (INSIDE, NAT_INSIDE) } else { (OUTSIDE, NAT_OUTSIDE) };
                    Input::Route { id, result: Ok(route(ifindex, src)) }
                }
                Some(_) => continue,
                None => return opened,
            };
            self.natfw.handle(self.now, input, &mut self.resources);
        }
    }
}
