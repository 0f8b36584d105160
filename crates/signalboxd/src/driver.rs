//! The event loop: everything that happens to the node passes here, one thing at a time.

mod counted;
mod kernel;
mod neighbors;
mod query;
mod repair;
mod selftest;
mod stop;
mod sweep;
#[cfg(test)]
pub(crate) mod tests;
mod turn;
mod wall_clock;
mod watchers;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use signalbox_attached::{Attached, Listener, Recording};
use signalbox_core::node::Input;
use signalbox_core::{Entry, Time};
use signalbox_linux::clock::Clock;
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::stream::{StreamBuffer, StreamEvent};
use signalbox_linux::traffic::Enforcer;
use signalbox_linux::{Batch, Change, Failure, Io, MulticastRoute, Undeliverable};
use signalbox_node::{Command, Event, Node};
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::api::{InterfaceNames, held};
use crate::clients::Clients;
use crate::decisions::Decisions;
use crate::handover::bindings;
use crate::metrics::Measurements;
use crate::notify::Notifier;
use crate::protocols::OPENERS;
use crate::record::Recorder;
use crate::report::Reporter;
use crate::requests::LoopRequest;
use counted::Counted;
pub(crate) use counted::DaemonCounters;
pub(crate) use kernel::Enforced;
use neighbors::MovedNeighbors;
use repair::KernelRepair;
pub(crate) use selftest::Interception;
use selftest::SelfTest;
use sweep::Sweep;
use turn::{Part, Turn};
use wall_clock::WallClock;
use watchers::Watchers;
pub(crate) use watchers::{QUEUE, Watched};

/// Batches received in one turn, so that requests and timers have their turn.
const BATCHES: usize = 4;
/// Requests of the control thread served in one turn.
const REQUESTS: usize = 4;
/// Times that failed sends are reported to the node in one turn: what it sends then may fail as well.
const FLUSHES: usize = 4;
/// Time after which interfaces that could not be read are read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The node with its sockets, its clock and its clients.
pub(crate) struct Driver {
    engine: Attached,
    /// What is known of the interception; `None` where no packets are intercepted.
    interception: Option<Interception>,
    clock: Clock,
    batch: Batch,
    /// Octets of one stream event. The streams' own buffers are written to while an event is read.
    octets: StreamBuffer,
    clients: Clients,
    watchers: Watchers,
    decisions: Decisions,
    counters: DaemonCounters,
    /// For the control thread.
    names: InterfaceNames,
    measurements: Measurements,
    turn: Turn,
    notifier: Notifier,
    /// When the service manager gets the next sign of life.
    watchdog_due: Time,
    /// When interfaces that could not be read are read again.
    read_again: Option<Time>,
    repair: KernelRepair,
    moved_neighbors: MovedNeighbors,
    self_test: SelfTest,
    sweep: Sweep,
    wall_clock: WallClock,
    reporter: Reporter,
    /// Something happened since the reporter looked.
    unreported: bool,
}

impl Driver {
    /// A driver whose node has its interfaces, with what it reports to.
    pub(crate) fn new(
        node: Node,
        io: Io,
        kernel: Enforced,
        clock: Clock,
        recorder: Option<Recorder>,
        names: InterfaceNames,
        (notifier, decisions): (Notifier, Decisions),
    ) -> Self {
        let recording = recorder.map(|recorder| Box::new(recorder) as Box<dyn Recording>);
        let mut driver = Self {
            engine: Attached::new(node, io, (kernel.reservations, kernel.pinholes), recording),
            interception: None,
            clock,
            batch: Batch::new(),
            octets: StreamBuffer::new(),
            clients: Clients::default(),
            watchers: Watchers::default(),
            decisions,
            counters: DaemonCounters::default(),
            names,
            measurements: Measurements::default(),
            turn: Turn::default(),
            notifier,
            watchdog_due: Time::ZERO,
            read_again: None,
            repair: KernelRepair::default(),
            moved_neighbors: MovedNeighbors::default(),
            self_test: SelfTest::default(),
            sweep: Sweep::default(),
            wall_clock: WallClock::new(clock.start_unix_us()),
            reporter: Reporter::default(),
            unreported: false,
        };
        driver.engine.node.record_decisions(true);
        driver.interfaces();
        if let Err(error) = driver.judge_interception() {
            tracing::warn!(%error, "whether the interception works is not known");
        }
        driver.self_test.schedule(driver.clock.now());
        driver.self_test();
        driver.enforce();
        driver.flush();
        driver
    }

