//! A seeded adversary beside honest sessions. It sends any packet by a link of its own or by that of an honest neighbor:
//! forged messages of all types, messages of honest nodes again, and these with other sources, sessions and octets.
//! `SIGNALBOX_SEEDS` in the environment is the number of seeds; `SIGNALBOX_ADVERSARY` is one seed to be run alone.
//!
//! By a link of its own it harms no honest session: standing sessions stay and new ones are set up. If it cannot read the other
//! links, every Ping message has its reply too. If it can, the router has to filter forged sources for the applications of
//! GIST, and for CASP over datagrams; RSVP and Boomerang
//! need such filters, or authentication, in any case (docs/security.md). On the link of an honest neighbor it can do what any node on that link can
//! do; when it has ended, new sessions are set up, and standing ones are whole or their users have an event. Everywhere the
//! number of outputs of one packet, the tables and the octets that leave to forged sources are bounded.

use core::time::Duration;

use signalbox_core::rng::Random;
use signalbox_node::boomerang::{BoomerangEvent, DomainKey, Integrity};
use signalbox_node::casp::{
    Command as CaspCommand, Event as CaspEvent, NatfwConfig, PassageEvent, Transport,
};
use signalbox_node::natfw::NatfwEvent;
use signalbox_node::ping::PingEvent;
use signalbox_node::qos::QosEvent;
use signalbox_node::rsvp::neighbor::{Algorithm, KeyUse};
use signalbox_node::rsvp::{IntegrityKey, Secret};
use signalbox_node::{Command, Config, Event};
use signalbox_sim::{LinkId, Packet};

use super::catalogue::{self, Sample};
use super::net::{MS, Net, SECOND, config, forged, from_elsewhere, silent, with_checksum};

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 50;
/// Added to the seed of a network: the recorded samples have the session identifiers of low seeds, which the adversary
/// cannot know.
const SEED: u64 = 1000;
/// How long the adversary sends.
const ATTACK: Duration = Duration::from_secs(12);
/// The mean time between two packets of it.
const PACE: Duration = Duration::from_millis(6);
/// After the attack everything is whole within this time.
const RECOVERY: Duration = Duration::from_secs(40);
/// The most outputs of one packet.
const OUTPUTS: usize = 64;
/// The tables are so small that the adversary can fill them.
const TABLE: u32 = 256;

/// Where the adversary sends from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A link of its own.
    Side,
    /// The link of an honest neighbor.
    Link,
}

fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[usize::try_from(random.range(0..from.len() as u64)).unwrap()]
}

/// Short timers and small tables.
fn small(random: &mut Random, integrity: bool) -> Config {
    let mut config = config();
    let gist = crate::net::gist(&mut config);
    (gist.validity, gist.inactivity) = (5 * SECOND, 10 * SECOND);
    (gist.max_sessions, gist.max_peers) = (TABLE, TABLE);
    gist.associations.always = random.chance(0.3);
    if let Some(qos) = &mut config.qos {
        qos.refresh = 2 * SECOND;
        qos.max_sessions = TABLE;
    }
    if let Some(rsvp) = &mut config.rsvp {
        rsvp.interface.refresh = SECOND;
        (rsvp.max_sessions, rsvp.max_senders, rsvp.max_reservations) = (TABLE, TABLE, TABLE);
        let neighbors = &mut rsvp.neighbors.interface;
        neighbors.reduction.reliable = random.chance(0.5);
        if integrity {
            (neighbors.integrity.sending, neighbors.integrity.receiving) = (true, true);
            rsvp.keys = vec![IntegrityKey {
                id: 1,
                algorithm: Algorithm::HmacSha256,
                secret: Secret::new(*b"known to all"),
                usage: KeyUse::Both,
                interface: None,
                neighbor: None,
                from: 0,
                until: None,
            }];
        }
    }
    if let Some(natfw) = &mut config.natfw {
        natfw.refresh = 2 * SECOND;
        natfw.max_sessions = TABLE;
    }
    if let Some(boomerang) = &mut config.boomerang {
        (boomerang.refresh, boomerang.max_refresh) = (2, 4);
        (boomerang.max_flows, boomerang.max_sessions) = (TABLE, TABLE);
        if integrity {
            let key = DomainKey {
                id: 1,
                secret: Secret::new(*b"known to all"),
                signs: true,
                verifies: true,
                from: 0,
                until: None,
            };
            boomerang.integrity =
                Integrity { sign: true, require: true, keys: vec![key], ..Integrity::default() };
        }
    }
    if let Some(casp) = &mut config.casp {
        casp.engine.refresh = 2 * SECOND;
        (casp.engine.max_sessions, casp.engine.max_searches) = (TABLE, TABLE);
        casp.natfw = Some(NatfwConfig { max_sessions: TABLE, ..NatfwConfig::default() });
        casp.engine.transport = if random.chance(0.5) { Transport::Udp } else { Transport::Tcp };
    }
    config
}

