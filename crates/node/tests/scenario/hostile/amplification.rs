//! What leaves a router because of one packet of somebody who has proved nothing, with everything that leaves later for
//! the same reason.
//!
//! `cargo test -p signalbox-node --test scenario amplification -- --nocapture` prints the table of docs/security.md.

#![expect(clippy::print_stdout, reason = "the table is for the reader of the test's output")]

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_gist::wire::MAGIC;
use signalbox_sim::{Captured, LinkId, Packet};

use super::catalogue::{self, Sample};
use super::net::{ICMP, MS, Net, RSVP, SECOND, forged, from_elsewhere, silent, with_checksum};

/// Retransmissions end earlier: Responses are repeated for 64 times T1 at most.
const LATER: Duration = Duration::from_secs(200);

/// Octets that may leave for 100 that came.
const MOST: usize = 150;
/// Packets that may leave because of a message of a neighbor with state.
const NEIGHBORLY: usize = 8;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Somebody some hops away, with a source that is not its own. The router may have state of the same session.
    Stranger,
    /// A node on the link of a neighbor, which uses the neighbor's address. The router has no state of it.
    Unproved,
    /// The neighbor, or a node that uses its address and repeats its messages.
    Neighbor,
}

impl Who {
    const ALL: [Self; 3] = [Self::Stranger, Self::Unproved, Self::Neighbor];

    /// Whether the router has state of the session.
    const fn stands(self) -> &'static [bool] {
        match self {
            Self::Stranger => &[false, true],
            Self::Unproved => &[false],
            Self::Neighbor => &[true],
        }
    }
}

/// What one packet caused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Caused {
    came: usize,
    packets: usize,
    octets: usize,
}

impl Caused {
    const fn percent(self) -> usize {
        if let Some(percent) = (self.octets * 100).checked_div(self.came) { percent } else { 0 }
    }

    fn worse(self, other: Self) -> Self {
        if other.percent() > self.percent() { other } else { self }
    }
}

/// Sends a packet and counts what the router sends from then on.
fn cause(net: &mut Net, link: LinkId, packet: &Packet, span: Duration) -> Caused {
    let router = net.router;
    let before = net.sim.captured().count();
    net.sim.inject(link, router, packet.clone());
    net.sim.run_for(span);
    let sent = net.sim.captured().skip(before).filter(|one| one.from == router && !is_echo(packet, one));
    let (packets, octets) = sent.fold((0, 0), |(n, sum), one| (n + 1, sum + one.packet.size()));
    Caused { came: packet.size(), packets, octets }
}

/// Whether a packet that the router forwards is the far end's reply to a request of Boomerang: every host answers pings.
fn is_echo(request: &Packet, one: &Captured) -> bool {
    let kind = |packet: &Packet| packet.payload.first().filter(|_| packet.protocol == ICMP).copied();
    kind(request) == Some(8) && kind(&one.packet) == Some(0)
}

/// A message of CASP with a cookie that its receiver did not make.
fn without_cookie(mut packet: Packet) -> Packet {
    use signalbox_casp::wire::{Message, Proof};
    let cookie = match Message::parse(&packet.payload) {
        Ok(Message::Signaling(message)) if packet.protocol == 17 => message.proof,
        _ => None,
    };
    if let Some(Proof::Cookie(cookie)) = cookie
        && let Some(at) = packet.payload.windows(8).position(|eight| eight == cookie)
    {
        packet.payload[at] ^= 1;
    }
    packet
}

fn sent_by(who: Who, net: &Net, sample: &Sample) -> (LinkId, Packet) {
    match who {
        Who::Stranger => {
            let mut packet = from_elsewhere(&sample.packet, forged(7));
            packet.ttl = packet.ttl.saturating_sub(3);
            (net.side, packet)
        }
        // The samples come from a network with the same secrets.
        Who::Unproved => (sample.link, with_checksum(without_cookie(sample.packet.clone()))),
        Who::Neighbor => (sample.link, with_checksum(sample.packet.clone())),
    }
}

/// GIST-8.4-01: each message causes one small answer at most.
///
/// A message in the name of a neighbor with state is another matter: it is passed on and answered, and a Response is
/// repeated until it is confirmed.
#[test]
fn amplification_by_one_packet() {
    let samples = catalogue::all();
    let mut table: BTreeMap<&str, BTreeMap<Who, Caused>> = BTreeMap::new();
    for sample in &samples {
        for who in Who::ALL {
            for standing in who.stands() {
                let mut net = Net::new(1, &silent(true));
                if *standing {
                    net.begin_sessions();
                }
                let (link, packet) = sent_by(who, &net, sample);
                let caused = cause(&mut net, link, &packet, LATER);
                let worst = table.entry(&sample.name).or_default().entry(who).or_insert(caused);
                *worst = worst.worse(caused);
            }
        }
    }
    println!("| message | stranger | unproved node on the link | neighbor |\n|---|---|---|---|");
    for (name, row) in &table {
        let text = |who| {
            let caused = row.get(&who).copied().unwrap_or_default();
            let (whole, part) = (caused.percent() / 100, caused.percent() % 100);
            if caused.packets == 0 {
                "-".to_owned()
            } else {
                format!("{whole}.{part:02} ({})", caused.packets)
            }
        };
        println!("| {name} | {} |", Who::ALL.map(text).join(" | "));
    }
    for (name, row) in table {
        for (who, caused) in row {
            let fits = caused.percent() <= MOST || who == Who::Neighbor && caused.packets <= NEIGHBORLY;
            assert!(fits, "{name} of a {who:?}: {caused:?}");
        }
    }
}

