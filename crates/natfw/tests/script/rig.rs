//! A node between two peers, with a scripted GIST and a scripted kernel.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::kit;
use signalbox_core::mri::{LooseEnd, PathCoupled};
use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::pinhole::{Pinhole, PinholeError, PinholeId};
use signalbox_core::service::{
    AddressValidation, Indication, MessageHandle, MessageStatus, NetworkEvent, RecvMessage, Request,
    Security, SendError, SiiHandle, StateHandle, TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_natfw::engine::{Command, Config, HostEvent, Input, Middlebox, Natfw, NatfwEvent, Output};
pub(crate) use signalbox_natfw::kit::{create, error, external, notify, octets, success};
use signalbox_natfw::wire::{Forwarded, Info, Message, MessageType};
use signalbox_resources::Resources;

pub(crate) const SESSION: SessionId = SessionId([7; 16]);
/// The previous peer, another one, and the next peer.
pub(crate) const BEFORE: SiiHandle = SiiHandle(1);
pub(crate) const OTHER: SiiHandle = SiiHandle(2);
pub(crate) const BEHIND: SiiHandle = SiiHandle(3);
/// Interfaces of the node.
pub(crate) const INSIDE: IfIndex = IfIndex(1);
pub(crate) const OUTSIDE: IfIndex = IfIndex(2);
pub(crate) const GUEST: IfIndex = IfIndex(3);

/// A host inside, and one outside.
pub(crate) const HOST: &str = "10.0.1.2";
pub(crate) const FAR: &str = "203.0.113.9";
/// The address of the node on its outside.
pub(crate) const EDGE: &str = "192.0.2.79";

/// A message that the node sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) octets: Vec<u8>,
    pub(crate) handle: Option<MessageHandle>,
    pub(crate) session: SessionId,
    pub(crate) mri: Mri,
    pub(crate) sii: Option<SiiHandle>,
    pub(crate) attributes: TransferAttributes,
    pub(crate) hops: Option<u8>,
}

impl Sent {
    /// The message with the list of the nodes that granted it.
    pub(crate) fn whole(&self) -> Message<'_> {
        Message::parse(&self.octets).unwrap()
    }

    /// The message without this list, and without what a node adds to its refusal: see [`Sent::refused_by`].
    pub(crate) fn message(&self) -> Message<'_> {
        let message = Message { hops: None, neighbor: false, ..self.whole() };
        match message.kind {
            MessageType::RESPONSE => Message { forwarded: Forwarded::NONE, ..message },
            _ => message,
        }
    }

    /// The node that refused, and the text that it gives.
    pub(crate) fn refused_by(&self) -> (Option<IpAddr>, Option<String>) {
        let forwarded = self.whole().forwarded;
        (forwarded.node(), forwarded.note())
    }

    /// The result that it reports, if it reports one.
    pub(crate) fn info_of(&self) -> Option<Info> {
        self.message().info.map(|info| info.info)
    }

    pub(crate) fn info(&self) -> Info {
        self.message().info.unwrap().info
    }
}

/// Something that the kernel was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kernel {
    Open(String, u64),
    Close,
}

pub(crate) struct Rig {
    pub(crate) natfw: Natfw,
    pub(crate) resources: Resources,
    pub(crate) now: Time,
    pub(crate) events: Vec<NatfwEvent>,
    /// What front ends were told.
    pub(crate) hosts: Vec<(u64, HostEvent)>,
    /// What the kernel was asked for since the last look.
    pub(crate) kernel: Vec<Kernel>,
    /// Pinholes in the kernel.
    pub(crate) holes: Vec<(PinholeId, Pinhole)>,
    /// The kernel's answer to the next pinholes.
    pub(crate) answer: Result<(), PinholeError>,
    /// Answers are given later, by [`Rig::opened`].
    pub(crate) slow: bool,
    pub(crate) unanswered: Vec<PinholeId>,
    /// The flow of the next messages ends here.
    pub(crate) end: bool,
    /// There are routes.
    pub(crate) routes: bool,
    /// Routes are given later, by [`Rig::routed`].
    pub(crate) slow_routes: bool,
    pub(crate) lookups: Vec<(u64, IpAddr)>,
    pub(crate) reliable: bool,
    pub(crate) secure: bool,
}

