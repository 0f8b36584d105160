//! A node that peers, GIST and users drive in any order.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::kit::{received, route};
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::{
    Indication, MessageStatus, NetworkEvent, RecvMessage, SendError, SiiHandle, StateHandle,
    TransferAttributes,
};
use signalbox_core::{IfIndex, Mri, NslpId, SessionId};
use signalbox_resources::units::Rate;
use signalbox_wire::Writer;

use crate::engine::{Command, Config, Flow, Input, QosRequest, ReserveRequest};
use crate::kit::{Sent, World, flow_to, wish};
use crate::wire::qspec::Procedure;
use crate::wire::{
    BindingCode, BoundSession, Carried, GenericFlags, Info, Message, MessageFlags, MessageType, Rsn, RsnList,
    SessionIds,
};

/// Capacity of the outgoing link, octets a second, and the part of it that reservations may have by default.
const CAPACITY: u64 = 125_000;
const SHARE: u64 = CAPACITY * 3 / 4;
/// Operations of one run.
const OPERATIONS: usize = 256;
/// Deadlines in one pause; more are an endless loop.
const DEADLINES: u32 = 50_000;
/// Limits on reserving sessions and on those of QUERYs.
const SESSIONS: u32 = 6;
const QUERIES: u32 = 3;
/// The route of all flows.
const ROUTE: Route = route(IfIndex(2), IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)));

fn session(number: u8) -> SessionId {
    SessionId([number & 7; 16])
}

/// The flow of a session: each has its own, so that sessions do not share.
fn flow(number: u8) -> Mri {
    flow_to(5000 + u16::from(number & 7))
}

struct Node {
    world: World,
    /// Messages that GIST was requested to send, and has not reported.
    unreported: Vec<Sent>,
}

impl Node {
    fn new(settings: u8) -> Self {
        let config = Config {
            max_sessions: SESSIONS,
            max_queries: QUERIES,
            accept_stateless: settings & 1 != 0,
            proxy: settings & 2 != 0,
            reduced_refresh: settings & 4 != 0,
            acknowledged_refresh: settings & 8 != 0,
            answer_faults: settings & 16 != 0,
            notify_bound: settings & 32 != 0,
            summary: u16::from(settings >> 4 & 4),
            ..Config::default()
        };
        let links = signalbox_resources::Config::of_link("*", Rate(CAPACITY));
        let mut world = World::with_rules(config, |rules| *rules = links);
        world.slow_routes = true;
        world.end = settings & 128 != 0;
        Self { world, unreported: Vec::new() }
    }

    fn input(&mut self, input: Input<'_>) {
        for sent in self.world.input(input) {
            assert!(Message::parse(&sent.octets).is_ok(), "a whole message");
            if sent.handle.is_some() && self.unreported.len() < 64 {
                self.unreported.push(sent);
            }
        }
    }

    fn routes(&mut self, fail: bool) {
        for id in core::mem::take(&mut self.world.lookups) {
            let route = Route { local: self.world.end, ..ROUTE };
            let result = if fail { Err(NoRoute::Unreachable) } else { Ok(route) };
            self.input(Input::Route { id, result });
        }
    }

    /// A message of a peer: the previous one (0), another one (1), the next one (2), or a stranger.
    fn receive(&mut self, from: u8, number: u8, data: &[u8]) {
        let mri = if from == 2 { flow(number).inverted() } else { flow(number) };
        self.input(Input::Indication(Indication::RecvMessage(RecvMessage {
            state: (from < 3).then_some(StateHandle(1)),
            sii: (from < 3).then_some(SiiHandle(1 + u64::from(from))),
            attributes: TransferAttributes { stateless: from == 3, ..TransferAttributes::default() },
            ifindex: IfIndex(if from == 2 { 2 } else { 1 }),
            at_flow_end: self.world.end,
            ..received(NslpId::QOS, session(number), mri, data)
        })));
    }

    fn message(&mut self, control: u8, source: &mut impl Iterator<Item = u8>) {
        let (Some(kind), Some(number), Some(rate)) = (source.next(), source.next(), source.next()) else {
            return;
        };
        let rsn = Rsn { number: (number >> 3 & 7).into(), epoch: 1 + u32::from(kind >> 7) };
        let procedure = if kind & 7 == 5 { Procedure::QUERY } else { Procedure::DESIRED };
        let wanted = wish(procedure, f32::from(rate) * 500.0 + 1.0);
        let info = Info::CATALOGUE.get(usize::from(rate) % Info::CATALOGUE.len()).copied();
        let rii = (kind & 8 != 0).then_some(u32::from(number >> 6));
        let mut bound = Vec::new();
        let binding = BoundSession { code: BindingCode::DEPENDENT, session: session(rate) };
        if binding.write(&mut Writer::new(&mut bound)).is_err() {
            return;
        }
        let mut message = match kind & 7 {
            0..3 => Message {
                flags: MessageFlags::REPLACE,
                rsn: Some(rsn),
                qspec: (kind & 16 == 0).then_some(&wanted),
                refresh_period: (kind & 32 != 0).then_some(1000 * u32::from(rate)),
                rii,
                ..Message::new(MessageType::RESERVE)
            },
            3 => Message { rsn: Some(rsn), rii, ..Message::new(MessageType::RESERVE) },
            4 => Message {
                flags: MessageFlags::TEAR,
                rsn: Some(rsn),
                rii,
                ..Message::new(MessageType::RESERVE)
            },
            5 => Message { rii: Some(3), qspec: Some(&wanted), ..Message::new(MessageType::QUERY) },
            6 => Message {
                rii,
                rsn: Some(rsn),
                info: info.map(Into::into),
                ..Message::new(MessageType::RESPONSE)
            },
            _ => Message {
                generic: GenericFlags::BREAK,
                info: info.map(Into::into),
                ..Message::new(MessageType::NOTIFY)
            },
        };
        if kind & 64 != 0 {
            message.bound_sessions = Carried::bound_sessions(&bound);
        }
        // A list may name a session twice.
        let listed = [rate, rate >> 2, rate >> 4, rate].map(session);
        let (ids, numbers) = (listed.map(|session| session.0), [rsn.number.to_be_bytes(); 4]);
        if kind & 32 != 0 && matches!(kind & 7, 3 | 4) {
            message.session_ids = SessionIds::from_octets(ids.as_flattened());
            message.rsns = RsnList::from_octets(rsn.epoch, numbers.as_flattened());
        }
        let mut octets = Vec::new();
        if message.encode(&mut Writer::new(&mut octets)).is_err() {
            return;
        }
        for _ in 0..control >> 5 & 3 {
            let (Some(at), Some(value)) = (source.next(), source.next()) else { break };
            if let Some(octet) = octets.get_mut(usize::from(at)) {
                *octet = value;
            }
        }
        self.receive(control >> 3 & 3, number, &octets);
    }