struct World {
    net: Net,
    random: Random,
    place: Place,
    integrity: bool,
    /// The router drops packets with the addresses of other links, as `rp_filter` and BCP 38 do.
    filtered: bool,
    /// The adversary reads all links.
    reads: bool,
    /// CASP sends datagrams.
    datagrams: bool,
    /// The number of captured packets that the adversary has read.
    read: usize,
    recorded: Vec<Packet>,
    /// Octets that it sent.
    sent: usize,
    /// Packets that it sent.
    packets: u32,
}

impl World {
    fn new(seed: u64, place: Place) -> Self {
        let mut random = Random::from_number(seed);
        let [integrity, filtered, reads] = [0; 3].map(|_| random.chance(0.5));
        let config = small(&mut random, integrity);
        let datagrams = config.casp.as_ref().is_some_and(|casp| casp.engine.transport == Transport::Udp);
        let net = Net::new(SEED + seed, &config);
        Self {
            net,
            random,
            place,
            integrity,
            filtered,
            reads,
            datagrams,
            read: 0,
            recorded: Vec::new(),
            sent: 0,
            packets: 0,
        }
    }

    /// Reads what passed since the last time.
    fn listen(&mut self) {
        if !self.reads {
            return;
        }
        let new: Vec<_> = self.net.sim.captured().skip(self.read).cloned().collect();
        self.read += new.len();
        let side = self.net.side;
        self.recorded.extend(new.into_iter().filter(|one| one.link != side).map(|one| one.packet));
        let excess = self.recorded.len().saturating_sub(200);
        self.recorded.drain(..excess);
    }

    /// Draws a packet.
    fn draw(&mut self, samples: &[Sample]) -> Packet {
        let random = &mut self.random;
        let mut packet = if self.recorded.is_empty() || random.chance(0.5) {
            pick(random, samples).packet.clone()
        } else {
            pick(random, &self.recorded).clone()
        };
        if random.chance(0.4) {
            packet = from_elsewhere(&packet, forged(random.u32()));
        }
        if random.chance(0.4) {
            // Another session of RSVP, Boomerang or CASP, or another flow.
            let port: [u8; 2] = random.array();
            for known in BEFORE.into_iter().chain(MEANWHILE) {
                replace(&mut packet.payload, known.to_be_bytes(), port);
            }
        }
        if random.chance(0.4) {
            // Another session of GIST: its identifier stands behind its TLV header.
            let new: [u8; 16] = random.array();
            if let Some(at) = packet.payload.windows(4).position(|four| four == [0, 1, 0, 4])
                && let Some(session) = packet.payload.get_mut(at + 4..at + 20)
            {
                session.copy_from_slice(&new);
            }
        }
        if random.chance(0.3) {
            for _ in 0..1 + random.range(0..4) {
                let length = packet.payload.len() as u64;
                if length > 0 {
                    let at = usize::try_from(random.range(0..length)).unwrap();
                    packet.payload[at] = random.array::<1>()[0];
                }
            }
        }
        if random.chance(0.1) {
            packet.ttl = random.array::<1>()[0].max(1);
        }
        if random.chance(0.05) {
            let keep = random.range(0..packet.payload.len() as u64 + 1);
            packet.payload.truncate(usize::try_from(keep).unwrap());
        }
        with_checksum(packet)
    }

    fn attack(&mut self, samples: &[Sample]) {
        let link: LinkId = match self.place {
            Place::Side => self.net.side,
            Place::Link => *pick(&mut self.random, &[self.net.up, self.net.down]),
        };
        // Some packets come alone, some in a burst.
        for _ in 0..if self.random.chance(0.02) { 50 } else { 1 } {
            let packet = self.draw(samples);
            self.sent += packet.size();
            self.packets += 1;
            if !(self.filtered && self.place == Place::Side && is_honest(&packet)) {
                let router = self.net.router;
                self.net.sim.inject(link, router, packet);
            }
        }
        let pause = PACE.mul_f64(2.0 * self.random.unit());
        self.net.sim.run_for(pause);
    }