pub(crate) fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// UDP from a host to another.
pub(crate) fn udp(src: &str, src_port: u16, dst: &str, dst_port: u16) -> PathCoupled {
    PathCoupled {
        protocol: Some(17),
        src_port: Some(src_port),
        dst_port: Some(dst_port),
        ..PathCoupled::between(addr(src), addr(dst))
    }
}

/// The interfaces of the node, with this address outside.
fn interfaces(outside: &str) -> [Interface; 3] {
    let interface = |ifindex: IfIndex, name: &str, address: &str| Interface {
        name: name.to_owned(),
        ..kit::interface(ifindex.0, vec![addr(address)])
    };
    [
        interface(INSIDE, "lan", "10.0.1.1"),
        interface(OUTSIDE, "wan", outside),
        interface(GUEST, "guest", "10.0.9.1"),
    ]
}

/// The flow of most tests, from the inside to the outside.
pub(crate) fn flow() -> Mri {
    Mri::PathCoupled(udp(HOST, 5000, FAR, 6000))
}

/// The opposite flow.
pub(crate) fn inward() -> Mri {
    Mri::PathCoupled(udp(FAR, 6000, HOST, 5000))
}

pub(crate) fn loose(src: &str, dst: &str) -> Mri {
    Mri::LooseEnd(LooseEnd { src: addr(src), dst: addr(dst), direction: Direction::Downstream })
}

pub(crate) fn boxed(middlebox: Middlebox) -> Config {
    let inside = ["lan", "guest"].map(str::to_owned).to_vec();
    Config { middlebox, inside, outside: vec!["wan".to_owned()], ..Config::default() }
}

impl Rig {
    /// A node that may open everything that its peers ask for.
    pub(crate) fn with(config: Config) -> Self {
        Self::with_rules(config, |rules| {
            rules.trusted = vec!["10.0.0.0/8".parse().unwrap(), "203.0.113.0/24".parse().unwrap()];
        })
    }

    pub(crate) fn firewall() -> Self {
        Self::with(boxed(Middlebox::Firewall))
    }

    pub(crate) fn edge_firewall() -> Self {
        Self::with(Config { edge: true, ..boxed(Middlebox::Firewall) })
    }

    pub(crate) fn nat() -> Self {
        Self::with(boxed(Middlebox::Nat))
    }

    pub(crate) fn edge_nat() -> Self {
        Self::with(Config { edge: true, ..boxed(Middlebox::Nat) })
    }

    pub(crate) fn host() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with_rules(config: Config, change: impl FnOnce(&mut signalbox_resources::Config)) -> Self {
        let interfaces = interfaces(EDGE);
        let mut rules = signalbox_resources::Config::default();
        change(&mut rules);
        let mut resources = Resources::new(rules, 0, [1; 32]).unwrap();
        resources.interfaces(&interfaces);
        let mut natfw = Natfw::new(config, [9; 32]);
        natfw.handle(Time::ZERO, Input::Interfaces(&interfaces), &mut resources);
        Self {
            natfw,
            resources,
            now: Time::from_secs(10),
            events: Vec::new(),
            hosts: Vec::new(),
            kernel: Vec::new(),
            holes: Vec::new(),
            answer: Ok(()),
            slow: false,
            unanswered: Vec::new(),
            end: false,
            routes: true,
            slow_routes: false,
            lookups: Vec::new(),
            reliable: true,
            secure: false,
        }
    }

    pub(crate) fn input(&mut self, input: Input<'_>) -> Vec<Sent> {
        self.natfw.handle(self.now, input, &mut self.resources);
        let mut sent = Vec::new();
        self.drain(&mut sent);
        sent
    }

