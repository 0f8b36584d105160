//! Packets with a composed IP header, which only a raw socket can send. A raw socket sends every packet of every protocol, and
//! Linux limits it by no filter, so the helper keeps these sockets. A daemon writes such packets into a channel, and the
//! helper sends those that the protocols of its configuration need.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use socket2::{Domain, Socket, Type};

use crate::error::OpenError;
use crate::io::{IoConfig, compose, udp};
use crate::sys::mmsg::{self, BATCH, Buffers, Outgoing};
use crate::sys::sockaddr;

/// The channels of a daemon, one for each kind of packet: those with another source port, those to senders that have proved
/// nothing, those with a Router Alert. Packets of one kind that wait for a link-layer address take no room of another.
pub(crate) const CHANNELS: usize = 3;
/// Octets of the interface in front of each packet.
const INTERFACE: usize = size_of::<u32>();
/// Longest message: the interface, a next hop, and the longest IPv6 packet.
const LONGEST: usize = INTERFACE + 17 + 40 + 65_535;
/// Room for control messages that is smaller than the header of one: the kernel then closes each descriptor that a daemon passes.
const NO_RIGHTS: usize = size_of::<usize>();

/// In front of a next hop: its IP version. A packet has its own one in the upper half of its first octet.
const V4: u8 = 4;
const V6: u8 = 6;

const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;

/// What the helper sends by raw sockets, and for which ports.
pub(super) struct Relay {
    ports: Vec<u16>,
    /// The sockets of each kind, IPv4's first.
    sockets: [[Option<Socket>; 2]; CHANNELS],
    buffers: Buffers,
}

impl Relay {
    /// Opens two raw sockets for each kind at most, whatever the number of ports and of daemons.
    pub(super) fn open(ports: Vec<u16>, config: &IoConfig) -> Result<Self, OpenError> {
        let open = |wanted: bool, domain, kind| {
            let wanted = wanted && !ports.is_empty();
            wanted.then(|| udp::open_relayed(domain, config, kind > 0)).transpose()
        };
        let mut sockets = [const { [None, None] }; CHANNELS];
        for (kind, pair) in sockets.iter_mut().enumerate() {
            *pair = [open(config.ipv4, Domain::IPV4, kind)?, open(config.ipv6, Domain::IPV6, kind)?];
        }
        Ok(Self { ports, sockets, buffers: Buffers::new(LONGEST, NO_RIGHTS) })
    }

    /// Sends what waits in the channel of a kind, a limited number of packets, so that other daemons have their turn. False: the
    /// channel has ended.
    pub(super) fn pass(&mut self, kind: usize, channel: &Channel) -> bool {
        let Ok(count) = self.buffers.receive(&channel.0, 0) else { return false };
        for slot in 0..count.min(BATCH) {
            let Some(message) = self.buffers.get(slot) else { break };
            // A message without octets is the end: no daemon sends one.
            if message.payload.is_empty() {
                return false;
            }
            let Some((interface, rest)) = message.payload.split_first_chunk::<INTERFACE>() else {
                tracing::debug!("a packet of the daemon is not sent: it is too short");
                continue;
            };
            let permitted = addressed(rest, &self.ports).filter(|_| !message.truncated());
            let Some((to, packet)) = permitted else {
                tracing::debug!(
                    "a packet of the daemon is not sent: no protocol of the configuration needs it"
                );
                continue;
            };
            let socket = self.sockets.get(kind).and_then(|pair| pair[usize::from(to.is_ipv6())].as_ref());
            let Some(socket) = socket else { continue };
            let mut control = Vec::new();
            compose::interface(to.is_ipv4(), u32::from_ne_bytes(*interface), &mut control);
            let (name, length) = sockaddr::encode(SocketAddr::new(to, 0));
            let name = name.get(..length).unwrap_or(&[]);
            let one = Outgoing { name, payload: packet, control: &control };
            if let Err(error) = mmsg::send(socket.as_raw_fd(), std::iter::once(one)) {
                tracing::debug!(%error, %to, "a packet of the daemon is not sent");
            }
        }
        true
    }
}

/// The helper's end of a channel.
pub(super) struct Channel(Socket);

