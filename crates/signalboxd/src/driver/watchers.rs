//! Clients that watch what changes. The event loop never waits for one: a client that does not read loses events, and
//! learns how many.

use signalbox_api::v1;
use signalbox_api::v1::watch_events_response::Event;
use signalbox_attached::Attached;
use signalbox_core::node::Interface;
use signalbox_core::{SessionChange, SessionEvent};
use signalbox_node::resources::decision::Decision;
use signalbox_node::{Change, Node};
use signalbox_show::gist;
use tokio::sync::mpsc;

use super::Driver;
use super::turn::Part;
use crate::api::{held, node, types};
use crate::clients::RequestId;

/// Changes given to watchers in one turn of the event loop.
const CHANGES: usize = 256;
/// Events given to all watchers together in one turn: each gets a copy.
const EVENTS: usize = 1024;
/// Events that wait for a watcher before events are lost.
pub(crate) const QUEUE: usize = 1024;

/// An event on its way to a watcher.
pub(crate) type Watched = v1::WatchEventsResponse;

#[derive(Debug)]
struct Watcher {
    out: mpsc::Sender<Watched>,
    lost: u64,
}

/// All watchers.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    list: Vec<Watcher>,
    /// The interfaces as the watchers know them.
    interfaces: Vec<v1::Interface>,
}

impl Watchers {
    /// Adds a watcher of `node`.
    pub(super) fn add(&mut self, node: &mut Node, out: mpsc::Sender<Watched>) {
        if self.list.is_empty() {
            node.watch(true);
            self.interfaces = rows(node);
        }
        self.list.push(Watcher { out, lost: 0 });
    }

    /// Whether there is no watch.
    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Gives some changes of the node to all watchers. True if there are more.
    pub(super) fn serve(&mut self, node: &mut Node, interfaces: &[Interface]) -> bool {
        self.list.retain(|watcher| !watcher.out.is_closed());
        if self.list.is_empty() {
            node.watch(false);
            return false;
        }
        let lost = node.changes_lost();
        self.list.iter_mut().for_each(|watcher| watcher.lost += lost);
        for _ in 0..(EVENTS / self.list.len()).clamp(1, CHANGES) {
            let Some(change) = node.next_change() else { return false };
            let event = event(node, interfaces, change);
            self.give(event);
        }
        true
    }

    /// A decision was made. Those who do not want it leave it out themselves.
    pub(super) fn decided(&mut self, decision: &Decision, unix_us: u64, request_id: Option<RequestId>) {
        if !self.list.is_empty() {
            let decision = Some(signalbox_show::decision::decision(decision, unix_us, request_id));
            self.give(Event::Decided(v1::Decided { decision }));
        }
    }

    /// The node has other interfaces.
    pub(super) fn interfaces(&mut self, node: &Node) {
        if self.list.is_empty() {
            return;
        }
        let now = rows(node);
        let before = std::mem::replace(&mut self.interfaces, now.clone());
        let known = |list: &[v1::Interface], one: &v1::Interface| {
            list.iter().find(|other| other.interface == one.interface).cloned()
        };
        for gone in before.iter().filter(|one| known(&now, one).is_none()) {
            self.give(Event::InterfaceRemoved(v1::InterfaceRemoved { interface: gone.interface.clone() }));
        }
        let seen = |one: &v1::Interface| (one.up, one.capacity_octets_per_s, one.reservable_octets_per_s);
        for one in now {
            if known(&before, &one).is_none_or(|other| seen(&other) != seen(&one)) {
                self.give(Event::InterfaceChanged(v1::InterfaceChanged { interface: Some(one) }));
            }
        }
    }

    fn give(&mut self, event: Event) {
        let time_unix_us = types::unix_us();
        for watcher in &mut self.list {
            let response = Watched { time_unix_us, lost: watcher.lost, event: Some(event.clone()) };
            watcher.lost = match watcher.out.try_send(response) {
                Ok(()) => 0,
                Err(_) => watcher.lost + 1,
            };
        }
    }
}

fn rows(node: &Node) -> Vec<v1::Interface> {
    node.resources().links().map(|link| node::interface(&link, None)).collect()
}

