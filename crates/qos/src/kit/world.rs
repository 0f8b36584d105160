//! A node, a scripted GIST, and a kernel that answers.

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::kit::{interface, received};
use signalbox_core::node::{Interface, Route};
use signalbox_core::security::Identity;
use signalbox_core::service::{
    Indication, MessageHandle, MessageStatus, NetworkEvent, RecvMessage, Request, Security, SendError,
    SendMessage, SiiHandle, TransferAttributes,
};
use signalbox_core::{Direction, IfIndex, Mri, NslpId, Reservation, SessionId, Time};
use signalbox_resources::{ResourceOutput, Resources};

use super::{BEFORE, BEHIND, SESSION, addr, flow, octets, qspec, reserve};
use crate::engine::{Config, Input, Output, Qos, QosEvent};
use crate::wire::{Info, Message};

/// A message that the node sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// The message.
    pub octets: Vec<u8>,
    /// The number by which GIST reports about it.
    pub handle: Option<MessageHandle>,
    /// Its session.
    pub session: SessionId,
    /// Its flow and direction.
    pub mri: Mri,
    /// The only peer that may get it.
    pub sii: Option<SiiHandle>,
    /// It is sent reliably.
    pub reliable: bool,
    /// Its GIST hop count, if it is not a new one.
    pub hops: Option<u8>,
}

impl From<SendMessage<'_>> for Sent {
    fn from(message: SendMessage<'_>) -> Self {
        Self {
            octets: message.data.to_vec(),
            handle: message.handle,
            session: message.session,
            mri: message.mri,
            sii: message.sii,
            reliable: message.attributes.reliable,
            hops: message.hops,
        }
    }
}

impl Sent {
    /// The message, parsed.
    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.octets).expect("the node sends whole messages")
    }

    /// The result that it reports.
    pub fn info(&self) -> Info {
        self.message().info.expect("an INFO_SPEC").info
    }
}

/// A node with two interfaces, its admission control, the kernel, and a GIST that does what its user says.
pub struct World {
    /// The node.
    pub qos: Qos,
    /// Its admission control.
    pub resources: Resources,
    /// The present time.
    pub now: Time,
    /// Events for users.
    pub events: Vec<QosEvent>,
    /// The interfaces of the node.
    pub interfaces: Vec<Interface>,
    /// Flows end at the node.
    pub end: bool,
    /// GIST hop count of received messages, after GIST's own decrement.
    pub hops: u8,
    /// Routes are given later, by [`World::routed`].
    pub slow_routes: bool,
    /// Lookups of routes that wait.
    pub lookups: Vec<u64>,
    /// The incoming interfaces with which routes were asked for.
    pub incoming: Vec<Option<IfIndex>>,
    /// Messages come over a channel that proves who sends.
    pub authenticated: bool,
    /// The authenticated identity of the previous peer.
    pub peer: Option<Arc<Identity>>,
    /// Where the previous peer answered a handshake.
    pub peer_address: Option<IpAddr>,
    /// Directions of the flow that GIST was requested to check, since the last look.
    pub checked: Vec<Direction>,
    /// Those that it was requested to remove.
    pub released: Vec<Direction>,
    /// Those that it was requested to keep.
    pub kept: Vec<Direction>,
    /// The reservations requested of the kernel.
    pub installed: Vec<Reservation>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A node with the default configuration.
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    /// A node with this configuration.
    pub fn with(config: Config) -> Self {
        Self::with_rules(config, |_| {})
    }

