//! Where hosts and firewalls are: one firewall between all hosts, or two of which each has hosts of its own.

use std::net::IpAddr;

use signalbox_node::natfw::Mapping;

use crate::draw::Draw;
use crate::kernel::{Fate, Packet, Tuple};

/// The host outside of a single firewall, and of the outer one of two.
pub(crate) const OUTSIDE: usize = 1;
/// Some draws have one host less.
pub(crate) const HOSTS: usize = 4;

/// What a node between hosts is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Firewall,
    Nat,
    /// It translates both addresses by a table, lets all of the table pass, and asks no policy.
    TwiceNat,
}

/// A firewall or NAT. The number of an interface is that of its link: as many as its host has, or the number of hosts for the link to
/// the other firewall.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The hosts with a link to it.
    pub(crate) hosts: Vec<usize>,
    /// Its interfaces towards the outside.
    pub(crate) outside: Vec<usize>,
    /// Its addresses.
    pub(crate) own: Vec<IpAddr>,
    /// It is the border of its network.
    pub(crate) edge: bool,
    pub(crate) role: Role,
}

/// The network of a draw.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) hosts: Vec<IpAddr>,
    pub(crate) places: Vec<Place>,
    /// The addresses of both firewalls on the link between them.
    pub(crate) between: Vec<IpAddr>,
}

/// The address at one end of a link, as the simulator numbers them.
pub(crate) fn address(ipv6: bool, link: usize, end: u8) -> IpAddr {
    let number = u8::try_from(link).unwrap();
    match ipv6 {
        true => [0xfd00, 0, 0, number.into(), 0, 0, 0, end.into()].into(),
        false => [10, 0, 0, 4 * number + end].into(),
    }
}

impl Network {
    /// One firewall or, if there may be `two`, one behind another, or one at each side of the link between them. `twice`: one of two may
    /// be a twice-NAT.
    pub(crate) fn draw(draw: &mut Draw, ipv6: bool, two: bool, twice: bool) -> Self {
        let number = HOSTS - usize::from(draw.percent(60));
        let all: Vec<_> = (0..number).collect();
        let (inner, outer): (Vec<_>, Vec<_>) = all.iter().partition(|at| *at % 2 == 0);
        // Without the fourth host, the outer one of two has nothing inside but the inner one.
        let sides: &[(Vec<usize>, Vec<usize>)] = match draw.below(if two { 100 } else { 60 }) {
            0..60 => &[(all, vec![OUTSIDE])],
            60..85 => &[(inner, vec![number]), (outer, vec![OUTSIDE])],
            _ => &[(inner, vec![number]), (outer, vec![number])],
        };
        let two = sides.len() == 2;
        let twice = (two && twice && draw.percent(30)).then(|| draw.below(2));
        let between = (1..=2).filter(|_| two).map(|end| address(ipv6, number, end)).collect();
        let role = |draw: &mut Draw, end: u8| match twice {
            Some(at) if at + 1 == u64::from(end) => Role::TwiceNat,
            _ if draw.percent(40) && !ipv6 => Role::Nat,
            _ => Role::Firewall,
        };
        let places = (1..).zip(sides).map(|(end, (hosts, outside))| Place {
            hosts: hosts.clone(),
            outside: outside.clone(),
            own: [false, true]
                .into_iter()
                .flat_map(|ipv6| {
                    let to_hosts = hosts.iter().map(move |host| address(ipv6, *host, 1));
                    to_hosts.chain(two.then(|| address(ipv6, number, end)))
                })
                .collect(),
            edge: draw.percent(50),
            role: role(draw, end),
        });
        let places = places.collect();
        Self { hosts: (0..number).map(|host| address(ipv6, host, 2)).collect(), places, between }
    }

    /// The number of interfaces, as far as their numbers go.
    pub(crate) const fn interfaces(&self) -> usize {
        self.hosts.len() + 1
    }

    /// All addresses that a request, a rule or a token can name.
    pub(crate) fn named(&self) -> Vec<IpAddr> {
        [&self.hosts[..], &self.between].concat()
    }

    /// One of them, as some node knows it.
    pub(crate) fn one(&self, draw: &mut Draw) -> IpAddr {
        let one = draw.one(&self.named());
        if self.twice().is_some() && draw.percent(50) { self.alias(one) } else { one }
    }

    /// The host with an address.
    pub(crate) fn host_at(&self, address: IpAddr) -> Option<usize> {
        self.hosts.iter().position(|one| *one == address)
    }

    /// The firewall of a host.
    pub(crate) fn place_of(&self, host: usize) -> usize {
        self.places.iter().position(|place| place.hosts.contains(&host)).unwrap()
    }

    /// The interface of a firewall by which it reaches an address; `None`: the address is its own, or that of no one.
    pub(crate) fn interface(&self, at: usize, address: IpAddr) -> Option<usize> {
        let mut known_as = self.named().into_iter().filter(|_| self.twice().is_some());
        let address = known_as.find(|real| self.alias(*real) == address).unwrap_or(address);
        let host = self.host_at(address);
        match host.filter(|host| self.places[at].hosts.contains(host)) {
            Some(host) => Some(host),
            None if self.places[at].own.contains(&address) => None,
            None => {
                let other = host.is_some() || self.places.iter().any(|place| place.own.contains(&address));
                (other && self.places.len() > 1).then_some(self.hosts.len())
            }
        }
    }

