//! A router with the real kernel, and the links around it.

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use signalbox_core::node::Prefix;
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::topology;
use socket2::{Domain, Protocol, Socket, Type};

use crate::kernel::{CONTROL, Packet, Transaction, Tuple, errors, flush};

const PATIENCE: Duration = Duration::from_secs(20);
const AF_NETLINK: i32 = 16;
const NETFILTER: i32 = 12;
const ETHERNET: usize = 14;
/// What the kernel of the tests takes for the ruleset of the operator.
const OPERATOR: &str = "table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state invalid drop
        ct state established,related accept
        ct mark and 0x10000000 == 0x10000000 accept
        meta l4proto 254 accept
    }
    chain input {
        type filter hook input priority filter; policy drop;
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    }
}
";
/// The hosts answer nothing by themselves.
const SILENT: &str = "table inet silent {
    chain input {
        type filter hook prerouting priority raw; policy drop;
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    }
}
";

/// A link between the router and hosts.
pub(crate) struct Link {
    /// The addresses of the router, with the lengths of their nets.
    pub(crate) router: Vec<(IpAddr, u8)>,
    /// Those of its hosts.
    pub(crate) hosts: Vec<(IpAddr, u8)>,
    /// By family, those of a host that no pinhole is for.
    pub(crate) other: [IpAddr; 2],
    /// By family, that of the router to which the hosts send.
    pub(crate) gateway: [IpAddr; 2],
}

/// One end of a link.
struct Side {
    capture: Capture,
    /// The Ethernet header of packets to the router, by family.
    headers: [Vec<u8>; 2],
    other: [IpAddr; 2],
}

/// Hosts, and a router between them.
pub(crate) struct Router {
    names: Vec<String>,
    sides: Vec<Side>,
    netlink: Socket,
}

impl Drop for Router {
    fn drop(&mut self) {
        for name in &self.names {
            // In a failing test the first failure matters. The names have our prefix.
            let _ = netns::delete(name);
        }
    }
}