    /// Runs until the control thread requests the end.
    ///
    /// The sender of a request must wake [`Io::wait`] as well.
    pub(crate) fn run(&mut self, requests: &mut mpsc::Receiver<LoopRequest>) -> Result<()> {
        loop {
            let timeout = self.timeout();
            let ready = self.engine.io.wait(timeout).context("cannot wait for the network")?;
            self.turn.begin(self.clock.now());
            self.compare_wall_clock();
            if ready.packets {
                let packets = self.receive() + self.undeliverable();
                self.done(Part::Packets, packets);
            }
            self.self_test();
            if ready.streams {
                let events = self.streams();
                self.done(Part::Streams, events);
            }
            if ready.changes || self.read_again.is_some_and(|due| due <= self.clock.now()) {
                let changes = self.changes();
                self.done(Part::Changes, changes);
                // Sockets that are opened again cost no more than a restart, which the service manager does until the VRF is there.
                if let Some(vrf) = self.engine.io.lost_vrf() {
                    bail!("the VRF {vrf} is gone, and the sockets with it: start again when it is there");
                }
            }
            if ready.woken {
                let goes_on = self.requests(requests)?;
                self.done(Part::Requests, 1);
                if !goes_on {
                    return Ok(());
                }
            }
            let now = self.clock.now();
            if self.engine.next_deadline().is_some_and(|deadline| deadline <= now) {
                self.input(Input::Timer);
                self.done(Part::Timers, 1);
            }
            if self.repair.is_due(now) {
                let repaired = self.repair(now);
                self.done(Part::Repair, repaired);
            }
            if self.moved_neighbors.due().is_some_and(|due| due <= now) {
                let told = self.follow_neighbors(now);
                self.done(Part::Changes, told);
            }
            if self.engine.enforcer.is_some() && self.sweep.due() <= now {
                let compared = self.sweep(now);
                self.done(Part::Sweep, compared);
            }
            if self.unreported && self.reporter.next() <= now {
                self.report();
                self.done(Part::Report, 1);
            }
            // Messages leave before the kernel works: after the loss of a link it may release a thousand reservations.
            self.flush();
            self.enforce();
            self.open();
            self.flush();
            self.prepare();
            self.decided();
            self.watched();
            self.end_turn();
        }
    }

    /// A part of the turn ends.
    fn done(&mut self, part: Part, count: usize) {
        self.turn.done(part, count, self.clock.now());
    }

    /// Measures the turn, logs a long one, and gives the service manager its sign of life.
    fn end_turn(&mut self) {
        let now = self.clock.now();
        self.turn.done(Part::Sending, 0, now);
        let (took, line) = self.turn.end(now);
        self.measurements.turn(took);
        if took > turn::LONG {
            self.counters.long_turns += 1;
        }
        if let Some(line) = line {
            tracing::warn!(ms = took.as_millis(), "a long turn of the event loop: {line}");
        }
        if let Some(period) = self.notifier.watchdog
            && self.watchdog_due <= now
        {
            self.notifier.send("WATCHDOG=1");
            self.watchdog_due = now + period / 2;
        }
    }

    /// How long the loop may wait for the network; `None`: without limit.
    fn timeout(&mut self) -> Option<Duration> {
        if self.engine.enforcer.as_ref().is_some_and(|enforcer| !enforcer.is_idle()) {
            return Some(Duration::ZERO);
        }
        let report = self.unreported.then(|| self.reporter.next());
        let watchdog_due = self.notifier.watchdog.map(|_| self.watchdog_due);
        let sweep = self.engine.enforcer.is_some().then(|| self.sweep.due());
        let next = [
            self.engine.next_deadline(),
            report,
            watchdog_due,
            self.read_again,
            self.repair.due(),
            self.moved_neighbors.due(),
            self.self_test_due(),
            sweep,
        ];
        let next = next.into_iter().flatten().min();
        let wait = next.map(|next| next.since(self.clock.now()));
        let pinholes = self.engine.pinholes.as_ref().and_then(Pinholes::wait_time);
        let adopted = self.engine.enforcer.as_ref().and_then(Enforcer::wait_time);
        let queues = self.engine.enforcer.as_ref().and_then(Enforcer::prepares_in);
        [wait, pinholes, adopted, queues].into_iter().flatten().min()
    }

