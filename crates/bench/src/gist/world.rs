//! Three nodes in a row. The middle one is measured; its neighbors are real nodes too, made again for every
//! batch of sessions, so that what they hold does not count.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use signalbox_core::kit::interface;
use signalbox_core::node::{Input, NodeEngine, Output, Route, RouteQuery};
use signalbox_core::packet::Received;
use signalbox_core::rng::Random;
use signalbox_core::{Entry, IfIndex, SessionId, Time};
use signalbox_node::ping::{self, PingEvent, PingRequest};
use signalbox_node::{Command, Config, Event, GistConfig, Node};

use super::super::machine::{Meter, timed};
use super::super::runs::batch_time;
use super::BATCH;
use super::post::{Kind, Post};

const UPSTREAM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const MIDDLE_UP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const MIDDLE_DOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
const DOWNSTREAM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const UP: IfIndex = IfIndex(1);
const DOWN: IfIndex = IfIndex(2);
/// Source and destination port of the first flow; further ones count up.
const FIRST_PORTS: u32 = 0x4000_0001;
const UDP: u8 = 17;
const ENTRY: Entry = Entry::Udp(270);
const MTU: u32 = 1500;
/// A day in 2026, in microseconds since 1970.
const WALL_CLOCK_US: u64 = 1_790_000_000_000_000;
/// More rounds than any handshake takes.
const MAX_ROUNDS: usize = 64;
/// The most virtual time that one batch of set-ups takes.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// A session as the generator of its messages needs it.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    session: SessionId,
    src_port: u16,
    dst_port: u16,
}

impl Flow {
    /// Returns the flow with this number, which determines its ports. It has a session once it is set up.
    pub(super) fn numbered(number: u32) -> Self {
        let [high, middle, low, lowest] = (FIRST_PORTS + number).to_be_bytes();
        Self {
            session: SessionId::default(),
            src_port: u16::from_be_bytes([high, middle]),
            dst_port: u16::from_be_bytes([low, lowest]),
        }
    }

    /// Source and destination, as the MRI has them.
    fn ports(&self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.src_port.to_be_bytes(), self.dst_port.to_be_bytes());
        [a, b, c, d]
    }
}

/// The cost of the set-up of sessions for the middle node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SetUp {
    /// By kind of message that came in from upstream, in the order of [`Kind::ALL`].
    pub(super) from_up: [Meter; 5],
    /// The same for what came from downstream.
    pub(super) from_down: [Meter; 5],
}

/// The middle node and its neighbors.
pub(super) struct World {
    middle: Node,
    up: Node,
    down: Node,
    now: Time,
    /// Virtual time that one batch of set-ups takes.
    batch_time: Duration,
    seeds: Random,
    template: Option<Template>,
    to_middle_from_up: Post,
    to_middle_from_down: Post,
    sent: Post,
    to_up: Post,
    to_down: Post,
}

/// A Data message as the upstream neighbor sent it, and where the session and the flow stand in it.
struct Template {
    src: SocketAddr,
    dst: SocketAddr,
    ttl: u8,
    tos: u8,
    payload: Vec<u8>,
    session_at: usize,
    ports_at: usize,
}

impl World {
    pub(super) fn new(sessions: u32) -> Result<Self> {
        let mut seeds = Random::from_number(2026);
        let mut middle = node(sessions, "middle", &mut seeds)?;
        middle.handle(
            Time::ZERO,
            Input::Interfaces(&[interface(UP.0, vec![MIDDLE_UP]), interface(DOWN.0, vec![MIDDLE_DOWN])]),
        );
        Ok(Self {
            middle,
            up: node(1, "up", &mut seeds)?,
            down: node(1, "down", &mut seeds)?,
            now: Time::ZERO,
            batch_time: batch_time(sessions, u32::try_from(BATCH)?, BATCH_TIME),
            seeds,
            template: None,
            to_middle_from_up: Post::default(),
            to_middle_from_down: Post::default(),
            sent: Post::default(),
            to_up: Post::default(),
            to_down: Post::default(),
        })
    }