/// The same for messages that end early: their Errors are not larger than they are.
#[test]
fn amplification_by_parts_of_messages() {
    let samples = catalogue::all();
    let mut net = Net::new(1, &silent(true));
    let mut worst: Option<(Caused, String)> = None;
    for sample in &samples {
        let (link, whole) = sent_by(Who::Stranger, &net, sample);
        for keep in (0..whole.payload.len()).step_by(4) {
            let mut packet = whole.clone();
            packet.payload.truncate(keep);
            for length in [false, true] {
                fix_length(&mut packet, length);
                let caused = cause(&mut net, link, &packet, 100 * MS);
                if worst.as_ref().is_none_or(|(most, _)| caused.percent() > most.percent()) {
                    worst = Some((caused, format!("{keep} octets of {}", sample.name)));
                }
            }
        }
    }
    let (caused, what) = worst.unwrap();
    println!("{what}: {caused:?}");
    assert!(caused.percent() <= MOST, "{what}: {caused:?}");
}

/// Makes the length in the header that of the packet.
fn fix_length(packet: &mut Packet, fix: bool) {
    let length = packet.payload.len();
    match packet.protocol {
        17 if packet.dst.port() == 270 && fix && length >= MAGIC.len() + 8 => {
            let words = u16::try_from((length - MAGIC.len() - 8) / 4).unwrap().to_be_bytes();
            packet.payload[6..8].copy_from_slice(&words);
        }
        RSVP if fix && length >= 8 => {
            packet.payload[6..8].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {}
    }
    *packet = with_checksum(packet.clone());
}

/// Packets of a second from many forged sources: what answers them is limited, and others are served meanwhile.
#[test]
fn amplification_at_a_high_rate() {
    const PACKETS: u32 = 3000;
    const RATE: u32 = 400;
    let samples = catalogue::all();
    for sample in &samples {
        let mut config = silent(true);
        let gist = crate::net::gist(&mut config);
        (gist.dmode_rate, gist.dmode_by_link) = (RATE, false);
        crate::net::gist(&mut config).dmode_burst = RATE;
        if let Some(casp) = &mut config.casp {
            casp.engine.total_answer_rate = RATE * 4 / 5;
        }
        if let Some(boomerang) = &mut config.boomerang {
            // The policy allows everything: without proofs strangers take the link.
            boomerang.prove = true;
        }
        let mut net = Net::new(1, &config);
        let (router, side) = (net.router, net.side);
        let (mut came, before) = (0, net.sim.captured().count());
        for number in 0..PACKETS {
            let mut packet = sent_by(Who::Stranger, &net, sample).1;
            packet = from_elsewhere(&packet, forged(number));
            fresh_session(&mut packet, number);
            came += packet.size();
            net.sim.inject(side, router, packet);
            net.sim.run_for(SECOND / PACKETS);
        }
        net.sim.run_for(LATER);
        let sent = net.sim.captured().skip(before);
        let sent: Vec<_> = sent.filter(|one| one.from == router && !is_echo(&sample.packet, one)).collect();
        let octets: usize = sent.iter().map(|one| one.packet.size()).sum();
        // What passes on towards its destination is no answer.
        let answers = |one: &&&Captured| {
            net.is_of_router(one.packet.src.ip()) && one.packet.dst.ip() != sample.packet.dst.ip()
        };
        let answered = sent.iter().filter(answers).count();
        assert!(octets * 100 <= came * MOST, "{}: {octets} octets for {came}", sample.name);
        // Half of the burst and of the rate.
        assert!(answered <= RATE as usize + RATE as usize / 10, "{}: {answered} answers", sample.name);
        net.reserve(7101);
        net.rsvp_reserve(7102);
        net.passage(7103);
        net.boomerang(7104);
        net.casp(7105, false);
        net.sim.run_for(5 * SECOND);
        assert_eq!(net.held(7101..7105), 3, "after {}: {:?}", sample.name, net.sim.events());
        assert!(net.is_open(7103), "after {}: {:?}", sample.name, net.sim.events());
        assert!(net.is_known_to_casp(7105), "after {}: {:?}", sample.name, net.sim.events());
    }
}

/// Gives a message of GIST or CASP another session.
fn fresh_session(packet: &mut Packet, number: u32) {
    use signalbox_casp::wire::Message as Casp;
    use signalbox_gist::wire::{Encapsulation, Message};
    let session = match (packet.payload.strip_prefix(&MAGIC), Casp::parse(&packet.payload)) {
        (Some(octets), _) => {
            let session_in = |encapsulation| Message::parse(octets, encapsulation).ok()?.session;
            session_in(Encapsulation::Normal).or_else(|| session_in(Encapsulation::QMode))
        }
        (None, Ok(Casp::Signaling(message))) if packet.protocol == 17 => Some(message.session),
        (None, _) => None,
    };
    let Some(session) = session else { return };
    let at = packet.payload.windows(16).position(|window| window == session.0).unwrap();
    packet.payload[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

impl Net {
    /// Sessions of all protocols that stay.
    fn begin_sessions(&mut self) {
        self.reserve(7001);
        self.ping(1, Some(1), 20 * MS);
        self.rsvp_reserve(7003);
        self.passage(7005);
        self.boomerang(7007);
        self.casp(7009, false);
        self.sim.run_for(5 * SECOND);
        assert_eq!(self.held(7001..7008), 3);
        assert!(self.is_open(7005) && self.is_known_to_casp(7009));
    }

    fn is_of_router(&self, address: IpAddr) -> bool {
        [self.up, self.down, self.side]
            .into_iter()
            .any(|link| self.sim.address_on(self.router, link, signalbox_sim::Family::V4) == address)
    }
}
