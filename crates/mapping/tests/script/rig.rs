//! A server with one interface inside, and hosts that ask it.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::entry::Entry;
use signalbox_core::node::Interface;
use signalbox_core::packet::Received;
use signalbox_core::{IfIndex, Time};
pub(crate) use signalbox_mapping::engine::{
    Change, Command, Config, Counters, Event, Failure, Input, Inside, Mapper, MappingId, Output, State,
    Wanted,
};
pub(crate) use signalbox_mapping::wire::{
    Body, Filter, Known, Map, NatPmpRequest, NatPmpResponse, NatPmpResult, Options, Request, Response,
    ResultCode, Transport,
};
use signalbox_wire::Writer;

/// The interface inside, and one outside.
pub(crate) const INSIDE: IfIndex = IfIndex(2);
pub(crate) const OUTSIDE: IfIndex = IfIndex(3);
pub(crate) const NONCE: [u8; 12] = [7; 12];

/// What left the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Datagram { to: SocketAddr, from: SocketAddr, ifindex: Option<IfIndex>, octets: Vec<u8> },
    Open(MappingId, Wanted),
    Close(MappingId),
    Event(u64, Event),
}

pub(crate) struct Rig {
    pub(crate) mapper: Mapper,
    pub(crate) now: Time,
}

pub(crate) fn config() -> Config {
    Config { interfaces: vec!["lan".to_owned()], ..Config::default() }
}

pub(crate) fn interface(ifindex: IfIndex, name: &str, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Interface { ifindex, name: name.to_owned(), up: true, mtu: 1_500, tunnel: false, addresses }
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn place(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The host that asks, and its port.
pub(crate) fn host() -> SocketAddr {
    place("192.168.1.20:40000")
}

impl Rig {
    /// A NAT whose path outward is known, a while after its first announcement.
    pub(crate) fn new(config: Config) -> Self {
        let mut rig = Self::silent(config);
        rig.handle(Input::Outside(Some(Ipv4Addr::new(203, 0, 113, 1))));
        rig.wait(Duration::from_secs(1_000));
        rig
    }

    /// The same at its start, without a path.
    pub(crate) fn silent(config: Config) -> Self {
        let mut rig = Self { mapper: Mapper::new(config, [1; 32]), now: Time::from_secs(10) };
        let lan = interface(INSIDE, "lan", &["192.168.1.1", "2001:db8:1::1", "fe80::1"]);
        let wan = interface(OUTSIDE, "wan", &["203.0.113.1"]);
        rig.handle(Input::Interfaces(&[lan, wan]));
        rig
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) -> Vec<Seen> {
        self.mapper.handle(self.now, input);
        let mut all = Vec::new();
        while let Some(output) = self.mapper.poll() {
            all.push(match output {
                Output::Transmit(packet) => {
                    assert_eq!((packet.entry, packet.src.port()), (Entry::Udp(5351), 5351));
                    let octets = packet.payload.to_vec();
                    Seen::Datagram { to: packet.dst, from: packet.src, ifindex: packet.ifindex, octets }
                }
                Output::Open { id, wanted } => Seen::Open(id, wanted),
                Output::Close { id } => Seen::Close(id),
                Output::Event { id, event } => Seen::Event(id, event),
            });
        }
        all
    }

    /// Lets time pass, serving each timer when it is due. Returns what left, with the time.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<(Time, Seen)> {
        let until = self.now + time;
        let mut all = Vec::new();
        while let Some(due) = self.mapper.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let seen = self.handle(Input::Timer);
            all.extend(seen.into_iter().map(|one| (self.now, one)));
        }
        self.now = until;
        all
    }

    /// A datagram from this host by an interface to an address.
    pub(crate) fn datagram_by(
        &mut self,
        ifindex: IfIndex,
        from: SocketAddr,
        to: &str,
        payload: &[u8],
    ) -> Vec<Seen> {
        let dst = SocketAddr::new(address(to), 5351);
        let (entry, options) = (Entry::Udp(5351), &[][..]);
        let packet = Received { entry, src: from, dst, ifindex, ttl: 64, tos: 0, options, payload };
        self.handle(Input::Packet(packet))
    }

    pub(crate) fn datagram(&mut self, from: SocketAddr, payload: &[u8]) -> Vec<Seen> {
        let to = if from.is_ipv4() { "192.168.1.1" } else { "2001:db8:1::1" };
        self.datagram_by(INSIDE, from, to, payload)
    }

    /// A request; the one answer to it.
    pub(crate) fn answer(&mut self, from: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let mut seen = self.datagram(from, payload);
        assert_eq!(seen.len(), 1, "{seen:?}");
        let Seen::Datagram { to, octets, .. } = seen.remove(0) else { panic!("{seen:?}") };
        assert_eq!(to, from);
        octets
    }

    /// A request of PCP; the result and the lifetime of the answer.
    pub(crate) fn result(&mut self, from: SocketAddr, payload: &[u8]) -> (ResultCode, u32) {
        let octets = self.answer(from, payload);
        (ResultCode(octets[3]), u32::from_be_bytes(octets[4..8].try_into().unwrap()))
    }

    /// A first request: what the path is asked for.
    pub(crate) fn asked(&mut self, from: SocketAddr, payload: &[u8]) -> (MappingId, Wanted) {
        let mut seen = self.datagram(from, payload);
        assert_eq!(seen.len(), 1, "{seen:?}");
        let Seen::Open(id, wanted) = seen.remove(0) else { panic!("{seen:?}") };
        (id, wanted)
    }

    /// The path answers; the datagram that this causes.
    pub(crate) fn opened(&mut self, id: MappingId, result: Result<&str, Failure>) -> Vec<u8> {
        let result = result.map(place);
        let mut seen = self.handle(Input::Opened { id, result });
        assert_eq!(seen.len(), 1, "{seen:?}");
        let Seen::Datagram { octets, .. } = seen.remove(0) else { panic!("{seen:?}") };
        octets
    }

    /// A mapping of PCP that stands at 203.0.113.1 port 50000, for an hour.
    pub(crate) fn standing(&mut self) -> MappingId {
        let (id, _) = self.asked(host(), &Ask::default().octets());
        let answer = self.opened(id, Ok("203.0.113.1:50000"));
        assert_eq!(answer[3], 0);
        id
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.mapper.counters()
    }
}

