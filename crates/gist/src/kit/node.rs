//! An engine with a clock and an outbox.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_core::service::{Indication, MessageHandle, MessageStatus, NetworkEvent, RecvMessageOf};
use signalbox_core::{Direction, Time};

use super::{ALERT, DEADLINES, NSLP, Over, Packet, Via};
use crate::engine::{
    ChannelId, Config, ConfigError, Gist, Input, Output, PeeringPolicy, Registration, Transport,
};

/// A message that was delivered to the application.
pub type Delivery = RecvMessageOf<Vec<u8>>;

/// An output of the engine.
#[derive(Debug, Clone)]
pub enum Out {
    /// A packet was sent.
    Sent(Packet),
    /// A message was delivered.
    Delivered(Delivery),
    /// The application was informed about a message that it sent.
    Status(MessageHandle, MessageStatus),
    /// The application was informed about one direction of a flow.
    Notified(Direction, NetworkEvent),
    /// The route of a packet is asked for.
    Lookup(u64, RouteQuery),
    /// A channel is opened: with this stack, from this address, to this peer.
    Opened(ChannelId, Transport, IpAddr, SocketAddr),
    /// A message was sent over a channel.
    Over(Over),
    /// A channel is read from now on, or is not.
    Read(ChannelId, bool),
    /// A channel is closed, or is aborted.
    Closed(ChannelId, bool),
}

/// An engine with one application, [`NSLP`].
pub struct Node {
    /// The engine.
    pub gist: Gist,
    /// The present time.
    pub now: Time,
    /// Outputs that were not taken yet, and their times.
    pub out: VecDeque<(Time, Out)>,
    /// The answer to all lookups of routes; `None`: they appear among the outputs.
    pub route: Option<Result<Route, NoRoute>>,
}

impl Node {
    /// An engine at the time 0, without interfaces.
    ///
    /// # Errors
    /// As [`Gist::new`].
    pub fn new(config: Config, policy: PeeringPolicy, seed: [u8; 32]) -> Result<Self, ConfigError> {
        let mut gist = Gist::new(config, seed)?;
        gist.register(NSLP, Registration { policy, router_alert: ALERT, router_alert_v6: None });
        Ok(Self { gist, now: Time::ZERO, out: VecDeque::new(), route: None })
    }

    /// Gives the engine an input, and takes all outputs.
    pub fn handle(&mut self, input: Input<'_>) {
        self.gist.handle(self.now, input);
        while let Some((id, result)) = self.drain() {
            self.gist.handle(self.now, Input::Route { id, result });
        }
    }

    /// Takes outputs up to a lookup that is answered at once.
    fn drain(&mut self) -> Option<(u64, Result<Route, NoRoute>)> {
        while let Some(output) = self.gist.poll() {
            let out = match output {
                Output::Transmit(packet) => Out::Sent(packet.into()),
                Output::RouteLookup { id, query } => match self.route {
                    Some(result) => return Some((id, result)),
                    None => Out::Lookup(id, query),
                },
                Output::Indication(Indication::RecvMessage(message)) => {
                    assert_eq!(message.nslp, NSLP, "the only application");
                    Out::Delivered(Delivery {
                        data: message.data.to_vec(),
                        nslp: message.nslp,
                        session: message.session,
                        mri: message.mri,
                        check: message.check,
                        state: message.state,
                        sii: message.sii,
                        peer: message.peer,
                        peer_address: message.peer_address,
                        attributes: message.attributes,
                        validation: message.validation,
                        ip_ttl: message.ip_ttl,
                        ip_distance: message.ip_distance,
                        hops: message.hops,
                        ifindex: message.ifindex,
                        at_flow_end: message.at_flow_end,
                    })
                }
                Output::Indication(Indication::MessageStatus { handle, status, .. }) => {
                    Out::Status(handle, status)
                }
                Output::Indication(Indication::NetworkNotification { mri, event, .. }) => {
                    Out::Notified(mri.direction(), event)
                }
                Output::ChannelOpen { channel, transport, local, peer } => {
                    Out::Opened(channel, transport, local, peer)
                }
                Output::ChannelSend { channel, stream, lifetime, octets } => {
                    Out::Over(Over { channel, stream, lifetime, octets: octets.to_vec() })
                }
                Output::ChannelRead { channel, on } => Out::Read(channel, on),
                Output::ChannelClose { channel, abort } => Out::Closed(channel, abort),
            };
            self.out.push_back((self.now, out));
        }
        None
    }

    /// Gives the engine a packet.
    pub fn packet(&mut self, via: &Via, payload: &[u8]) {
        self.handle(Input::Datagram(via.packet(payload)));
    }

    /// Lets time pass: timers fire at the times that the engine asks for.
    pub fn until(&mut self, end: Time) {
        for count in 0.. {
            assert!(count < DEADLINES, "timers come again and again");
            let Some(due) = self.gist.next_deadline().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.handle(Input::Timer);
        }
        self.now = end;
    }
}
