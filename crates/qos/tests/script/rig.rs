//! A node between two peers, with a scripted GIST.

use std::net::IpAddr;
use std::sync::Arc;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{Interface, Route};
use signalbox_core::security::Identity;
use signalbox_core::service::{
    AddressValidation, Indication, MessageHandle, MessageStatus, NetworkEvent, RecvMessage, Request,
    Security, SendError, SiiHandle, StateHandle, TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, Reservation, SessionId, Time};
use signalbox_qos::engine::{Config, Input, Output, Qos, QosEvent};
use signalbox_qos::qspec::Wish;
use signalbox_qos::wire::qspec::{Flags, Procedure, Tmod, Value};
use signalbox_qos::wire::{Message, MessageFlags, MessageType, Rsn};
use signalbox_resources::{ResourceOutput, Resources};
use signalbox_wire::Writer;

pub(crate) const SESSION: SessionId = SessionId([7; 16]);
/// The previous peer, and another one.
pub(crate) const BEFORE: SiiHandle = SiiHandle(1);
pub(crate) const OTHER: SiiHandle = SiiHandle(2);
/// The next peer.
pub(crate) const BEHIND: SiiHandle = SiiHandle(3);
pub(crate) const EPOCH: u32 = 77;

/// A message that the node sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) octets: Vec<u8>,
    pub(crate) handle: Option<MessageHandle>,
    pub(crate) session: SessionId,
    pub(crate) mri: Mri,
    pub(crate) sii: Option<SiiHandle>,
    pub(crate) reliable: bool,
    /// Its GIST hop count, if it is not a new one.
    pub(crate) hops: Option<u8>,
}

impl Sent {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(&self.octets).unwrap()
    }

    pub(crate) fn info(&self) -> signalbox_qos::wire::Info {
        self.message().info.unwrap().info
    }
}

pub(crate) struct Rig {
    pub(crate) qos: Qos,
    pub(crate) resources: Resources,
    pub(crate) now: Time,
    pub(crate) events: Vec<QosEvent>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) end: bool,
    /// GIST hop count of received messages, after GIST's own decrement.
    pub(crate) hops: u8,
    /// Routes are given later, by [`Rig::routed`].
    pub(crate) slow_routes: bool,
    pub(crate) lookups: Vec<u64>,
    /// The incoming interfaces with which routes were asked for.
    pub(crate) incoming: Vec<Option<IfIndex>>,
    pub(crate) authenticated: bool,
    /// The authenticated identity of the previous peer.
    pub(crate) peer: Option<Arc<Identity>>,
    /// Where the previous peer answered a handshake.
    pub(crate) peer_address: Option<IpAddr>,
    /// Directions of the flow that GIST was requested to check, to remove, or to keep, since the last look.
    pub(crate) checked: Vec<Direction>,
    pub(crate) released: Vec<Direction>,
    pub(crate) kept: Vec<Direction>,
    /// The reservations requested of the kernel.
    pub(crate) installed: Vec<Reservation>,
}

pub(crate) fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn flow() -> Mri {
    Mri::PathCoupled(PathCoupled {
        protocol: Some(17),
        dst_port: Some(5004),
        ..PathCoupled::between(addr("192.0.2.1"), addr("203.0.113.9"))
    })
}

pub(crate) fn qspec(rate: u16) -> Vec<u8> {
    wish(Procedure::DESIRED, rate)
}

pub(crate) fn query_qspec(rate: u16) -> Vec<u8> {
    wish(Procedure::QUERY, rate)
}

/// That of a QUERY with RESERVE-INIT, and of the RESERVE that answers it.
pub(crate) fn init_qspec(rate: u16) -> Vec<u8> {
    wish(Procedure::RECEIVER_DESIRED, rate)
}

fn wish(procedure: Procedure, rate: u16) -> Vec<u8> {
    let tmod =
        Tmod { rate: rate.into(), bucket: 3000.0, peak: f32::INFINITY, min_policed: 64, max_packet: 1500 };
    let desired = [(Flags::MANDATORY, Value::Tmod1(tmod))];
    let mut octets = Vec::new();
    Wish::of(procedure, &desired).compose(&mut octets).unwrap();
    octets
}

