//! The node with its sockets, routes and queues.

use std::collections::VecDeque;
use std::net::IpAddr;

use signalbox_core::node::{
    Input, Interface, NoRoute, NodeEngine, Output, Route, RouteQuery, StreamError, StreamKind,
};
use signalbox_core::pinhole::{PinholeError, PinholeId};
use signalbox_core::traffic::{FlowFilter, ReserveError};
use signalbox_core::{Counter, Time};
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::Enforcer;
use signalbox_linux::{Io, MulticastRoute};
use signalbox_node::{Command, Event, Node};

use super::{Counted, DaemonCounters, DaemonNumbers, Enforced, Interception};
use crate::course::Routing;
use crate::metrics::Measured;
use crate::record::Recorder;
use crate::requests::Query;
use crate::view::{Kernel, View};

/// A node whose packets are sent, and whose route lookups and listeners are answered at once.
pub(super) struct Engine {
    pub(super) node: Node,
    pub(super) io: Io,
    /// Passes reservations to the kernel, on a node that reserves.
    pub(super) enforcer: Option<Enforcer>,
    /// Opens pinholes in the kernel, on a firewall or NAT.
    pub(super) pinholes: Option<Pinholes>,
    /// What is known of the interception; `None` where no packets are intercepted.
    pub(super) interception: Option<Interception>,
    recorder: Option<Recorder>,
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

impl Engine {
    pub(super) fn new(node: Node, io: Io, kernel: Enforced, recorder: Option<Recorder>) -> Self {
        Self {
            node,
            io,
            enforcer: kernel.reservations,
            pinholes: kernel.pinholes,
            interception: None,
            recorder,
            lookups: VecDeque::new(),
            groups: Vec::new(),
            flows: Vec::new(),
            deadline: None,
            unreported: Vec::new(),
        }
    }

    /// Gives the node one input and drains it: datagrams are queued, streams written to, routes looked up and
    /// answered, events given to `deliver`.
    pub(super) fn feed(&mut self, now: Time, input: Input<'_, Command>, deliver: &mut dyn FnMut(Event)) {
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
                    Output::Event(event) => deliver(event),
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
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        *self.deadline.get_or_insert_with(|| self.node.next_deadline())
    }

    /// Runs a query of a client. `daemon` is what the daemon counts and measures.
    pub(super) fn query(&mut self, now: Time, daemon: DaemonNumbers<'_>, query: Query) {
        let Self { node, io, enforcer, pinholes, interception, .. } = self;
        let interception = interception.as_ref();
        let (enforcer, pinholes) = (enforcer.as_mut(), pinholes.as_mut());
        let mut kernel = QueryKernel { io, enforcer, pinholes, interception, daemon };
        query.run(&mut View { now, node, kernel: &mut kernel });
    }

    /// What the sockets count, beside what the daemon does.
    pub(super) fn counted(&self, daemon: DaemonCounters) -> Counted<'_> {
        Counted::new(daemon, &self.io, self.enforcer.as_ref(), self.pinholes.as_ref())
    }

    /// Writes what the recorder has buffered.
    pub(super) fn flush_recording(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, &input);
        }
        self.deadline = None;
        self.node.handle(now, input);
    }
}

/// What is beside the node, for queries.
struct QueryKernel<'a> {
    io: &'a mut Io,
    enforcer: Option<&'a mut Enforcer>,
    pinholes: Option<&'a mut Pinholes>,
    interception: Option<&'a Interception>,
    daemon: DaemonNumbers<'a>,
}

/// The kernel's answers about routes.
pub(super) struct Routed<'a>(pub(super) &'a mut Io);

impl Routing for Routed<'_> {
    fn interfaces(&self) -> &[Interface] {
        self.0.interfaces()
    }

    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.0.route(query)
    }
}

impl Routing for QueryKernel<'_> {
    fn interfaces(&self) -> &[Interface] {
        self.io.interfaces()
    }

    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.io.route(query)
    }
}

impl Kernel for QueryKernel<'_> {
    fn enforcer(&mut self) -> Option<&mut Enforcer> {
        self.enforcer.as_deref_mut()
    }

    fn pinholes(&mut self) -> Option<&mut Pinholes> {
        self.pinholes.as_deref_mut()
    }

    fn interception(&self) -> Option<&Interception> {
        self.interception
    }

    fn counters(&self, node: &Node) -> Vec<Counter> {
        let (enforcer, pinholes) = (self.enforcer.as_deref(), self.pinholes.as_deref());
        Counted::new(self.daemon.counters, self.io, enforcer, pinholes).with(node).collect()
    }

    fn histograms(&self) -> Vec<Measured> {
        self.daemon.measurements.all()
    }

    fn start_unix_us(&self) -> u64 {
        self.daemon.start_unix_us
    }
}