    /// A node with changed resources; the default is one link of 1 Mbit/s.
    pub fn with_rules(config: Config, change: impl FnOnce(&mut signalbox_resources::Config)) -> Self {
        let interfaces = [interface(1, vec![addr("10.0.1.1")]), interface(2, vec![addr("10.0.2.1")])];
        let capacity = "1mbit".parse().expect("a rate");
        let mut rules = signalbox_resources::Config::of_link("eth2", capacity);
        change(&mut rules);
        let mut resources = Resources::new(rules, 0, [1; 32]).expect("links and policy");
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

    /// Gives the node an input, and takes all outputs. Returns the messages that the node sends.
    pub fn input(&mut self, input: Input<'_>) -> Vec<Sent> {
        self.qos.handle(self.now, input, &mut self.resources);
        let mut sent = Vec::new();
        loop {
            let mut lookups = Vec::new();
            while let Some(output) = self.qos.poll() {
                match output {
                    Output::Request(Request::SendMessage(message)) => sent.push(message.into()),
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

    /// The route of the flow.
    pub fn route(&self) -> Route {
        let (ifindex, local) = if self.end { (IfIndex(1), true) } else { (IfIndex(2), false) };
        Route { ifindex, src: addr("10.0.2.1"), gateway: None, mtu: 1500, local }
    }

    /// All routes that were asked for are known, that of the last lookup first.
    pub fn routed(&mut self) -> Vec<Sent> {
        self.slow_routes = false;
        let mut sent = Vec::new();
        while let Some(id) = self.lookups.pop() {
            sent.extend(self.routed_one(id));
        }
        sent
    }

    /// The route of one lookup is known.
    pub fn routed_one(&mut self, id: u64) -> Vec<Sent> {
        self.input(Input::Route { id, result: Ok(self.route()) })
    }

    /// Any octets from a peer.
    pub fn receive_octets(
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
            sii: Some(from),
            peer: self.peer.clone(),
            peer_address: self.peer_address,
            attributes: TransferAttributes { security, ..TransferAttributes::default() },
            hops: self.hops,
            at_flow_end: self.end,
            ..received(NslpId::QOS, session, mri, data)
        }))
    }

    /// Messages of the previous peer that arrive before the first route lookup is answered.
    pub fn receive_at_once(&mut self, messages: &[Message<'_>]) -> Vec<Sent> {
        for message in messages {
            let octets = octets(message);
            let input = self.indication(BEFORE, flow(), SESSION, &octets);
            self.qos.handle(self.now, input, &mut self.resources);
        }
        self.input(Input::Timer)
    }

    /// A message of the session from the previous peer, downstream.
    pub fn receive(&mut self, message: &Message<'_>) -> Vec<Sent> {
        self.receive_octets(BEFORE, flow(), SESSION, &octets(message))
    }

    /// A network notification of GIST for this direction.
    pub fn network(&mut self, mri: Mri, event: NetworkEvent) -> Vec<Sent> {
        let (nslp, session) = (NslpId::QOS, SESSION);
        self.input(Input::Indication(Indication::NetworkNotification { nslp, mri, session, event }))
    }

    /// A message from the next peer, upstream.
    pub fn back(&mut self, message: &Message<'_>) -> Vec<Sent> {
        self.receive_octets(BEHIND, flow().inverted(), SESSION, &octets(message))
    }

    /// GIST has sent a message.
    pub fn sent(&mut self, sent: &Sent) {
        let status = MessageStatus::Sent(TransferAttributes::default());
        self.status(sent, status);
    }

    /// GIST could not send a message.
    pub fn failed(&mut self, sent: &Sent, error: SendError) -> Vec<Sent> {
        self.status(sent, MessageStatus::Failed(error))
    }

    /// A report of GIST about a message.
    pub fn status(&mut self, sent: &Sent, status: MessageStatus) -> Vec<Sent> {
        let Some(handle) = sent.handle else { return Vec::new() };
        let (nslp, session) = (NslpId::QOS, sent.session);
        self.input(Input::Indication(Indication::MessageStatus { nslp, handle, session, status }))
    }

    /// Advances the time. Returns the messages that the node sends.
    pub fn until(&mut self, time: Time) -> Vec<(Time, Sent)> {
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

    /// Octets a second that are reserved.
    pub fn held(&self) -> u64 {
        self.resources.links().map(|link| link.reserved).sum()
    }

    /// The RESERVE that is forwarded after one with this RSN and an RII. GIST reports it as sent.
    pub fn reserved(&mut self, rsn: u32, rate: u16) -> Sent {
        let qspec = qspec(rate);
        let sent = self.receive(&Message { rii: Some(500 + rsn), ..reserve(rsn, &qspec) });
        let [onward] = <[Sent; 1]>::try_from(sent).expect("one message");
        self.sent(&onward);
        onward
    }
}