impl Router {
    /// Makes the namespaces. `name` keeps those of several tests apart.
    pub(crate) fn new(name: &str, links: &[Link]) -> Self {
        let named = |end: &str| format!("sbxt-{}-{name}-{end}", std::process::id());
        let mut names = vec![named("r")];
        let router = Namespace::create(&names[0]).unwrap();
        let mut ends = Vec::new();
        for (number, link) in links.iter().enumerate() {
            names.push(named(&number.to_string()));
            let end = Namespace::create(names.last().unwrap()).unwrap();
            let (near, far) = (format!("r{number}"), format!("h{number}"));
            topology::create_veth(&end, &far, &router, &near).unwrap();
            let others = link.other.map(|other| {
                let of_net = |(own, _): &&(IpAddr, u8)| own.is_ipv4() == other.is_ipv4();
                (other, link.router.iter().rfind(of_net).unwrap().1)
            });
            for (namespace, interface, own) in
                [(&router, &near, link.router.clone()), (&end, &far, [&link.hosts[..], &others].concat())]
            {
                for (address, len) in own {
                    topology::add_address(namespace, interface, address, len).unwrap();
                }
                topology::set_up(namespace, interface, true).unwrap();
                topology::disable_offload(namespace, interface).unwrap();
            }
            for gateway in link.gateway {
                topology::add_route(&end, Prefix::all_like(gateway), Some(gateway), None).unwrap();
            }
            ends.push((end, far));
        }
        topology::set_forwarding(&router, true).unwrap();
        let all = ends.iter().map(|(end, _)| end).chain([&router]);
        all.for_each(|namespace| topology::settle(namespace, PATIENCE).unwrap());
        let sides = ends.iter().zip(links).enumerate().map(|(at, ((end, interface), link))| {
            let mut capture = Capture::open(end, interface, CaptureConfig::default()).unwrap();
            let next = &links[(at + 1) % links.len()];
            let headers = [0, 1].map(|ipv6| greet(end, &mut capture, [link.other[ipv6], next.other[ipv6]]));
            Side { capture, headers, other: link.other }
        });
        let sides = sides.collect();
        topology::nft(&router, OPERATOR).unwrap();
        ends.iter().for_each(|(end, _)| topology::nft(end, SILENT).unwrap());
        let netlink = router.run(|| {
            Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETFILTER))).unwrap()
        });
        let netlink = netlink.unwrap();
        netlink.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { names, sides, netlink }
    }

    /// Sends requests, and returns the error numbers of the answer up to the acknowledgement of this request.
    fn ask(&mut self, requests: &[u8], last: u32) -> Vec<(u32, i32)> {
        self.netlink.send(requests).unwrap();
        let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while all.iter().all(|(sequence, _)| *sequence != last) {
            let length = self.netlink.read(&mut buffer).unwrap();
            all.extend(errors(&buffer[..length]));
        }
        all
    }

    /// Gives the kernel the same octets. It refuses what the kernel of the tests refuses.
    pub(crate) fn install(&mut self, transactions: Vec<Transaction>) -> Result<(), String> {
        for Transaction { requests, errors, acknowledged } in transactions {
            let real = self.ask(&requests, acknowledged);
            // The numbers of errors differ between versions; what is refused does not.
            let refused =
                |all: &[(u32, i32)]| all.iter().map(|(at, error)| (*at, *error != 0)).collect::<Vec<_>>();
            if refused(&real) != refused(&errors) {
                return Err(format!("the kernel answers {real:?}, not {errors:?}"));
            }
        }
        Ok(())
    }

    /// Sends packets, and returns those that arrive at the other side.
    pub(crate) fn arriving(&mut self, packets: &[(usize, Packet)], control: [u8; 8]) -> Vec<Packet> {
        let mut arrived = Vec::new();
        for (side, packet) in packets {
            self.send(*side, packet);
        }
        // What follows the others from one side to another arrives after them.
        let sides = self.sides.len();
        let mut controls = 0;
        for (from, to) in (0..sides).flat_map(|from| (0..sides).map(move |to| (from, to))) {
            for ipv6 in [0, 1].into_iter().filter(|_| from != to) {
                let [src, dst] = [from, to].map(|side| self.sides[side].other[ipv6]);
                let last = Tuple { src, dst, protocol: CONTROL, src_port: 0, dst_port: 0 };
                self.send(from, &Packet::new(last, control));
                controls += 1;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while controls > 0 {
            assert!(Instant::now() < deadline, "the control packets do not arrive");
            for Side { capture, .. } in &mut self.sides {
                let read = capture.read(Duration::from_millis(1), |frame| {
                    let packet = frame.octets.get(ETHERNET..).and_then(Packet::parse);
                    match packet.filter(|_| !frame.outgoing) {
                        Some(packet) if packet.protocol == CONTROL => {
                            controls -= u32::from(packet.mark == control);
                        }
                        Some(packet) if packet.mark[..7] == control[..7] => arrived.push(packet),
                        _ => {}
                    }
                });
                read.unwrap();
            }
        }
        arrived
    }

    /// Ends all flows.
    pub(crate) fn flush(&mut self) {
        self.ask(&flush(1), 1);
    }

    fn send(&self, side: usize, packet: &Packet) {
        let Side { capture, headers, .. } = &self.sides[side];
        let header = &headers[usize::from(packet.src.is_ipv6())];
        capture.send(&[&header[..], packet.network()].concat()).unwrap();
    }
}

/// The Ethernet header of packets from a host to the router: that of a datagram that the host sends itself.
fn greet(namespace: &Namespace, capture: &mut Capture, [from, to]: [IpAddr; 2]) -> Vec<u8> {
    let to = (to, 9);
    let socket = namespace.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
    let (deadline, mut header) = (Instant::now() + PATIENCE, None);
    while header.is_none() {
        assert!(Instant::now() < deadline, "the router is not found");
        socket.send_to(b"greeting", to).unwrap();
        let read = capture.read(Duration::from_millis(20), |frame| {
            if frame.outgoing && frame.octets.ends_with(b"greeting") {
                header = Some(frame.octets[..ETHERNET].to_vec());
            }
        });
        read.unwrap();
    }
    header.unwrap()
}