    /// What must hold at every moment.
    fn check(&self) {
        let host = self.net.sim.engine(self.net.router).unwrap();
        let fault = |what: &str| {
            format!(
                "{what}, by {:?}, integrity {}, seed {}",
                self.place,
                self.integrity,
                self.net.sim.seed() - SEED
            )
        };
        assert!(host.most <= OUTPUTS, "{}", fault(&format!("{} outputs of one packet", host.most)));
        let rsvp = host.node.rsvp().unwrap();
        for count in [rsvp.sessions(), rsvp.senders(), rsvp.reservations()] {
            assert!(usize::try_from(count).unwrap() <= TABLE as usize, "{}", fault("RSVP's tables"));
        }
        assert!(host.node.session_count() <= 2 * TABLE as usize, "{}", fault("sessions"));
        let (natfw, boomerang) = (host.node.natfw().unwrap(), host.node.boomerang().unwrap());
        let casp = host.node.casp().unwrap();
        let passages = host.node.casp_firewall().unwrap().sessions();
        for count in [natfw.session_count(), boomerang.session_count(), casp.session_count(), passages] {
            assert!(count <= 2 * TABLE, "{}", fault("the tables of NATFW, Boomerang or CASP"));
        }
    }

    /// Octets that the router sent to forged sources.
    fn returned(&self) -> usize {
        let router = self.net.router;
        let strange = self.net.sim.captured().filter(|one| one.from == router && one.link == self.net.side);
        strange.map(|one| one.packet.size()).sum()
    }

    /// The number of Ping messages with a reply.
    fn replies(&self) -> usize {
        let all = self.net.sim.events().iter();
        all.filter(|one| matches!(&one.event, Event::Ping { event: PingEvent::Reply(_), .. })).count()
    }

    /// Whether the last event of a request by the QoS NSLP, the NATFW NSLP, Boomerang or CASP is another than its grant.
    fn has_ended(&self, port: u16) -> bool {
        let granted = self.net.sim.events().iter().rev().find_map(|one| match &one.event {
            Event::Qos { id, event } if *id == u64::from(port) => {
                Some(matches!(**event, QosEvent::Granted(_)))
            }
            Event::Natfw { id, event } if *id == u64::from(port) => {
                Some(matches!(event, NatfwEvent::Granted(_)))
            }
            Event::Boomerang { id, event } if *id == u64::from(port) => {
                Some(matches!(event, BoomerangEvent::Reserved { .. }))
            }
            Event::Casp { id, event: CaspEvent::Passage(event) } if *id == u64::from(port) => {
                Some(matches!(event, PassageEvent::Granted { .. }))
            }
            _ => None,
        });
        granted != Some(true)
    }

    /// Sets up a session of each protocol.
    fn open(&mut self, [qos, rsvp, natfw, boomerang, casp, passage]: Sessions) {
        self.net.reserve(qos);
        self.net.rsvp_reserve(rsvp);
        self.net.passage(natfw);
        self.net.boomerang(boomerang);
        self.net.casp(casp, false);
        self.net.casp_passage(passage);
    }

    /// Which of these sessions live at the router.
    fn live(&self, [qos, rsvp, natfw, boomerang, casp, passage]: Sessions) -> [bool; 6] {
        let held = |port: u16| self.net.held(port..port + 1) == 1;
        let (natfw, casp) = (self.net.is_open(natfw), self.net.is_known_to_casp(casp));
        [held(qos), held(rsvp), natfw, self.net.holds(boomerang), casp, self.net.is_open(passage)]
    }

    /// Which of these sessions do not live although they should.
    fn harmed(&self, sessions: Sessions) -> Vec<&'static str> {
        let (datagrams, authenticated) = (self.filtered || !self.reads, self.filtered || self.integrity);
        let safe = [
            ("QoS", datagrams),
            ("RSVP", authenticated),
            ("NATFW", datagrams),
            ("Boomerang", authenticated),
            ("CASP", datagrams || !self.datagrams),
            ("a passage of CASP", datagrams || !self.datagrams),
        ];
        let all = self.live(sessions).into_iter().zip(safe);
        all.filter(|(lives, (_, safe))| *safe && !lives).map(|(_, (name, _))| name).collect()
    }

    fn says(&self, what: &str) -> String {
        let Self { place, integrity, filtered, reads, datagrams, packets, .. } = self;
        let held = [BEFORE, MEANWHILE, AFTER].map(|sessions| self.live(sessions));
        let events = self.net.sim.events().iter().rev();
        let last: Vec<_> = events.filter(|one| !matches!(one.event, Event::Ping { .. })).take(6).collect();
        let (now, seed) = (self.net.sim.now(), self.net.sim.seed() - SEED);
        format!(
            "{what}: by {place:?}, integrity {integrity}, filtered {filtered}, reads {reads}, CASP's datagrams {datagrams}, \
             {packets} packets, held {held:?}, at {now}, \
             seed {seed}; last events, the newest first: {last:?}"
        )
    }
}

/// Whether the source is an address of the honest links.
fn is_honest(packet: &Packet) -> bool {
    matches!(packet.src.ip(), core::net::IpAddr::V4(src) if src.octets()[0] == 10)
}