    /// Whether an interface leads to the outside.
    pub(crate) fn is_outside(&self, at: usize, interface: Option<usize>) -> bool {
        interface.is_some_and(|interface| self.places[at].outside.contains(&interface))
    }

    /// The address of the node from which a firewall gets the messages of a host.
    pub(crate) fn neighbor(&self, at: usize, host: usize) -> IpAddr {
        if self.places[at].hosts.contains(&host) { self.hosts[host] } else { self.between[1 - at] }
    }

    /// Whether a host is inside of its firewall.
    pub(crate) fn is_within(&self, host: usize) -> bool {
        !self.places[self.place_of(host)].outside.contains(&host)
    }

    /// A host towards the outside of a host's firewall.
    pub(crate) fn beyond(&self, host: usize) -> IpAddr {
        let towards = if self.place_of(host) == self.place_of(OUTSIDE) && self.is_within(OUTSIDE) {
            0
        } else {
            OUTSIDE
        };
        self.hosts[towards]
    }

    /// Whether the requests of a host come to a firewall from its inside.
    pub(crate) fn comes_from_inside(&self, at: usize, host: usize) -> bool {
        !self.is_outside(at, self.interface(at, self.neighbor(at, host)))
    }

    /// The border at which requests of a host end that do not leave its network.
    pub(crate) fn border_of(&self, host: usize) -> Option<usize> {
        let first = self.place_of(host);
        let mut on_the_way = [first, 1 - first.min(1)].into_iter().take(self.places.len());
        on_the_way.find(|at| {
            let place = &self.places[*at];
            place.edge && place.role != Role::TwiceNat && self.comes_from_inside(*at, host)
        })
    }

    /// The firewalls to which a request of a host may come that is for packets between these ends; `None`: for any from outside.
    pub(crate) fn way(&self, host: usize, ends: Option<[IpAddr; 2]>) -> Vec<usize> {
        let first = self.place_of(host);
        let next = ends.map_or((self.places.len() > 1).then(|| 1 - first), |[_, dst]| self.next(first, dst));
        [Some(first), next].into_iter().flatten().collect()
    }

    /// Whether an address is that of a NAT, which says nothing about the host behind it.
    pub(crate) fn is_of_nat(&self, address: IpAddr) -> bool {
        self.places.iter().any(|place| place.role == Role::Nat && place.own.contains(&address))
    }

    /// The address by which hosts on the other side of a twice-NAT know an address.
    pub(crate) fn alias(&self, address: IpAddr) -> IpAddr {
        let number = self.named().iter().position(|one| *one == address).map_or(0, |at| at + 1);
        let number = u8::try_from(number).unwrap();
        if address.is_ipv4() {
            [10, 200, 0, number].into()
        } else {
            [0xfd01, 0, 0, 0, 0, 0, 0, number.into()].into()
        }
    }

    /// The twice-NAT.
    pub(crate) fn twice(&self) -> Option<usize> {
        self.places.iter().position(|place| place.role == Role::TwiceNat)
    }

    /// Whether an address is inside of the twice-NAT.
    fn is_inside_of(&self, twice: usize, address: IpAddr) -> bool {
        !self.is_outside(twice, self.interface(twice, address))
    }

    /// The address by which a host knows another one.
    pub(crate) fn known_to(&self, host: usize, address: IpAddr) -> IpAddr {
        let own = self.hosts[host];
        let differs = |twice: &usize| self.is_inside_of(*twice, own) != self.is_inside_of(*twice, address);
        self.twice().filter(differs).map_or(address, |_| self.alias(address))
    }

    /// The table of a twice-NAT.
    pub(crate) fn mappings(&self, twice: usize) -> Vec<Mapping> {
        let all = self.named().into_iter().filter(|address| !self.places[twice].own.contains(address));
        let mapping = |address| {
            if self.is_inside_of(twice, address) {
                Mapping { inside: address, outside: self.alias(address) }
            } else {
                Mapping { inside: self.alias(address), outside: address }
            }
        };
        all.map(mapping).collect()
    }

    /// What a twice-NAT does with a packet.
    pub(crate) fn translate(&self, twice: usize, packet: &Packet) -> Fate {
        let tuple = packet.tuple();
        let outward = self.is_inside_of(twice, tuple.src);
        let mapped = |address: IpAddr| {
            let mappings = self.mappings(twice);
            let ends = mappings.into_iter().map(|one| (one.inside, one.outside));
            let mut ends =
                ends.map(|(inside, outside)| if outward { (inside, outside) } else { (outside, inside) });
            ends.find(|(from, _)| *from == address).map(|(_, to)| to)
        };
        match (mapped(tuple.src), mapped(tuple.dst)) {
            (Some(src), Some(dst)) => Fate::Passed(Packet::new(Tuple { src, dst, ..tuple }, packet.mark)),
            _ => Fate::Dropped,
        }
    }

    /// The firewall that a packet comes to; `None`: no other.
    pub(crate) fn next(&self, at: usize, address: IpAddr) -> Option<usize> {
        (self.interface(at, address) == Some(self.hosts.len()) && self.places.len() > 1).then(|| 1 - at)
    }
}