    fn command(&mut self, number: u8, rate: u8) {
        let command = match number >> 6 {
            0 => Command::Release,
            1 => Command::ReleaseMany(
                [number, rate, rate >> 2, rate >> 4].map(|id| u64::from(id & 3)).to_vec(),
            ),
            _ => {
                let dst = [203, 0, 113, 10 + (number & 3)].into();
                let mut request =
                    ReserveRequest::new(Flow::to(dst), QosRequest::rate(u64::from(rate) * 500 + 1));
                request.receiver_initiated = number & 16 != 0;
                request.bidirectional = number & 32 != 0;
                Command::Reserve(Box::new(request))
            }
        };
        self.input(Input::Command { id: u64::from(number & 3), command });
    }

    /// GIST's report about a message, or an event of the path.
    fn report(&mut self, number: u8) {
        let nslp = NslpId::QOS;
        if number & 1 == 0 && !self.unreported.is_empty() {
            let sent = self.unreported.remove(usize::from(number >> 3) % self.unreported.len());
            let status = match number >> 1 & 3 {
                0 | 1 => MessageStatus::Sent(TransferAttributes::default()),
                2 => MessageStatus::Failed(SendError::NoNextNode),
                _ => MessageStatus::Failed(SendError::NoStateUpstream),
            };
            let Some(handle) = sent.handle else { return };
            let status = Indication::MessageStatus { nslp, handle, session: sent.session, status };
            return self.input(Input::Indication(status));
        }
        let (mri, session) = (flow(number >> 1), session(number >> 1));
        let mri = if number & 16 == 0 { mri } else { mri.inverted() };
        let event = match number >> 5 {
            0 => NetworkEvent::LastNode,
            1 => NetworkEvent::Good(SiiHandle(3)),
            2 => NetworkEvent::Good(SiiHandle(4)),
            3 => NetworkEvent::Tentative,
            4 => NetworkEvent::Bad,
            5 => NetworkEvent::RouteDeleted(SiiHandle(3)),
            6 => NetworkEvent::AuthorisationChanged,
            _ => NetworkEvent::CommunicationFailure,
        };
        self.input(Input::Indication(Indication::NetworkNotification { nslp, mri, session, event }));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.world.now + time;
        for _ in 0..DEADLINES {
            let Some(next) = self.world.qos.next_deadline().filter(|next| *next <= end) else {
                self.world.now = end;
                return self.input(Input::Timer);
            };
            self.world.now = self.world.now.max(next);
            self.input(Input::Timer);
        }
        panic!("timers come again and again");
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        assert!(self.world.qos.sessions() <= SESSIONS + QUERIES);
        for link in self.world.resources.links() {
            assert!(link.reserved <= SHARE, "more than the share of a link");
        }
    }
}

/// A node handles all messages of its peers and of strangers, all reports of GIST and all commands; it stays within its
/// limits and never grants more than a link has. When its users have released everything, nothing is left after the
/// lifetimes. Input: the first octet selects the settings. Then operations follow: an octet with the operation (low three
/// bits), the peer (next two) and the number of changed octets (next two), and what the operation needs.
pub fn qos_engine(octets: &[u8]) {
    let mut source = octets.iter().copied();
    let Some(mut node) = source.next().map(Node::new) else { return };
    for _ in 0..OPERATIONS {
        let Some(control) = source.next() else { break };
        match control & 7 {
            0..4 => node.message(control, &mut source),
            4 => node.command(source.next().unwrap_or(0), source.next().unwrap_or(1)),
            5 => node.report(source.next().unwrap_or(0)),
            6 => {
                let data: Vec<u8> = source.by_ref().take(usize::from(control >> 5) * 4).collect();
                node.receive(control >> 3 & 3, control, &data);
            }
            _ => node.wait(Duration::from_millis(u64::from(source.next().unwrap_or(0)) * 500)),
        }
        if control & 0x80 == 0 {
            node.routes(control & 0x78 == 0x78);
        }
        node.check();
    }
    for id in 0..4 {
        node.input(Input::Command { id, command: Command::Release });
    }
    for _ in 0..20 {
        node.routes(false);
        node.wait(Duration::from_secs(60));
    }
    node.check();
    assert_eq!(node.world.qos.sessions(), 0, "soft state ends");
    assert_eq!(node.world.resources.reservations().count(), 0, "what was granted is released");
}