/// Puts two octets in the place of two others.
fn replace(octets: &mut [u8], old: [u8; 2], new: [u8; 2]) {
    let mut rest = octets;
    while let Some(at) = rest.windows(2).position(|two| two == old) {
        rest[at..at + 2].copy_from_slice(&new);
        rest = &mut rest[at + 2..];
    }
}

/// The ports of sessions of the QoS NSLP, RSVP, the NATFW NSLP, Boomerang and CASP, and of a passage of CASP.
type Sessions = [u16; 6];

/// The sessions of one run: before the attack, in its middle and after it.
const BEFORE: Sessions = [7001, 7003, 7005, 7007, 7009, 7031];
const MEANWHILE: Sessions = [7011, 7013, 7015, 7017, 7019, 7033];
const AFTER: Sessions = [7021, 7023, 7025, 7027, 7029, 7035];

fn run(seed: u64, place: Place, samples: &[Sample]) {
    let mut world = World::new(seed, place);
    world.open(BEFORE);
    world.net.ping(1, None, 500 * MS);
    world.net.sim.run_for(4 * SECOND);
    assert_eq!(world.live(BEFORE), [true; 6], "{}", world.says("no attack yet"));
    let start = world.net.sim.now();
    let mut opened = false;
    while world.net.sim.now() < start + ATTACK {
        world.listen();
        world.attack(samples);
        world.check();
        if !opened && world.net.sim.now() > start + ATTACK / 3 {
            opened = true;
            world.open(MEANWHILE);
        }
        if place == Place::Side {
            let harmed = world.harmed(BEFORE);
            assert!(harmed.is_empty(), "{}", world.says(&format!("standing sessions ended: {harmed:?}")));
        }
    }
    if place == Place::Side {
        let harmed = world.harmed(MEANWHILE);
        assert!(harmed.is_empty(), "{}", world.says(&format!("new sessions were not set up: {harmed:?}")));
        let returned = world.returned();
        assert!(
            returned * 2 <= world.sent * 3,
            "{}",
            world.says(&format!("{returned} octets for {}", world.sent))
        );
        world.net.sim.run_for(SECOND);
        let span = world.net.sim.now().since(signalbox_core::Time::ZERO);
        let wanted = usize::try_from(span.as_millis() / 500).unwrap() - 2;
        assert!(
            world.reads || world.replies() >= wanted,
            "{}",
            world.says(&format!("{} of {wanted} replies", world.replies()))
        );
        return;
    }
    world.open(AFTER);
    world.net.sim.run_for(RECOVERY);
    assert_eq!(world.live(AFTER), [true; 6], "{}", world.says("no new session after the attack"));
    for sessions in [BEFORE, MEANWHILE] {
        for (at, lives) in world.live(sessions).into_iter().enumerate() {
            let whole = match at {
                // Without INTEGRITY, forged MESSAGE_IDs and lifetimes of RSVP stay as long as the state.
                1 => lives || !world.integrity,
                // A client that holds its session has no event: the session comes back.
                4 => lives,
                _ => lives || world.has_ended(sessions[at]),
            };
            assert!(
                whole,
                "{}",
                world.says(&format!("session {} is not whole, and its user has no event", sessions[at]))
            );
        }
    }
}

/// What the router gets in the life of a passage of CASP over datagrams.
fn passages() -> Vec<Sample> {
    let mut config = silent(false);
    if let Some(casp) = &mut config.casp {
        casp.natfw = Some(NatfwConfig::default());
    }
    let (mut net, port) = (Net::new(1, &config), BEFORE[5]);
    net.casp_passage(port);
    net.sim.run_for(SECOND);
    assert!(net.is_open(port), "{:?}", net.sim.events());
    net.sim.command(net.sender, Command::Casp { id: port.into(), command: CaspCommand::Close });
    net.sim.run_for(SECOND);
    let router = net.router;
    let all = net.sim.captured().filter(|one| one.to == router && one.packet.protocol == 17);
    all.map(|one| {
        let name = catalogue::name(&one.packet);
        Sample { name, packet: one.packet.clone(), link: one.link }
    })
    .collect()
}

fn campaign(place: Place) {
    let samples = [catalogue::all(), passages()].concat();
    if let Ok(seed) = std::env::var("SIGNALBOX_ADVERSARY") {
        return run(seed.parse().unwrap(), place, &samples);
    }
    let seeds = std::env::var("SIGNALBOX_SEEDS").ok().map_or(SEEDS, |text| text.parse().unwrap());
    for seed in 0..seeds {
        run(seed, place, &samples);
    }
}

#[test]
fn an_adversary_on_another_link_does_no_harm() {
    campaign(Place::Side);
}

#[test]
fn what_an_adversary_on_the_link_does_ends_with_it() {
    campaign(Place::Link);
}