fn event(node: &Node, interfaces: &[Interface], change: Change) -> Event {
    match change {
        Change::Reservation(grant) => match node.resources().reservation(grant) {
            Some(row) => {
                Event::ReservationChanged(v1::ReservationChanged { reservation: Some(held::row(node, &row)) })
            }
            None => Event::ReservationEnded(v1::ReservationEnded { id: held::id(grant) }),
        },
        Change::Session(protocol, SessionChange { session, nslp, what }) => {
            let protocol = types::protocol(protocol).into();
            let nslp_id = nslp.map(|nslp| nslp.0.into());
            match what {
                SessionEvent::Opened => {
                    Event::SessionOpened(v1::SessionOpened { protocol, session, nslp_id })
                }
                SessionEvent::Changed => {
                    Event::SessionChanged(v1::SessionChanged { protocol, session, nslp_id })
                }
                SessionEvent::Closed => {
                    Event::SessionClosed(v1::SessionClosed { protocol, session, nslp_id })
                }
            }
        }
        Change::Peer(change) => {
            // A peer appears with the piece of routing state that points to it.
            let peer = Some(gist::changed_peer(&change, change.appeared.into(), interfaces));
            if change.appeared {
                Event::PeerAppeared(v1::PeerAppeared { peer })
            } else {
                Event::PeerRemoved(v1::PeerRemoved { peer })
            }
        }
        Change::Association(channel) => match node.gist().and_then(|gist| gist.association(channel)) {
            Some(row) => Event::AssociationChanged(v1::AssociationChanged {
                association: Some(gist::association(&row)),
            }),
            None => Event::AssociationRemoved(v1::AssociationRemoved { channel: channel.0 }),
        },
    }
}

impl Driver {
    /// Takes what became of requests. Nothing is written here.
    pub(super) fn decided(&mut self) {
        let Some(first) = self.engine.node.next_decision() else { return self.clients.decided() };
        let (now, unix_us) = (self.clock.now(), types::unix_us());
        let mut next = Some(first);
        while let Some(decision) = next {
            let request_id = self.clients.request_id(&decision);
            self.watchers.decided(&decision, unix_us, request_id);
            self.decisions.give(request_id, decision, now, unix_us);
            next = self.engine.node.next_decision();
        }
        self.clients.decided();
    }

    /// Gives what changed to those who watch.
    pub(super) fn watched(&mut self) {
        if self.watchers.is_empty() {
            return;
        }
        self.done(Part::Sending, 0);
        let Attached { node, io, .. } = &mut self.engine;
        if self.watchers.serve(node, io.interfaces()) {
            // There are more: go on after the network had its turn.
            io.waker().wake();
        }
        self.done(Part::Watchers, 0);
    }
}

#[cfg(test)]
mod tests {
    use signalbox_core::Time;
    use signalbox_core::node::{Input, NodeEngine};
    use signalbox_node::qos::{self, Flow, QosRequest, ReserveRequest};
    use signalbox_node::{Command, Config};

    use super::*;

    /// A node on which a user begins a reservation: its session appears.
    fn reserving(node: &mut Node, id: u64) {
        let flow =
            Flow { protocol: Some(17), dst_port: Some(5004), ..Flow::to("192.0.2.1".parse().unwrap()) };
        let request = ReserveRequest::new(flow, QosRequest::rate(1000));
        let command = qos::Command::Reserve(Box::new(request));
        node.handle(Time::ZERO, Input::Command(Command::Qos { id, command }));
        while node.poll().is_some() {}
    }

    fn node() -> Node {
        let config = Config { qos: Some(qos::Config::default()), ..Config::default() };
        let mut node = Node::new(config, [1; 32]).unwrap();
        let addresses = vec!["192.0.2.7".parse().unwrap()];
        let eth0 = Interface {
            ifindex: signalbox_core::IfIndex(2),
            name: "eth0".to_owned(),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses,
        };
        node.handle(Time::ZERO, Input::Interfaces(&[eth0]));
        while node.poll().is_some() {}
        node
    }

    #[test]
    fn a_watcher_that_does_not_read_loses_events_and_learns_how_many() {
        let (mut node, mut watchers) = (node(), Watchers::default());
        reserving(&mut node, 1);
        let (out, mut events) = mpsc::channel(1);
        watchers.add(&mut node, out);
        for _ in 0..3 {
            watchers.give(Event::Synced(v1::Synced {}));
        }
        assert_eq!(events.try_recv().unwrap().lost, 0);
        watchers.give(Event::Synced(v1::Synced {}));
        assert_eq!(events.try_recv().unwrap().lost, 2);
        drop(events);
        assert!(!watchers.serve(&mut node, &[]));
        assert!(watchers.is_empty(), "a client that is gone is removed");
    }

    #[test]
    fn an_interface_that_changes_is_given_once() {
        let (mut node, mut watchers) = (node(), Watchers::default());
        let (out, mut events) = mpsc::channel(8);
        watchers.add(&mut node, out);
        watchers.interfaces(&node);
        assert!(events.try_recv().is_err(), "nothing is different");
        node.handle(Time::ZERO, Input::Interfaces(&[]));
        watchers.interfaces(&node);
        assert!(matches!(events.try_recv().unwrap().event, Some(Event::InterfaceRemoved(_))));
        assert!(events.try_recv().is_err());
    }
}