impl Channel {
    /// Uses a descriptor of a daemon. Only a Unix socket with messages can neither block this process nor give it anything else.
    pub(super) fn adopt(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(descriptor);
        // A descriptor that is no socket is refused here.
        let fits = socket.r#type()? == Type::SEQPACKET && socket.domain()? == Domain::UNIX;
        if fits { Ok(Self(socket)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Appends a next hop, which goes in front of a packet that leaves by another one than the kernel would choose.
pub(crate) fn next_hop(address: IpAddr, buffer: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            buffer.push(V4);
            buffer.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            buffer.push(V6);
            buffer.extend_from_slice(&address.octets());
        }
    }
}

/// The node to which a packet goes next, and the packet, if a protocol of the configuration may send it. The next hop that the daemon
/// chose has to be that of a single node; the kernel sends to it by its own routes.
fn addressed<'a>(octets: &'a [u8], ports: &[u16]) -> Option<(IpAddr, &'a [u8])> {
    let (&first, rest) = octets.split_first()?;
    let (next, packet): (IpAddr, _) = match first {
        V4 => rest.split_first_chunk::<4>().map(|(address, packet)| ((*address).into(), packet))?,
        V6 => rest.split_first_chunk::<16>().map(|(address, packet)| ((*address).into(), packet))?,
        _ => return Some((permitted(octets, ports)?, octets)),
    };
    let to = permitted(packet, ports)?;
    let single = match next {
        IpAddr::V4(next) => !next.is_broadcast(),
        IpAddr::V6(_) => true,
    } && !(next.is_unspecified() || next.is_multicast() || next.is_loopback());
    (single && next.is_ipv4() == to.is_ipv4() && !to.is_multicast()).then_some((next, packet))
}

/// The destination of a packet that a protocol of the configuration may send: one whole datagram of UDP from or to one of its
/// ports, with the source of a single node. The source itself is free: these protocols pass on packets of others.
fn permitted(packet: &[u8], ports: &[u16]) -> Option<IpAddr> {
    let (source, to, datagram) = match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet.first()? & 0x0f) * 4;
            let header = packet.get(..length)?;
            let fixed = header.first_chunk::<20>()?;
            let [.., a, b, c, d, e, f, g, h] = *fixed;
            let whole = usize::from(u16::from_be_bytes([fixed[2], fixed[3]])) == packet.len();
            // Neither more fragments nor an offset.
            let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
            if !whole || fragment || fixed[9] != UDP {
                return None;
            }
            let (source, to) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            if source.is_unspecified() || source.is_broadcast() {
                return None;
            }
            (source.into(), to.into(), packet.get(length..)?)
        }
        6 => {
            let (header, rest) = packet.split_first_chunk::<40>()?;
            let whole = usize::from(u16::from_be_bytes([header[4], header[5]])) == rest.len();
            let (next, datagram) = match header[6] {
                HOP_BY_HOP => {
                    let length = (usize::from(*rest.get(1)?) + 1) * 8;
                    (*rest.first()?, rest.get(length..)?)
                }
                next => (next, rest),
            };
            if !whole || next != UDP {
                return None;
            }
            let address =
                |at: usize| header.get(at..at + 16)?.first_chunk::<16>().copied().map(Ipv6Addr::from);
            let (source, to) = (address(8)?, address(24)?);
            if source.is_unspecified() {
                return None;
            }
            (IpAddr::V6(source), IpAddr::V6(to), datagram)
        }
        _ => return None,
    };
    let header = datagram.first_chunk::<8>()?;
    let [from, at, length] =
        [[header[0], header[1]], [header[2], header[3]], [header[4], header[5]]].map(u16::from_be_bytes);
    let fits = usize::from(length) == datagram.len() && !source.is_multicast();
    (fits && (ports.contains(&from) || ports.contains(&at))).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: &[u16] = &[270, 4040];

    fn v4(from: u16, to: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, UDP, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7];
        datagram(&mut packet, from, to);
        packet
    }

    fn v6(next: &[u8], from: u16, to: u16) -> Vec<u8> {
        let kind = if next.is_empty() { UDP } else { HOP_BY_HOP };
        let mut packet = vec![0x60, 0, 0, 0, 0, 12 + next.len() as u8, kind, 64];
        packet.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(next);
        datagram(&mut packet, from, to);
        packet
    }

    fn datagram(packet: &mut Vec<u8>, from: u16, to: u16) {
        packet.extend([from.to_be_bytes(), to.to_be_bytes(), [0, 12], [0, 0]].concat());
        packet.extend(*b"octo");
    }

    #[test]
    fn only_datagrams_of_the_ports_are_sent() {
        let alert = [UDP, 0, 5, 2, 0, 0, 1, 0];
        let to = Some("198.51.100.7".parse().unwrap());
        let to6 = Some("2001:db8::2".parse().unwrap());
        for (from, at, sent) in [(1000, 270, true), (4040, 1000, true), (1000, 53, false), (0, 0, false)] {
            assert_eq!(permitted(&v4(from, at), PORTS), to.filter(|_| sent), "{from} {at}");
            for next in [&[][..], &alert] {
                assert_eq!(permitted(&v6(next, from, at), PORTS), to6.filter(|_| sent), "{from} {at}");
            }
        }
        assert_eq!(permitted(&v4(270, 270), &[]), None);
    }

    /// Other protocols, fragments, sources that no node has, and packets whose lengths differ from those they name.
    #[test]
    fn nothing_else_is_sent() {
        let good = v4(270, 270);
        let changed = |at: usize, octets: &[u8]| {
            let mut packet = good.clone();
            packet[at..at + octets.len()].copy_from_slice(octets);
            packet
        };
        for protocol in (0..=u8::MAX).filter(|protocol| *protocol != UDP) {
            assert_eq!(permitted(&changed(9, &[protocol]), PORTS), None, "{protocol}");
            let mut packet = v6(&[], 270, 270);
            packet[6] = protocol;
            assert_eq!(permitted(&packet, PORTS), None, "{protocol}");
        }
        for bad in [
            changed(6, &[0x20, 0]),
            changed(6, &[0, 1]),
            changed(12, &[0, 0, 0, 0]),
            changed(12, &[255, 255, 255, 255]),
            changed(12, &[224, 0, 0, 1]),
            changed(0, &[0x44]),
            changed(0, &[0x4f]),
            changed(0, &[0x55]),
            changed(2, &[0, 31]),
            changed(24, &[0, 11]),
        ] {
            assert_eq!(permitted(&bad, PORTS), None, "{bad:?}");
        }
        let longer = v6(&[UDP, 9, 5, 2, 0, 0, 1, 0], 270, 270);
        assert_eq!(permitted(&longer, PORTS), None);
        for packet in [good, longer, v6(&[UDP, 0, 5, 2, 0, 0, 1, 0], 270, 270)] {
            for length in 0..packet.len() {
                assert_eq!(permitted(&packet[..length], PORTS), None, "{length} octets");
            }
        }
    }

    #[test]
    fn a_packet_goes_to_the_next_hop_in_front_of_it() {
        let ahead = |next: &str, packet: &[u8]| {
            let mut octets = Vec::new();
            next_hop(next.parse().unwrap(), &mut octets);
            octets.extend_from_slice(packet);
            octets
        };
        let (four, six) = (v4(270, 270), v6(&[], 270, 270));
        for (packet, next) in [(&four, "10.0.0.9"), (&six, "2001:db8::9"), (&six, "fe80::9")] {
            let octets = ahead(next, packet);
            assert_eq!(addressed(&octets, PORTS), Some((next.parse().unwrap(), &packet[..])));
            assert_eq!(addressed(packet, PORTS).map(|(_, packet)| packet), Some(&packet[..]));
            for length in 0..octets.len() {
                assert_eq!(addressed(&octets[..length], PORTS), None, "{length} octets");
            }
        }
        for next in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "2001:db8::9"] {
            assert_eq!(addressed(&ahead(next, &four), PORTS), None, "{next}");
        }
        for next in ["::", "::1", "ff02::1", "10.0.0.9"] {
            assert_eq!(addressed(&ahead(next, &six), PORTS), None, "{next}");
        }
        assert_eq!(addressed(&ahead("10.0.0.9", &v4(1000, 53)), PORTS), None);
        assert_eq!(addressed(&ahead("10.0.0.9", &ahead("10.0.0.9", &four)), PORTS), None);
    }

    #[test]
    fn a_channel_is_a_unix_socket_with_messages() {
        let (near, _far) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        assert!(Channel::adopt(near.into()).is_ok());
        let (stream, _far) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        assert!(Channel::adopt(stream.into()).is_err());
        let udp = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        assert!(Channel::adopt(udp.into()).is_err());
        assert!(Channel::adopt(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