/// A MAP request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) client: IpAddr,
    pub(crate) lifetime: u32,
    pub(crate) map: Map,
    pub(crate) options: Vec<u8>,
}

impl Default for Ask {
    fn default() -> Self {
        let map = Map { nonce: NONCE, protocol: 6, internal_port: 22_000, external: place("0.0.0.0:0") };
        Self { client: host().ip(), lifetime: 3_600, map, options: Vec::new() }
    }
}

impl Ask {
    pub(crate) fn lifetime(mut self, lifetime: u32) -> Self {
        self.lifetime = lifetime;
        self
    }

    pub(crate) fn port(mut self, port: u16) -> Self {
        self.map.internal_port = port;
        self
    }

    pub(crate) fn protocol(mut self, protocol: u8) -> Self {
        self.map.protocol = protocol;
        self
    }

    pub(crate) fn nonce(mut self, nonce: [u8; 12]) -> Self {
        self.map.nonce = nonce;
        self
    }

    pub(crate) fn wish(mut self, wish: &str) -> Self {
        self.map.external = place(wish);
        self
    }

    pub(crate) fn of(mut self, client: IpAddr) -> Self {
        self.client = client;
        self
    }

    pub(crate) fn option(mut self, option: Known<'_>) -> Self {
        option.encode(&mut Writer::new(&mut self.options));
        self
    }

    /// An option of any code and contents.
    pub(crate) fn raw(mut self, hex: &str) -> Self {
        self.options.extend(signalbox_wire::parse_hex(hex).unwrap());
        self
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        let body = Body::Map(self.map);
        let request =
            Request { lifetime: self.lifetime, client: self.client, body, options: Options::default() };
        request.encode(&mut Writer::new(&mut octets));
        octets.extend(&self.options);
        octets
    }
}

/// A filter for this prefix and port.
pub(crate) fn filter(prefix: &str, port: u16) -> Known<'static> {
    let (address, length) = prefix.split_once('/').unwrap();
    Known::Filter(Filter { prefix: Some(length.parse().unwrap()), port, address: address.parse().unwrap() })
}

/// A NAT-PMP request for a mapping.
pub(crate) fn nat_pmp(
    transport: Transport,
    internal_port: u16,
    external_port: u16,
    lifetime: u32,
) -> Vec<u8> {
    let mut octets = Vec::new();
    let map = NatPmpRequest::Map { transport, internal_port, external_port, lifetime };
    map.encode(&mut Writer::new(&mut octets));
    octets
}
