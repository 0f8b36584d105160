//! The server under anything.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::entry::Entry;
use signalbox_core::node::Interface;
use signalbox_core::packet::Received;
use signalbox_core::{IfIndex, Time};
use signalbox_wire::Reader;

use crate::engine::{Change, Config, Failure, Input, Mapper, MappingId, Output};
use crate::wire::MAX_OCTETS;

const LAN: IfIndex = IfIndex(2);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1));

/// Reads octets as steps: requests of four hosts, answers and reports of the path, and time that passes. Answers are no longer than a
/// message may be, each mapping is asked for once at a time, what was closed is not spoken of again, and at the end of all lifetimes nothing is
/// left.
///
/// # Panics
/// If one of these properties does not hold.
pub fn engine(octets: &[u8]) {
    let mut world = World::new();
    let mut r = Reader::new(octets);
    while world.step(&mut r).is_ok() {}
    world.end();
}

struct World {
    mapper: Mapper,
    now: Time,
    /// Mappings of which the path was asked and has not answered.
    asked: Vec<MappingId>,
    /// Mappings that the path granted.
    open: Vec<MappingId>,
}

impl World {
    fn new() -> Self {
        let limits = Config { max_mappings: 16, max_of_host: 6, ..Config::default() };
        let config = Config { interfaces: vec!["lan".to_owned()], ..limits };
        let mut world = Self {
            mapper: Mapper::new(config, [3; 32]),
            now: Time::ZERO,
            asked: Vec::new(),
            open: Vec::new(),
        };
        let addresses = vec![LOCAL];
        let lan = Interface {
            ifindex: LAN,
            name: "lan".to_owned(),
            up: true,
            mtu: 1_500,
            tunnel: false,
            addresses,
        };
        world.handle(Input::Interfaces(&[lan]));
        world
    }

    fn handle(&mut self, input: Input<'_>) {
        let Self { mapper, now, asked, open } = self;
        mapper.handle(*now, input);
        while let Some(output) = mapper.poll() {
            match output {
                Output::Transmit(packet) => {
                    assert!(packet.payload.len() <= MAX_OCTETS && packet.payload.len() >= 4);
                    assert_eq!(packet.ifindex, Some(LAN));
                }
                Output::Open { id, .. } => {
                    assert!(!asked.contains(&id), "asked twice at a time");
                    open.retain(|one| *one != id);
                    asked.push(id);
                }
                Output::Close { id } => {
                    assert!(asked.contains(&id) || open.contains(&id), "closed twice, or never opened");
                    asked.retain(|one| *one != id);
                    open.retain(|one| *one != id);
                }
                Output::Event { .. } => {}
            }
        }
        assert!(self.mapper.len() <= 16);
        assert!(self.asked.len() + self.open.len() <= 16 + 16, "{} {}", self.asked.len(), self.open.len());
    }

    fn step(&mut self, r: &mut Reader<'_>) -> Result<(), signalbox_wire::Short> {
        let kind = r.u8()?;
        match kind % 8 {
            0..=3 => {
                let length = usize::from(r.u8()?);
                let payload = r.take(length.min(r.left()))?.to_vec();
                self.request(kind % 4, payload);
            }
            4 => {
                let place = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), r.u16()?);
                self.answer(kind, Ok(place));
            }
            5 => self.answer(kind, Err(if kind & 8 == 0 { Failure::NoPath } else { Failure::Filters })),
            6 => {
                let change = if kind & 8 == 0 {
                    Change::Lost
                } else {
                    Change::Moved(SocketAddr::new(LOCAL, r.u16()?))
                };
                let at = usize::from(kind >> 4) % self.open.len().max(1);
                if let Some(id) = self.open.get(at).copied() {
                    // No node of the path has a lost one.
                    self.open.retain(|one| *one != id || change != Change::Lost);
                    self.handle(Input::Changed { id, change });
                }
            }
            _ => {
                let time = Duration::from_millis(u64::from(r.u8()?) * u64::from(kind));
                self.pass(time);
            }
        }
        Ok(())
    }

    fn request(&mut self, host: u8, mut payload: Vec<u8>) {
        let address = Ipv4Addr::new(192, 168, 1, 10 + host);
        // Most requests name their sender.
        if payload.first() == Some(&2)
            && let Some(field) = payload.get_mut(8..24)
        {
            field.copy_from_slice(&address.to_ipv6_mapped().octets());
        }
        let src = SocketAddr::new(IpAddr::V4(address), 4_000);
        let (entry, dst) = (Entry::Udp(5351), SocketAddr::new(LOCAL, 5351));
        let packet =
            Received { entry, src, dst, ifindex: LAN, ttl: 64, tos: 0, options: &[], payload: &payload };
        self.handle(Input::Packet(packet));
    }

    fn answer(&mut self, kind: u8, result: Result<SocketAddr, Failure>) {
        let at = usize::from(kind >> 4) % self.asked.len().max(1);
        if self.asked.is_empty() {
            return;
        }
        let id = self.asked.remove(at);
        if result.is_ok() {
            self.open.push(id);
        }
        self.handle(Input::Opened { id, result });
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut rounds = 0;
        while let Some(due) = self.mapper.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.handle(Input::Timer);
            rounds += 1;
            assert!(rounds < 1_000_000, "timers without end");
        }
        self.now = until;
    }

    fn end(&mut self) {
        self.pass(Duration::from_secs(90_000));
        assert_eq!(self.mapper.len(), 0, "a mapping outlives its lifetime");
        assert!(self.asked.is_empty() && self.open.is_empty(), "something stays open on the path");
    }
}
