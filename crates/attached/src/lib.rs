//! A node with its sockets, routes, queues and pinholes: what an event loop does for each message.
//!
//! It is a crate of its own so that it is optimized as the engines are. The rest of the daemon serves clients, takes much longer to
//! compile, and is optimized less.

use std::collections::VecDeque;
use std::net::IpAddr;

use signalbox_core::node::{Input, NodeEngine, Output, RouteQuery, StreamError, StreamKind};
use signalbox_core::pinhole::{PinholeError, PinholeId};
use signalbox_core::traffic::{FlowFilter, ReserveError};
use signalbox_core::{Entry, Time};
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::Enforcer;
use signalbox_linux::{Batch, Io, MulticastRoute};
use signalbox_node::{Command, Event, Node};

/// What gets packets and events.
pub trait Listener {
    /// The node gets a packet of this entry.
    fn packet(&mut self, entry: Entry);

    /// The node has this event.
    fn event(&mut self, now: Time, event: Event);

    /// A command that follows from the events so far.
    fn next_command(&mut self) -> Option<Command>;
}

/// What records the inputs of a node.
pub trait Recording {
    /// Records an input.
    fn record(&mut self, now: Time, input: &Input<'_, Command>);

    /// Writes what is buffered.
    fn flush(&mut self);
}

/// A node whose packets are sent, and whose route lookups and listeners are answered at once.
pub struct Attached {
    /// The node.
    pub node: Node,
    /// Its sockets and routes.
    pub io: Io,
    /// Passes reservations to the kernel, on a node that reserves.
    pub enforcer: Option<Enforcer>,
    /// Opens pinholes in the kernel, on a firewall or NAT.
    pub pinholes: Option<Pinholes>,
    recording: Option<Box<dyn Recording>>,
    /// Route lookups that the node asked for and that are not answered yet; empty between inputs. Answered in order: no
    /// message that waits for its route may overtake another.
    lookups: VecDeque<(u64, RouteQuery)>,
    /// Multicast routes that the node asked for and that are not answered yet; empty between inputs.
    groups: Vec<(IpAddr, IpAddr)>,
    /// Flows that the node asked about; empty between inputs.
    flows: Vec<(PinholeId, FlowFilter)>,
    /// When the node's timer is due, if that is known since the last input: the loop asks twice in a turn, and the node asks all
    /// timers of all protocols.
    deadline: Option<Option<Time>>,
    /// Ports that could not be listened at, to be reported to the node; empty between inputs.
    unreported: Vec<(StreamKind, u16, StreamError)>,
}

impl Attached {
    /// A node with its sockets, with what it enforces in the kernel, and with what records its inputs.
    #[must_use]
    pub fn new(
        node: Node,
        io: Io,
        (enforcer, pinholes): (Option<Enforcer>, Option<Pinholes>),
        recording: Option<Box<dyn Recording>>,
    ) -> Self {
        Self {
            node,
            io,
            enforcer,
            pinholes,
            recording,
            lookups: VecDeque::new(),
            groups: Vec::new(),
            flows: Vec::new(),
            deadline: None,
            unreported: Vec::new(),
        }
    }

    /// Gives the node packets that were received together.
    pub fn packets(&mut self, now: Time, batch: &Batch, listener: &mut dyn Listener) {
        let (mut ahead, mut prepared) = (batch.octets(), 0);
        for packet in batch.iter() {
            if prepared == 0 {
                prepared = self.node.prepare(&mut ahead);
            }
            prepared -= 1;
            listener.packet(packet.entry);
            self.feed(now, Input::Packet(packet), listener);
        }
    }

    /// Gives the node an input, its events to the listener, and the node the commands that follow from these.
    pub fn feed(&mut self, now: Time, input: Input<'_, Command>, listener: &mut dyn Listener) {
        self.input(now, input, listener);
        while let Some(command) = listener.next_command() {
            self.input(now, Input::Command(command), listener);
        }
    }

