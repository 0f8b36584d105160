//! The outputs of the messaging layer and of the clients, each to who has to act on it.

use signalbox_casp::clients::natfw::NatfwOutput;
use signalbox_casp::clients::ping::PingOutput;
use signalbox_casp::clients::qos::QosOutput;
use signalbox_casp::engine::{Input, Output as Out};
use signalbox_casp::wire::ClientType;
use signalbox_core::Time;
use signalbox_core::node::RouteQuery;
use signalbox_resources::Resources;

use super::passages::Work;
use super::{Instance, LookupPurpose, channels};
use crate::protocol::Context;

impl Instance {
    /// Does what the engine asks of the streams next.
    pub(super) fn drive_stream(&mut self, now: Time) {
        match self.engine.poll() {
            Some(Out::Open { stream, transport, local, peer }) => {
                let transport = channels::below(transport);
                // SCTP of this process has no stream that could fail.
                if self.channels.runs_over_streams(transport) {
                    self.dialing.insert(stream, peer.ip());
                }
                match local {
                    Some(local) => self.open(now, stream, transport, local, peer),
                    None => {
                        self.opening.insert(stream, (transport, peer));
                        self.look_up(RouteQuery::to(peer.ip()), LookupPurpose::Connection(stream));
                    }
                }
            }
            Some(Out::Write { stream, octets }) => {
                let sent = self.channels.send(now, stream, (0, None), octets);
                self.channels.after_send(now, stream, sent, &mut self.engine);
            }
            Some(Out::Close { stream }) => {
                self.opening.remove(&stream);
                self.dialed(now, stream);
                self.channels.close(now, stream, false);
            }
            Some(Out::Send(_) | Out::RouteLookup { .. } | Out::Discover { .. } | Out::Indication { .. })
            | None => debug_assert!(false, "the engine gives another output than it announced"),
        }
    }

    /// Gives the next indication to its client.
    pub(super) fn drive_client(&mut self, cx: &mut Context<'_>) {
        let (now, Self { engine, ping, reservations, passages, external_clients, .. }) = (cx.now, self);
        match engine.poll() {
            Some(Out::Indication { client, indication }) => match (client, reservations, passages) {
                (ClientType::PING, ..) => ping.indication(now, &indication),
                (ClientType::QOS, Some(reservations), _) => {
                    reservations.client.indication(now, &indication, cx.resources);
                }
                (ClientType::NATFW, _, Some(passages)) => {
                    passages.client.indication(now, &indication, cx.resources);
                }
                // Another process may have a client that this node does not run itself.
                (client, ..) => external_clients.indication(client, &indication),
            },
            Some(
                Out::Send(_)
                | Out::RouteLookup { .. }
                | Out::Discover { .. }
                | Out::Open { .. }
                | Out::Write { .. }
                | Out::Close { .. },
            )
            | None => debug_assert!(false, "the engine gives another output than it announced"),
        }
    }

    /// Takes one output of the clients. False if there was none.
    pub(super) fn drive_requests(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now;
        match self.ping.poll() {
            Some(PingOutput::Request(request)) => {
                self.engine.handle(now, Input::Request { client: ClientType::PING, request });
            }
            Some(PingOutput::Event { id, event }) => self.pings.event(id, event),
            None => {
                return self.drive_reservations(now, cx.resources) || self.drive_passages(now, cx.resources);
            }
        }
        true
    }

    /// Takes one output of the QoS client. False if there was none.
    fn drive_reservations(&mut self, now: Time, resources: &mut Resources) -> bool {
        let Some(reservations) = &mut self.reservations else { return false };
        match reservations.client.poll() {
            Some(QosOutput::Request(request)) => {
                self.engine.handle(now, Input::Request { client: ClientType::QOS, request });
            }
            Some(QosOutput::RouteLookup { id, query }) => self.look_up(query, LookupPurpose::Egress(id)),
            Some(QosOutput::Event { id, event }) => reservations.event(now, id, event, resources),
            None => return false,
        }
        true
    }

    /// Takes one output of the client for firewalls. False if there was none.
    fn drive_passages(&mut self, now: Time, resources: &mut Resources) -> bool {
        let Some(passages) = &mut self.passages else { return false };
        match passages.client.poll() {
            Some(NatfwOutput::Request(request)) => {
                self.engine.handle(now, Input::Request { client: ClientType::NATFW, request });
            }
            Some(NatfwOutput::RouteLookup { id, query }) => self.look_up(query, LookupPurpose::Hop(id)),
            Some(NatfwOutput::Open { id, pinhole, lifetime }) => {
                passages.work(Work::Open(id, pinhole, lifetime));
            }
            Some(NatfwOutput::Close { id }) => passages.work(Work::Close(id)),
            Some(NatfwOutput::Event { id, event }) => passages.event(now, id, event, resources),
            None => return false,
        }
        true
    }
}