/// A RESERVE with this RSN.
pub(crate) fn reserve(rsn: u32, qspec: &[u8]) -> Message<'_> {
    Message {
        flags: MessageFlags::REPLACE,
        rsn: Some(Rsn { number: rsn, epoch: EPOCH }),
        qspec: (!qspec.is_empty()).then_some(qspec),
        ..Message::new(MessageType::RESERVE)
    }
}

pub(crate) fn octets(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets)).unwrap();
    octets
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::with_rules(config, |_| {})
    }

    /// A node with changed resources; the default is one link of 1 Mbit/s.
    pub(crate) fn with_rules(config: Config, change: impl FnOnce(&mut signalbox_resources::Config)) -> Self {
        let interface = |n: u32, address: &str| Interface {
            ifindex: IfIndex(n),
            name: format!("eth{n}"),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: vec![addr(address)],
        };
        let interfaces = [interface(1, "10.0.1.1"), interface(2, "10.0.2.1")];
        let capacity = "1mbit".parse().unwrap();
        let mut rules = signalbox_resources::Config::of_link("eth2", capacity);
        change(&mut rules);
        let mut resources = Resources::new(rules, 0, [1; 32]).unwrap();
        resources.interfaces(&interfaces);
        let mut qos = Qos::new(config, [9; 32]);
        qos.handle(Time::ZERO, Input::Interfaces(&interfaces), &mut resources);
        let now = Time::from_secs(10);
        let interfaces = interfaces.to_vec();
        Self {
            qos,
            resources,
            now,
            events: Vec::new(),
            interfaces,
            end: false,
            hops: 60,
            slow_routes: false,
            lookups: Vec::new(),
            incoming: Vec::new(),
            authenticated: false,
            peer: None,
            peer_address: None,
            checked: Vec::new(),
            released: Vec::new(),
            kept: Vec::new(),
            installed: Vec::new(),
        }
    }

    pub(crate) fn input(&mut self, input: Input<'_>) -> Vec<Sent> {
        self.qos.handle(self.now, input, &mut self.resources);
        let mut sent = Vec::new();
        loop {
            let mut lookups = Vec::new();
            while let Some(output) = self.qos.poll() {
                match output {
                    Output::Request(Request::SendMessage(m)) => sent.push(Sent {
                        octets: m.data.to_vec(),
                        handle: m.handle,
                        session: m.session,
                        mri: m.mri,
                        sii: m.sii,
                        reliable: m.attributes.reliable,
                        hops: m.hops,
                    }),
                    Output::RouteLookup { id, query } => {
                        self.incoming.push(query.iif);
                        lookups.push(id);
                    }
                    Output::Event { event, .. } => self.events.push(event),
                    Output::Request(Request::InvalidateRoutingState { mri, .. }) => {
                        self.checked.push(mri.direction());
                    }
                    Output::Request(Request::SetStateLifetime { mri, lifetime, .. }) => {
                        let to = if lifetime.is_zero() { &mut self.released } else { &mut self.kept };
                        to.push(mri.direction());
                    }
                    Output::Request(Request::Peering { .. }) => {}
                }
            }
            if self.slow_routes {
                self.lookups.append(&mut lookups);
            }
            if lookups.is_empty() {
                break;
            }
            for id in lookups {
                let route = self.route();
                self.qos.handle(self.now, Input::Route { id, result: Ok(route) }, &mut self.resources);
            }
        }
        let mut lost = Vec::new();
        while let Some(output) = self.resources.poll() {
            match output {
                ResourceOutput::Install { id, reservation } => {
                    self.installed.push(reservation.clone());
                    self.resources.installed(id, Ok(()));
                }
                ResourceOutput::Lost { owner, grant, why } => lost.push((owner.key, grant, why)),
                ResourceOutput::Remove { .. } | ResourceOutput::Reduced { .. } => {}
            }
        }
        for (key, grant, why) in lost {
            sent.extend(self.input(Input::Lost { key, grant, why }));
        }
        sent
    }

    fn route(&self) -> Route {
        let (ifindex, local) = if self.end { (IfIndex(1), true) } else { (IfIndex(2), false) };
        Route { ifindex, src: addr("10.0.2.1"), gateway: None, mtu: 1500, local }
    }

    /// All routes that were asked for are known, that of the last lookup first.
    pub(crate) fn routed(&mut self) -> Vec<Sent> {
        self.slow_routes = false;
        let mut sent = Vec::new();
        while let Some(id) = self.lookups.pop() {
            sent.extend(self.routed_one(id));
        }
        sent
    }

    /// The route of one lookup is known.
    pub(crate) fn routed_one(&mut self, id: u64) -> Vec<Sent> {
        self.input(Input::Route { id, result: Ok(self.route()) })
    }

    pub(crate) fn receive_octets(
        &mut self,
        from: SiiHandle,
        mri: Mri,
        session: SessionId,
        data: &[u8],
    ) -> Vec<Sent> {
        self.input(self.indication(from, mri, session, data))
    }

    fn indication<'a>(&self, from: SiiHandle, mri: Mri, session: SessionId, data: &'a [u8]) -> Input<'a> {
        let security = if self.authenticated { Security::Channel } else { Security::None };
        Input::Indication(Indication::RecvMessage(RecvMessage {
            data,
            nslp: NslpId::QOS,
            session,
            mri,
            check: None,
            state: Some(StateHandle(1)),
            sii: Some(from),
            peer: self.peer.clone(),
            peer_address: self.peer_address,
            attributes: TransferAttributes { security, ..TransferAttributes::default() },
            validation: AddressValidation::default(),
            ip_ttl: 64,
            ip_distance: 0,
            hops: self.hops,
            ifindex: IfIndex(1),
            at_flow_end: self.end,
        }))
    }

    /// Messages of the previous peer that arrive before the first route lookup is answered.
    pub(crate) fn receive_at_once(&mut self, messages: &[Message<'_>]) -> Vec<Sent> {
        for message in messages {
            let octets = octets(message);
            let input = self.indication(BEFORE, flow(), SESSION, &octets);
            self.qos.handle(self.now, input, &mut self.resources);
        }
        self.input(Input::Timer)
    }

    /// A message of the session from the previous peer, downstream.
    pub(crate) fn receive(&mut self, message: &Message<'_>) -> Vec<Sent> {
        self.receive_octets(BEFORE, flow(), SESSION, &octets(message))
    }

    /// A network notification of GIST for this direction.
    pub(crate) fn network(&mut self, mri: Mri, event: NetworkEvent) -> Vec<Sent> {
        let (nslp, session) = (NslpId::QOS, SESSION);
        self.input(Input::Indication(Indication::NetworkNotification { nslp, mri, session, event }))
    }

    /// A message from the next peer, upstream.
    pub(crate) fn back(&mut self, message: &Message<'_>) -> Vec<Sent> {
        self.receive_octets(BEHIND, flow().inverted(), SESSION, &octets(message))
    }

    pub(crate) fn sent(&mut self, sent: &Sent) {
        let status = MessageStatus::Sent(TransferAttributes::default());
        self.status(sent, status);
    }

    pub(crate) fn failed(&mut self, sent: &Sent, error: SendError) -> Vec<Sent> {
        self.status(sent, MessageStatus::Failed(error))
    }

    fn status(&mut self, sent: &Sent, status: MessageStatus) -> Vec<Sent> {
        let Some(handle) = sent.handle else { return Vec::new() };
        let (nslp, session) = (NslpId::QOS, sent.session);
        self.input(Input::Indication(Indication::MessageStatus { nslp, handle, session, status }))
    }

    /// Advances the time. Returns the messages that the node sends.
    pub(crate) fn until(&mut self, time: Time) -> Vec<(Time, Sent)> {
        let mut all = Vec::new();
        while let Some(next) = self.qos.next_deadline().filter(|next| *next <= time) {
            self.now = self.now.max(next);
            let sent = self.input(Input::Timer);
            for one in &sent {
                self.sent(one);
            }
            all.extend(sent.into_iter().map(|sent| (self.now, sent)));
        }
        self.now = time;
        all
    }

    pub(crate) fn held(&self) -> u64 {
        self.resources.links().map(|link| link.reserved).sum()
    }

    /// The RESERVE that is forwarded after one with this RSN and an RII. GIST reports it as sent.
    pub(crate) fn reserved(&mut self, rsn: u32, rate: u16) -> Sent {
        let qspec = qspec(rate);
        let sent = self.receive(&Message { rii: Some(500 + rsn), ..reserve(rsn, &qspec) });
        let [onward] = <[Sent; 1]>::try_from(sent).unwrap();
        self.sent(&onward);
        onward
    }
}