    /// Serves requests of the control thread. The result is false when the daemon shall stop.
    fn requests(&mut self, requests: &mut mpsc::Receiver<LoopRequest>) -> Result<bool> {
        for _ in 0..REQUESTS {
            match requests.try_recv() {
                Ok(LoopRequest::Stop(signal)) => {
                    tracing::info!(signal, "stopping");
                    return Ok(false);
                }
                Ok(LoopRequest::Open { id, client, command, request_id, done }) => {
                    client.opened(id, &mut self.counters);
                    self.clients.add(self.clock.now(), id, client, request_id);
                    self.command(command);
                    // A client that does not wait for it is gone, and about to be closed.
                    let _ = done.send(());
                }
                Ok(LoopRequest::Command(command, answer)) => {
                    let found = self.clients.command(self.clock.now(), &command);
                    if found {
                        self.command(command);
                    }
                    // A client that is gone needs no answer.
                    let _ = answer.map(|answer| answer.send(found));
                }
                Ok(LoopRequest::DeleteReservation(grant, answer)) => {
                    let found = self.engine.node.resources().reservation(grant).is_some();
                    if found {
                        tracing::info!(reservation = %held::id(grant), "deleted by an administrator");
                        self.command(Command::DeleteReservation { grant });
                    }
                    // A client that is gone needs no answer.
                    let _ = answer.send(found);
                }
                Ok(LoopRequest::DeletePinhole(session, answer)) => {
                    let node = &self.engine.node;
                    let command = OPENERS.iter().find_map(|one| one.delete(node, session));
                    let found = command.is_some();
                    if let Some(command) = command {
                        self.command(command);
                    }
                    // A client that is gone needs no answer.
                    let _ = answer.send(found);
                }
                Ok(LoopRequest::Reload { config, links, answer }) => {
                    let ended = |node: &Node| {
                        let counters = node.resources().counters();
                        counters.rules_lost + counters.interface_lost
                    };
                    let before = ended(&self.engine.node);
                    if let Some(enforcer) = &mut self.engine.enforcer {
                        enforcer.set_rates(&links);
                    }
                    self.command(Command::Reload(config));
                    // Limits of rates follow the speeds of links, and these follow the new capacities.
                    let speeds = self.engine.io.link_speeds();
                    self.command(Command::LinkSpeeds(speeds));
                    // A client that is gone needs no answer.
                    let _ = answer.send(ended(&self.engine.node) - before);
                }
                Ok(LoopRequest::Watch(out)) => self.watchers.add(&mut self.engine.node, out),
                Ok(LoopRequest::Close(id)) => {
                    if let Some(command) = self.clients.remove(id) {
                        tracing::debug!(client = id, "a client is gone");
                        self.command(command);
                    }
                }
                Ok(LoopRequest::Query(query)) => {
                    self.counters.questions += 1;
                    self.query(query);
                }
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => bail!("the control service ended"),
            }
        }
        // There may be more: look again after the network had its turn.
        self.engine.io.waker().wake();
        Ok(true)
    }

    fn command(&mut self, command: Command) {
        tracing::trace!(?command, "a client's command");
        self.input(Input::Command(command));
    }

    /// Gives the node what the daemon before this one left.
    pub(crate) fn take_over(&mut self, octets: &[u8]) {
        self.input(Input::Handover(octets));
        self.flush();
    }

    /// The bindings that the daemon before this one left in the kernel, as parts of what the node takes over. Their ports are kept
    /// for this time at most.
    pub(crate) fn bindings_left(&mut self, time: Duration) -> Vec<u8> {
        let Some(pinholes) = &mut self.engine.pinholes else { return Vec::new() };
        let bindings = pinholes.bindings_left().unwrap_or_else(|error| {
            tracing::warn!(%error, "the bindings of the daemon before this one cannot be read");
            Vec::new()
        });
        bindings::parts(&bindings, time)
    }

    /// Limits the time of what the daemon before this one left in the kernel and the node has not replaced.
    pub(crate) fn adopt_pinholes(&mut self, time: Duration) {
        if let Some(pinholes) = &mut self.engine.pinholes {
            pinholes.adopt(time);
        }
    }

    fn input(&mut self, input: Input<'_, Command>) {
        let now = self.clock.now();
        let Self { engine, clients, measurements, turn, .. } = self;
        engine.feed(now, input, &mut Listeners { clients, measurements, turn });
    }

    /// Returns how many packets were processed.
    fn receive(&mut self) -> usize {
        self.unreported = true;
        let mut packets = 0;
        for _ in 0..BATCHES {
            match self.engine.io.receive(&mut self.batch) {
                Ok(0) => return packets,
                Ok(received) => packets += received,
                Err(error) => {
                    self.counters.receive_failed += 1;
                    tracing::debug!(%error, "receive");
                    return packets;
                }
            }
            let now = self.clock.now();
            let Self { engine, batch, clients, measurements, turn, .. } = self;
            engine.packets(now, batch, &mut Listeners { clients, measurements, turn });
            self.flush();
            if self.batch.len() < self.batch.capacity() {
                return packets;
            }
        }
        packets
    }

    /// Reports to the node what routers and hosts could not deliver. Returns the number of reports.
    fn undeliverable(&mut self) -> usize {
        let reports = self.engine.io.take_undeliverable();
        for Undeliverable { entry, dst, quoted } in &reports {
            tracing::debug!(?entry, %dst, "not delivered, by a report of ICMP");
            self.input(Input::Undeliverable { entry: *entry, dst: *dst, quoted });
        }
        reports.len()
    }