    /// Sets `flows` up through the middle node, all at once: Query, Response and Confirm on either side, one
    /// ping there and back.
    pub(super) fn set_up(&mut self, flows: &mut [Flow], cost: &mut SetUp) -> Result<()> {
        self.now = self.now + self.batch_time;
        let size = u32::try_from(flows.len())?;
        self.new_neighbors(size)?;
        let mut done = 0;
        for id in 0..flows.len() {
            let Some(flow) = flows.get(id) else { break };
            let request = PingRequest {
                src: Some(UPSTREAM),
                protocol: Some(UDP),
                src_port: Some(flow.src_port),
                dst_port: Some(flow.dst_port),
                count: Some(1),
                interval: Duration::from_secs(1),
                timeout: Duration::from_secs(5),
                ..PingRequest::to(DOWNSTREAM)
            };
            let id = u64::try_from(id)?;
            self.up.handle(
                self.now,
                Input::Command(Command::Ping { id, command: ping::Command::Start(request) }),
            );
            done += drain_up(&mut self.up, self.now, flows, &mut self.to_middle_from_up)?;
        }
        for _ in 0..MAX_ROUNDS {
            if self.to_middle_from_up.is_empty() && self.to_middle_from_down.is_empty() {
                break;
            }
            self.take_template(flows)?;
            self.middle_takes(cost)?;
            done += self.neighbors_take(flows)?;
        }
        ensure!(done == flows.len(), "{done} of {} sessions were set up", flows.len());
        Ok(())
    }

    /// Makes the neighbors again, without state, with the addresses and names that they had before.
    fn new_neighbors(&mut self, size: u32) -> Result<()> {
        self.up = node(size, "up", &mut self.seeds)?;
        self.down = node(size, "down", &mut self.seeds)?;
        self.up.handle(self.now, Input::Interfaces(&[interface(UP.0, vec![UPSTREAM])]));
        self.down.handle(self.now, Input::Interfaces(&[interface(UP.0, vec![DOWNSTREAM])]));
        Ok(())
    }

    /// Gives the middle node all packets that wait for it, one kind of message after the other, and measures each kind.
    fn middle_takes(&mut self, cost: &mut SetUp) -> Result<()> {
        self.sent.clear();
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            let sides = [
                (UP, &self.to_middle_from_up, &mut cost.from_up),
                (DOWN, &self.to_middle_from_down, &mut cost.from_down),
            ];
            for (ifindex, post, meters) in sides {
                let Some(meter) = meters.get_mut(place) else { continue };
                let (middle, sent, now) = (&mut self.middle, &mut self.sent, self.now);
                meter.add(timed(kind.in_a_handshake(), || {
                    let mut messages = 0;
                    for (_, received) in post.arriving(ifindex).filter(|(found, _)| *found == kind) {
                        middle.handle(now, Input::Packet(received));
                        drain_middle(middle, now, sent);
                        messages += 1;
                    }
                    Ok(messages)
                })?);
            }
        }
        self.to_middle_from_up.clear();
        self.to_middle_from_down.clear();
        Ok(())
    }

    /// Gives the neighbors what the middle node sent; returns how many pings came back.
    fn neighbors_take(&mut self, flows: &mut [Flow]) -> Result<usize> {
        self.to_up.clear();
        self.to_down.clear();
        self.sent.sort_into(&mut self.to_up, |dst| dst.ip() == UPSTREAM);
        self.sent.sort_into(&mut self.to_down, |dst| dst.ip() != UPSTREAM);
        let mut done = 0;
        for (_, received) in self.to_up.arriving(UP) {
            self.up.handle(self.now, Input::Packet(received));
            done += drain_up(&mut self.up, self.now, flows, &mut self.to_middle_from_up)?;
        }
        for (_, received) in self.to_down.arriving(UP) {
            self.down.handle(self.now, Input::Packet(received));
            drain_down(&mut self.down, self.now, &mut self.to_middle_from_down);
        }
        Ok(done)
    }

    /// Keeps the first Data message that the upstream neighbor sends.
    fn take_template(&mut self, flows: &[Flow]) -> Result<()> {
        if self.template.is_some() {
            return Ok(());
        }
        let found = self.to_middle_from_up.arriving(UP).find(|(kind, _)| *kind == Kind::Data);
        let Some((_, data)) = found else { return Ok(()) };
        let at = |wanted: &[u8]| data.payload.windows(wanted.len()).position(|octets| octets == wanted);
        let (session_at, ports_at) = flows
            .iter()
            .find_map(|flow| at(&flow.session.0).zip(at(&flow.ports())))
            .context("a Data message names none of the sessions and flows")?;
        self.template = Some(Template {
            src: data.src,
            dst: data.dst,
            ttl: data.ttl,
            tos: data.tos,
            payload: data.payload.to_vec(),
            session_at,
            ports_at,
        });
        Ok(())
    }

    /// Gives the middle node one Data message of each of `flows` and measures until it has sent the onward
    /// messages; the messages themselves are made before the clock starts.
    pub(super) fn data(
        &mut self,
        flows: impl Iterator<Item = Flow>,
        made: &mut Vec<u8>,
        cost: &mut Meter,
    ) -> Result<()> {
        let template = self.template.as_ref().context("no Data message was seen yet")?;
        let size = template.payload.len();
        made.clear();
        for flow in flows {
            let start = made.len();
            made.extend_from_slice(&template.payload);
            let mut put = |at: usize, octets: &[u8]| {
                if let Some(room) = made.get_mut(start + at..start + at + octets.len()) {
                    room.copy_from_slice(octets);
                }
            };
            put(template.session_at, &flow.session.0);
            put(template.ports_at, &flow.ports());
        }
        self.sent.clear();
        let count = made.len() / size.max(1);
        cost.add(timed("Data", || {
            // As the driver of a daemon, which receives many datagrams at once.
            let (mut ahead, mut prepared) = (made.chunks_exact(size).map(|payload| (ENTRY, payload)), 0);
            for payload in made.chunks_exact(size) {
                if prepared == 0 {
                    prepared = self.middle.prepare(&mut ahead);
                }
                prepared -= 1;
                let received = Received {
                    entry: ENTRY,
                    src: template.src,
                    dst: template.dst,
                    ifindex: UP,
                    ttl: template.ttl,
                    tos: template.tos,
                    options: &[],
                    payload,
                };
                self.middle.handle(self.now, Input::Packet(received));
                drain_middle(&mut self.middle, self.now, &mut self.sent);
            }
            Ok(u64::try_from(count)?)
        })?);
        let onward = self
            .sent
            .arriving(UP)
            .filter(|(kind, packet)| *kind == Kind::Data && packet.dst.ip() == DOWNSTREAM);
        let onward = onward.count();
        ensure!(onward == count && self.sent.len() == count, "{onward} of {count} Data messages went on");
        Ok(())
    }
}