    fn drain(&mut self, sent: &mut Vec<Sent>) {
        let (mut lookups, mut opened) = (Vec::new(), Vec::new());
        while let Some(output) = self.natfw.poll() {
            match output {
                Output::Request(Request::SendMessage(m)) => {
                    assert_eq!((m.nslp, m.data.len() % 4), (NslpId::NATFW, 0));
                    sent.push(Sent {
                        octets: m.data.to_vec(),
                        handle: m.handle,
                        session: m.session,
                        mri: m.mri,
                        sii: m.sii,
                        attributes: m.attributes,
                        hops: m.hops,
                    });
                }
                Output::Request(
                    Request::Peering { .. }
                    | Request::SetStateLifetime { .. }
                    | Request::InvalidateRoutingState { .. },
                ) => {}
                Output::RouteLookup { id, query } => lookups.push((id, query.dst)),
                Output::Event { event, .. } => self.events.push(event),
                Output::Host { id, event } => self.hosts.push((id, event)),
                Output::Open { id, pinhole, lifetime } => {
                    self.kernel.push(Kernel::Open(pinhole.to_string(), lifetime.as_secs()));
                    if self.answer.is_ok() {
                        self.holes.retain(|(known, _)| *known != id);
                        self.holes.push((id, pinhole));
                    }
                    opened.push(id);
                }
                Output::Close { id } => {
                    self.kernel.push(Kernel::Close);
                    self.holes.retain(|(known, _)| *known != id);
                }
            }
        }
        if self.slow {
            self.unanswered.append(&mut opened);
        }
        if self.slow_routes {
            self.lookups.append(&mut lookups);
        }
        let more = !lookups.is_empty() || !opened.is_empty();
        for (id, dst) in lookups {
            let result = self.route(dst);
            self.natfw.handle(self.now, Input::Route { id, result }, &mut self.resources);
        }
        for id in opened {
            let result = self.answer;
            self.natfw.handle(self.now, Input::Opened { id, result }, &mut self.resources);
        }
        if more {
            self.drain(sent);
        }
    }

    fn route(&self, dst: IpAddr) -> Result<Route, NoRoute> {
        let ifindex = match dst.to_string() {
            guest if guest.starts_with("10.0.9.") => GUEST,
            inside if inside.starts_with("10.") => INSIDE,
            _ => OUTSIDE,
        };
        let route = kit::route(ifindex, addr("10.0.1.1"));
        if self.routes { Ok(route) } else { Err(NoRoute::Unreachable) }
    }

    /// All routes that were asked for are known.
    pub(crate) fn routed(&mut self) -> Vec<Sent> {
        self.slow_routes = false;
        let lookups = core::mem::take(&mut self.lookups);
        let answer = |(id, dst)| {
            let result = self.route(dst);
            self.input(Input::Route { id, result })
        };
        lookups.into_iter().flat_map(answer).collect()
    }

    /// The kernel gives an answer that it owes.
    pub(crate) fn opened(&mut self) -> Vec<Sent> {
        let id = self.unanswered.remove(0);
        let result = self.answer;
        self.input(Input::Opened { id, result })
    }

    /// A message from a peer, by an interface.
    pub(crate) fn receive(
        &mut self,
        from: SiiHandle,
        ifindex: IfIndex,
        mri: Mri,
        message: &Message<'_>,
    ) -> Vec<Sent> {
        self.receive_octets(from, ifindex, mri, &octets(message))
    }

    pub(crate) fn receive_octets(
        &mut self,
        from: SiiHandle,
        ifindex: IfIndex,
        mri: Mri,
        octets: &[u8],
    ) -> Vec<Sent> {
        self.indicate(self.received(from, ifindex, mri, octets))
    }