    /// One turn of the streams. They bound the work of a turn themselves. Returns the number of their events.
    fn streams(&mut self) -> usize {
        self.unreported = true;
        let mut events = 0;
        loop {
            let input = match self.engine.io.streams().next_event(&mut self.octets) {
                Ok(Some(event)) => stream_input(event),
                Ok(None) => return events,
                Err(error) => {
                    self.counters.streams_failed += 1;
                    tracing::debug!(%error, "streams");
                    return events;
                }
            };
            events += 1;
            let now = self.clock.now();
            let Self { engine, clients, measurements, turn, .. } = self;
            engine.feed(now, input, &mut Listeners { clients, measurements, turn });
        }
    }

    /// Returns the number of changes.
    fn changes(&mut self) -> usize {
        let changes = self.engine.io.changes();
        self.read_again = self.engine.io.has_unread().then(|| self.clock.now() + READ_AGAIN);
        let count = changes.len();
        for change in changes {
            match change {
                Change::Interfaces => {
                    self.counters.interface_changes += 1;
                    self.interfaces();
                    // A link that goes down takes routes with it, also the loopback interface.
                    self.schedule_repair();
                }
                Change::Removed => self.schedule_repair(),
                Change::Rules => self.self_test.schedule(self.clock.now()),
                Change::Route(prefix) => {
                    self.counters.route_changes += 1;
                    tracing::debug!(address = %prefix.addr, length = prefix.len, "routes changed");
                    self.input(Input::RouteChanged(prefix));
                }
                Change::Neighbor { ifindex, address } => self.neighbor_moved(ifindex, address),
                Change::Multicast { group, source } => {
                    self.counters.route_changes += 1;
                    tracing::debug!(%group, %source, "multicast route changed");
                    let MulticastRoute { iif, oifs } = self.engine.io.multicast_route(group, source);
                    self.input(Input::Multicast { group, source, iif, oifs: &oifs });
                }
            }
        }
        count
    }

    fn interfaces(&mut self) {
        // A copy, as the node may ask for routes meanwhile; interfaces change seldom.
        let interfaces = self.engine.io.interfaces().to_vec();
        tracing::debug!(?interfaces, "interfaces");
        self.names.set(&interfaces);
        // The queues come first: the node may reserve at them as soon as it has the interface.
        if let Some(enforcer) = &mut self.engine.enforcer {
            for (interface, error) in enforcer.refresh() {
                tracing::warn!(interface, %error, "reservations cannot be enforced here");
            }
        }
        self.input(Input::Interfaces(&interfaces));
        let speeds = self.engine.io.link_speeds();
        self.command(Command::LinkSpeeds(speeds));
        self.watchers.interfaces(&self.engine.node);
    }

    /// Sends what is queued, and reports to the node what could not be sent.
    fn flush(&mut self) {
        for _ in 0..FLUSHES {
            let failures = self.engine.io.flush();
            if failures.is_empty() {
                return;
            }
            self.unreported = true;
            for Failure { entry, dst, error } in failures {
                tracing::debug!(?entry, %dst, ?error, "not sent");
                self.input(Input::TransmitFailed { entry, dst, error });
            }
        }
    }

    fn report(&mut self) {
        self.unreported = false;
        self.engine.flush_recording();
        let Attached { node, io, enforcer, pinholes, .. } = &self.engine;
        let daemon = self.clients.counted(self.counters);
        let counters = Counted::new(daemon, io, enforcer.as_ref(), pinholes.as_ref()).with(node);
        let lines = self.reporter.look(self.clock.now(), counters);
        for line in lines {
            line.log();
        }
    }
}

/// Where events of the node go.
struct Listeners<'a> {
    clients: &'a mut Clients,
    measurements: &'a mut Measurements,
    turn: &'a mut Turn,
}

impl Listener for Listeners<'_> {
    fn packet(&mut self, entry: Entry) {
        self.turn.packet(entry);
    }

    fn event(&mut self, now: Time, event: Event) {
        self.clients.deliver(now, event, self.measurements);
    }

    fn next_command(&mut self) -> Option<Command> {
        self.clients.next_pending()
    }
}

fn stream_input<C>(event: StreamEvent<'_>) -> Input<'_, C> {
    match event {
        StreamEvent::Accepted { stream, kind, local, peer } => {
            Input::StreamAccepted { stream, kind, local, peer }
        }
        StreamEvent::Connected { stream, local } => Input::StreamConnected { stream, local },
        StreamEvent::Octets { stream, octets } => Input::StreamOctets { stream, octets },
        StreamEvent::Drained { stream, unsent } => Input::StreamDrained { stream, unsent },
        StreamEvent::Closed { stream, error, unacknowledged } => {
            Input::StreamClosed { stream, error, unacknowledged }
        }
    }
}