    /// Gives the node one input and drains it: datagrams are queued, streams written to, routes looked up and
    /// answered, events given to `listener`.
    fn input(&mut self, now: Time, input: Input<'_, Command>, listener: &mut dyn Listener) {
        self.handle(now, input);
        // Reservations of a node without enforcer. Our configuration makes no such node.
        let mut unenforced = Vec::new();
        // Pinholes of a node that opens none. Our configuration makes no such node either.
        let mut closed = Vec::new();
        loop {
            while let Some(output) = self.node.poll() {
                match output {
                    Output::Transmit(transmit) => self.io.send(&transmit),
                    Output::RouteLookup { id, query } => self.lookups.push_back((id, query)),
                    Output::StreamListen { kind, port } => {
                        if let Err(error) = self.io.streams().listen(kind, port) {
                            self.unreported.push((kind, port, error));
                        }
                    }
                    Output::StreamOpen { stream, kind, local, peer } => {
                        self.io.streams().open(stream, kind, local, peer);
                    }
                    Output::StreamWrite { stream, octets } => self.io.streams().write(stream, octets),
                    Output::StreamMessage { stream, sctp_stream, lifetime, octets } => {
                        self.io.streams().message(stream, (sctp_stream, lifetime), octets);
                    }
                    Output::StreamRead { stream, on } => self.io.streams().read(stream, on),
                    Output::StreamClose { stream, abort } => self.io.streams().close(stream, abort),
                    Output::MulticastLookup { group, source } => self.groups.push((group, source)),
                    Output::MulticastRelease { group, source } => {
                        self.groups.retain(|asked| *asked != (group, source));
                        self.io.release_multicast_route(group, source);
                    }
                    // Only noted: the driver passes many to the kernel at once.
                    Output::Reserve { id, reservation } => match &mut self.enforcer {
                        Some(enforcer) => enforcer.reserve(id, reservation),
                        None => unenforced.push(id),
                    },
                    Output::Release { id } => {
                        if let Some(enforcer) = &mut self.enforcer {
                            enforcer.release(id);
                        }
                    }
                    Output::OpenPinhole { id, pinhole, lifetime } => match &mut self.pinholes {
                        Some(pinholes) => pinholes.request(id, pinhole, lifetime),
                        None => closed.push(id),
                    },
                    Output::ClosePinhole { id } => {
                        if let Some(pinholes) = &mut self.pinholes {
                            pinholes.release(id);
                        }
                    }
                    Output::FindFlow { id, packets } => self.flows.push((id, packets)),
                    Output::Event(event) => listener.event(now, event),
                }
            }
            if let Some((kind, port, error)) = self.unreported.pop() {
                self.handle(now, Input::ListenFailed { kind, port, error });
            } else if let Some(id) = unenforced.pop() {
                self.handle(now, Input::Reserved { id, result: Err(ReserveError::Unsupported) });
            } else if let Some(id) = closed.pop() {
                self.handle(now, Input::PinholeOpened { id, result: Err(PinholeError::Unsupported) });
            } else if let Some((id, packets)) = self.flows.pop() {
                let translation = self.pinholes.as_mut().and_then(|pinholes| pinholes.find(&packets));
                self.handle(now, Input::FlowFound { id, translation });
            } else if let Some((id, query)) = self.lookups.pop_front() {
                let result = self.io.route(&query);
                self.handle(now, Input::Route { id, result });
            } else if let Some((group, source)) = self.groups.pop() {
                let MulticastRoute { iif, oifs } = self.io.multicast_route(group, source);
                self.handle(now, Input::Multicast { group, source, iif, oifs: &oifs });
            } else {
                return;
            }
        }
    }

    /// When the node needs [`Input::Timer`].
    pub fn next_deadline(&mut self) -> Option<Time> {
        *self.deadline.get_or_insert_with(|| self.node.next_deadline())
    }

    /// Writes what the recording has buffered.
    pub fn flush_recording(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.flush();
        }
    }

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        if let Some(recording) = &mut self.recording {
            recording.record(now, &input);
        }
        self.deadline = None;
        self.node.handle(now, input);
    }
}