    /// A message as GIST gives it.
    pub(crate) fn received<'a>(
        &self,
        from: SiiHandle,
        ifindex: IfIndex,
        mri: Mri,
        data: &'a [u8],
    ) -> RecvMessage<'a> {
        let peer = if ifindex == INSIDE { HOST } else { FAR };
        RecvMessage {
            state: Some(StateHandle(from.0)),
            sii: Some(from),
            peer_address: Some(addr(peer)),
            attributes: TransferAttributes {
                reliable: self.reliable,
                stateless: false,
                security: if self.secure { Security::Channel } else { Security::None },
            },
            validation: AddressValidation { return_routable: true, ..AddressValidation::default() },
            ip_distance: 1,
            hops: 9,
            ifindex,
            at_flow_end: self.end,
            ..kit::received(NslpId::NATFW, SESSION, mri, data)
        }
    }

    pub(crate) fn indicate(&mut self, message: RecvMessage<'_>) -> Vec<Sent> {
        self.input(Input::Indication(Indication::RecvMessage(message)))
    }

    /// A message of another session.
    pub(crate) fn in_session(
        &mut self,
        session: SessionId,
        from: SiiHandle,
        ifindex: IfIndex,
        mri: Mri,
        message: &Message<'_>,
    ) -> Vec<Sent> {
        let octets = octets(message);
        let received = self.received(from, ifindex, mri, &octets);
        self.indicate(RecvMessage { session, ..received })
    }

    /// A request from the inside, downstream.
    pub(crate) fn by_inside(&mut self, mri: Mri, message: &Message<'_>) -> Vec<Sent> {
        self.receive(BEFORE, INSIDE, mri, message)
    }

    /// A request from the outside.
    pub(crate) fn by_outside(&mut self, mri: Mri, message: &Message<'_>) -> Vec<Sent> {
        self.receive(BEFORE, OUTSIDE, mri, message)
    }

    /// The answer of the next node to a message that was sent on.
    pub(crate) fn answer(&mut self, sent: &Sent, message: &Message<'_>) -> Vec<Sent> {
        let octets = octets(message);
        let received = self.received(BEHIND, OUTSIDE, sent.mri.inverted(), &octets);
        self.indicate(RecvMessage { session: sent.session, ..received })
    }

    pub(crate) fn failed(&mut self, sent: &Sent, error: SendError) -> Vec<Sent> {
        self.input(Input::Indication(Indication::MessageStatus {
            nslp: NslpId::NATFW,
            handle: sent.handle.unwrap(),
            session: sent.session,
            status: MessageStatus::Failed(error),
        }))
    }

    pub(crate) fn network(&mut self, mri: Mri, event: NetworkEvent) -> Vec<Sent> {
        self.input(Input::Indication(Indication::NetworkNotification {
            nslp: NslpId::NATFW,
            mri,
            session: SESSION,
            event,
        }))
    }

    /// The node has another address outside.
    pub(crate) fn moved(&mut self, outside: &str) -> Vec<Sent> {
        let sent = self.input(Input::Interfaces(&interfaces(outside)));
        sent.into_iter().chain(self.pass(Duration::ZERO)).collect()
    }

    /// The rules changed, and all passages are judged.
    pub(crate) fn judge(&mut self) -> Vec<Sent> {
        let sent = self.judge_one_part();
        sent.into_iter().chain(self.pass(Duration::ZERO)).collect()
    }

    /// The rules changed, and the first part of the passages is judged.
    pub(crate) fn judge_one_part(&mut self) -> Vec<Sent> {
        self.input(Input::Rules)
    }

    /// Lets time pass, with all timers on the way.
    pub(crate) fn pass(&mut self, time: Duration) -> Vec<Sent> {
        let end = self.now + time;
        let mut sent = Vec::new();
        while let Some(next) = self.natfw.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            sent.extend(self.input(Input::Timer));
        }
        self.now = end;
        sent
    }

    pub(crate) fn pass_secs(&mut self, seconds: u64) -> Vec<Sent> {
        self.pass(Duration::from_secs(seconds))
    }

    pub(crate) fn command(&mut self, command: Command) -> Vec<Sent> {
        self.input(Input::Command { id: 5, command })
    }

    /// A CREATE through the node and its RESPONSE: the rule is active.
    pub(crate) fn established(&mut self, lifetime: u32) {
        let sent = only(self.by_inside(flow(), &create(1, lifetime)));
        assert_eq!(only(self.answer(&sent, &success(1, lifetime))).info(), Info::PROCESSED);
        assert_eq!(self.holes.len(), 1);
        self.kernel.clear();
    }
}

/// The only message.
pub(crate) fn only(sent: Vec<Sent>) -> Sent {
    match <[Sent; 1]>::try_from(sent) {
        Ok([sent]) => sent,
        Err(sent) => panic!("expected one message: {:?}", sent.iter().map(Sent::message).collect::<Vec<_>>()),
    }
}