fn route(ifindex: IfIndex, src: IpAddr, gateway: Option<IpAddr>, local: bool) -> Route {
    Route { ifindex, src, gateway, mtu: MTU, local }
}

fn drain_middle(node: &mut Node, now: Time, sent: &mut Post) {
    while let Some(output) = node.poll() {
        if let Output::Transmit(packet) = output {
            sent.push(&packet, MIDDLE_UP);
        } else if let Output::RouteLookup { id, query } = output {
            let result = Ok(middle_route(&query));
            node.handle(now, Input::Route { id, result });
        }
    }
}

fn middle_route(query: &RouteQuery) -> Route {
    if query.dst == UPSTREAM {
        route(UP, MIDDLE_UP, None, false)
    } else {
        route(DOWN, MIDDLE_DOWN, None, false)
    }
}

/// Returns how many pings came back from the end of their flow.
fn drain_up(node: &mut Node, now: Time, flows: &mut [Flow], sent: &mut Post) -> Result<usize> {
    let mut done = 0;
    while let Some(output) = node.poll() {
        if let Output::Transmit(packet) = output {
            sent.push(&packet, UPSTREAM);
        } else if let Output::RouteLookup { id, .. } = output {
            let result = Ok(route(UP, UPSTREAM, Some(MIDDLE_UP), false));
            node.handle(now, Input::Route { id, result });
        } else if let Output::Event(Event::Ping { id, event }) = output {
            match event {
                PingEvent::Started { session, .. } => {
                    let flow = usize::try_from(id).ok().and_then(|id| flows.get_mut(id));
                    flow.context("an event of a ping that was not started")?.session = session;
                }
                PingEvent::Reply(reply) => done += usize::from(reply.reached_end && reply.hops.len() == 2),
                PingEvent::Refused(why) => bail!("ping refused: {why}"),
                PingEvent::Lost { reason, .. } => bail!("ping lost: {reason}"),
                PingEvent::Done { .. } => {}
            }
        }
    }
    Ok(done)
}

fn drain_down(node: &mut Node, now: Time, sent: &mut Post) {
    while let Some(output) = node.poll() {
        if let Output::Transmit(packet) = output {
            sent.push(&packet, DOWNSTREAM);
        } else if let Output::RouteLookup { id, query } = output {
            let here = query.dst == DOWNSTREAM;
            let gateway = Some(MIDDLE_DOWN).filter(|gateway| !here && *gateway != query.dst);
            let result = Ok(route(UP, DOWNSTREAM, gateway, here));
            node.handle(now, Input::Route { id, result });
        }
    }
}

/// A node that holds this many sessions and sends as fast as it is asked. Its identity stays when it is made
/// again; its seed does not, since session identifiers come from it.
fn node(sessions: u32, identity: &str, seeds: &mut Random) -> Result<Node> {
    let mut gist = GistConfig::default();
    gist.engine.identity = identity.as_bytes().to_vec();
    gist.engine.max_sessions = sessions;
    gist.engine.dmode_rate = 0;
    gist.engine.intercept_rate = 0;
    gist.engine.query_rate_per_source = 0;
    gist.engine.max_sessions_per_source = 0;
    let config = Config { wall_clock_us: WALL_CLOCK_US, gist: Some(gist), ..Config::default() };
    Ok(Node::new(config, seeds.array())?)
}
