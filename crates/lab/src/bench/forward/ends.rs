//! The neighbours of the daemon under test: two nodes in this process, on real sockets, until their sessions
//! are set up.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_linux::clock::{self, Clock};
use signalbox_linux::netns::Namespace;
use signalbox_linux::{Batch, Io, IoConfig};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::{Command, Config, Event, GistConfig, Node};

use super::super::engine::is_data;
use super::site::{SINK, SOURCE, Site};

/// The time that the set-up of the sessions may take.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);
/// First destination port of the flows.
const FIRST_PORT: u16 = 20_000;

/// Messages of sessions that are set up.
pub(super) struct Recorded {
    /// Where the middle node receives them.
    pub(super) to: SocketAddr,
    /// The Data message of each session.
    pub(super) messages: Vec<Vec<u8>>,
}

/// Sets `sessions` up by one ping each from source to sink, and returns the Data message that the source sent to
/// the middle node for each.
pub(super) fn establish(site: &Site, sessions: u16) -> Result<Recorded> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sink = scope.spawn(|| {
            let mut sink = End::open(&site.sink)?;
            while !stop.load(Ordering::Relaxed) {
                sink.turn(|_| {})?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let recorded = ping_all(site, sessions);
        stop.store(true, Ordering::Relaxed);
        sink.join().map_err(|_| anyhow::anyhow!("the sink's node panicked"))??;
        recorded
    })
}

fn ping_all(site: &Site, sessions: u16) -> Result<Recorded> {
    let mut source = End::open(&site.source)?;
    for number in 0..sessions {
        let request = PingRequest {
            src: Some(IpAddr::V4(SOURCE)),
            protocol: Some(17),
            src_port: Some(FIRST_PORT),
            dst_port: Some(FIRST_PORT + number),
            count: Some(1),
            timeout: PATIENCE,
            ..PingRequest::to(IpAddr::V4(SINK))
        };
        source.node.handle(
            source.now(),
            Input::Command(Command::Ping { id: u64::from(number), command: ping::Command::Start(request) }),
        );
        source.drain(|_| {});
    }
    let mut messages = Vec::new();
    let mut to = None;
    let mut replies = 0;
    let deadline = Instant::now() + PATIENCE;
    while replies < sessions {
        source.turn(|seen| match seen {
            Seen::Data(dst, payload) => {
                to = Some(dst);
                messages.push(payload.to_vec());
            }
            Seen::Reply => replies += 1,
        })?;
        ensure!(Instant::now() < deadline, "{replies} of {sessions} sessions were set up");
    }
    ensure!(
        messages.len() == usize::from(sessions),
        "{} Data messages for {sessions} sessions",
        messages.len()
    );
    Ok(Recorded { to: to.context("no Data message was sent")?, messages })
}

/// An event that the benchmark needs.
enum Seen<'a> {
    /// A Data message went out.
    Data(SocketAddr, &'a [u8]),
    /// A ping came back.
    Reply,
}

/// A node with its sockets.
struct End {
    node: Node,
    io: Io,
    batch: Batch,
    clock: Clock,
}

impl End {
    fn open(namespace: &Namespace) -> Result<Self> {
        let mut gist = GistConfig::default();
        gist.engine.validity = Duration::from_secs(600);
        gist.engine.inactivity = Duration::from_secs(600);
        gist.engine.dmode_rate = 0;
        let config = Config { wall_clock_us: clock::unix_us(), gist: Some(gist), ..Config::default() };
        let io = IoConfig { entries: config.entries(), ipv6: false, ..IoConfig::default() };
        let io = namespace.run(|| Io::open(&io))??;
        let node = Node::new(config, clock::seed()?)?;
        let mut end = Self { node, io, batch: Batch::new(), clock: Clock::start() };
        end.node.handle(Time::ZERO, Input::Interfaces(end.io.interfaces()));
        end.drain(|_| {});
        Ok(end)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits a short time for input, and handles it.
    fn turn(&mut self, mut see: impl FnMut(Seen<'_>)) -> Result<()> {
        self.io.wait(Some(STEP)).context("cannot wait")?;
        let mut batch = std::mem::take(&mut self.batch);
        self.io.receive(&mut batch).context("cannot receive")?;
        for received in batch.iter() {
            self.node.handle(self.clock.now(), Input::Packet(received));
            self.drain(&mut see);
        }
        self.batch = batch;
        if self.node.next_deadline().is_some_and(|deadline| deadline <= self.now()) {
            self.node.handle(self.clock.now(), Input::Timer);
            self.drain(&mut see);
        }
        self.io.flush();
        Ok(())
    }

    fn drain(&mut self, mut see: impl FnMut(Seen<'_>)) {
        while let Some(output) = self.node.poll() {
            if let Output::Transmit(packet) = output {
                if is_data(packet.payload) {
                    see(Seen::Data(packet.dst, packet.payload));
                }
                self.io.send(&packet);
            } else if let Output::RouteLookup { id, query } = output {
                let result = self.io.route(&query);
                self.node.handle(self.clock.now(), Input::Route { id, result });
            } else if let Output::Event(Event::Ping { event: PingEvent::Reply(_), .. }) = output {
                see(Seen::Reply);
            }
        }
        self.io.flush();
    }
}
