//! The kernel of the tests and the real one, with the same octets and the same packets.

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use signalbox_core::node::Prefix;
use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::topology;
use socket2::{Domain, Protocol, Socket, Type};

use crate::draw::{Draw, draws};
use crate::holes::{self, EXTERNAL, HOSTS, Open};
use crate::kernel::{CONTROL, Fate, Kernel, Packet, Transaction, Tuple, errors, flush};
use crate::octets::open;

const DRAWS: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(20);
const AF_NETLINK: i32 = 16;
const NETFILTER: i32 = 12;
const ETHERNET: usize = 14;
/// Addresses that no pinhole is for, by family, of each side.
const OTHERS: [[&str; 2]; 2] = [["10.1.0.200", "10.2.0.200"], ["fd01::c8", "fd02::c8"]];
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

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two sides and a router between them.
struct Network {
    names: Vec<String>,
    /// The captures at both sides, and the Ethernet header towards the router, by family.
    sides: [(Capture, [Vec<u8>; 2]); 2],
    netlink: Socket,
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // In a failing test the first failure matters. The names have our prefix.
            let _ = netns::delete(name);
        }
    }
}

impl Network {
    fn new() -> Self {
        let names = ["a", "r", "b"].map(|end| format!("sbxt-{}-oracle-{end}", std::process::id()));
        let [a, r, b] = names.each_ref().map(|name| Namespace::create(name).unwrap());
        topology::create_veth(&a, "a0", &r, "ra").unwrap();
        topology::create_veth(&r, "rb", &b, "b0").unwrap();
        for (namespace, interface, side) in [(&r, "ra", 0), (&r, "rb", 1), (&a, "a0", 0), (&b, "b0", 1)] {
            for ipv6 in [0, 1] {
                let len = if ipv6 == 0 { 24 } else { 64 };
                let own: Vec<&str> = if namespace.name() == r.name() {
                    vec![[["10.1.0.2", "fd01::2"], EXTERNAL][side][ipv6]]
                } else {
                    [&HOSTS[ipv6][side][..], &[OTHERS[ipv6][side]]].concat()
                };
                for address in own {
                    topology::add_address(namespace, interface, ip(address), len).unwrap();
                }
            }
            topology::set_up(namespace, interface, true).unwrap();
            topology::disable_offload(namespace, interface).unwrap();
        }
        topology::set_forwarding(&r, true).unwrap();
        for (namespace, gateways) in [(&a, ["10.1.0.2", "fd01::2"]), (&b, EXTERNAL)] {
            for (gateway, all) in gateways.into_iter().zip(["0.0.0.0/0", "::/0"]) {
                let (addr, len) = all.split_once('/').unwrap();
                let dst = Prefix { addr: ip(addr), len: len.parse().unwrap() };
                topology::add_route(namespace, dst, Some(ip(gateway)), None).unwrap();
            }
        }
        [&a, &r, &b].into_iter().for_each(|namespace| topology::settle(namespace, PATIENCE).unwrap());
        let capture =
            |namespace, interface| Capture::open(namespace, interface, CaptureConfig::default()).unwrap();
        let mut sides = [(capture(&a, "a0"), Default::default()), (capture(&b, "b0"), Default::default())];
        for (side, namespace) in [&a, &b].into_iter().enumerate() {
            let headers = [0, 1].map(|ipv6| greet(namespace, &mut sides[side].0, ipv6, side));
            sides[side].1 = headers;
        }
        topology::nft(&r, OPERATOR).unwrap();
        [&a, &b].into_iter().for_each(|namespace| topology::nft(namespace, SILENT).unwrap());
        let netlink = r.run(|| {
            Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETFILTER))).unwrap()
        });
        let netlink = netlink.unwrap();
        netlink.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { names: names.into(), sides, netlink }
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
    fn install(&mut self, transactions: Vec<Transaction>) -> Result<(), String> {
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
    fn arriving(&mut self, packets: &[(usize, Packet)], control: [u8; 8]) -> Vec<Packet> {
        let mut arrived = Vec::new();
        for (side, packet) in packets {
            self.send(*side, packet);
        }
        // What follows the others arrives after them.
        for side in [0, 1] {
            for ipv6 in [0, 1] {
                let [src, dst] = [side, 1 - side].map(|side| ip(OTHERS[ipv6][side]));
                let last = Tuple { src, dst, protocol: CONTROL, src_port: 0, dst_port: 0 };
                self.send(side, &Packet::new(last, control));
            }
        }
        let deadline = Instant::now() + PATIENCE;
        let mut controls = 0;
        while controls < 4 {
            assert!(Instant::now() < deadline, "the control packets do not arrive");
            for (capture, _) in &mut self.sides {
                let read = capture.read(Duration::from_millis(1), |frame| {
                    let packet = frame.octets.get(ETHERNET..).and_then(Packet::parse);
                    match packet.filter(|_| !frame.outgoing) {
                        Some(packet) if packet.protocol == CONTROL => {
                            controls += u32::from(packet.mark == control)
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

    fn send(&self, side: usize, packet: &Packet) {
        let (capture, headers) = &self.sides[side];
        let header = &headers[usize::from(packet.src.is_ipv6())];
        capture.send(&[&header[..], packet.network()].concat()).unwrap();
    }
}

/// The Ethernet header of packets from a host to the router: that of a datagram that the host sends itself.
fn greet(namespace: &Namespace, capture: &mut Capture, ipv6: usize, side: usize) -> Vec<u8> {
    let to = (ip(OTHERS[ipv6][1 - side]), 9);
    let from = (ip(OTHERS[ipv6][side]), 0);
    let socket = namespace.run(|| UdpSocket::bind(from)).unwrap().unwrap();
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

/// Both kernels refuse the same requests, and let the same packets pass, in the same form.
#[test]
fn the_kernel_agrees_with_that_of_the_tests() {
    draws(DRAWS, 1, Network::new, |network, seed, counts| {
        let draw = &mut Draw::new(seed, 2);
        let local = EXTERNAL.map(ip).to_vec();
        let (kernel, mut pinholes) = open(Kernel::logging(local));
        let mut open = Open::default();
        let mut result = Ok(());
        let mut clashed = false;
        let sequence = u32::try_from(seed).unwrap().to_be_bytes();
        for phase in 0..3 {
            open.change(draw, &mut pinholes);
            let near: Vec<_> = open.holes.values().cloned().collect();
            let mark = |number: u8| {
                let [a, b, c, d] = sequence;
                [0x5b, a, b, c, d, phase, 0x42, number]
            };
            let packets: Vec<_> = (0..10).map(|number| holes::packet(draw, &near, mark(number))).collect();
            result = result.and_then(|()| network.install(kernel.lock().unwrap().take_log()));
            if result.is_err() || clashed {
                break;
            }
            let arrived = network.arriving(&packets, mark(u8::MAX));
            for (_, packet) in &packets {
                let fate = kernel.lock().unwrap().forward(packet);
                let real = arrived.iter().find(|other| other.mark == packet.mark);
                let same = match &fate {
                    Fate::Passed(left) => real == Some(left),
                    Fate::Dropped | Fate::Local => real.is_none(),
                    Fate::Clash => {
                        // From now on both have other flows.
                        clashed = true;
                        break;
                    }
                };
                *if real.is_some() { &mut counts.passed } else { &mut counts.dropped } += 1;
                if !same && result.is_ok() {
                    result = Err(format!(
                        "{packet:?}: {fate:?}, and in the kernel {real:?}, with {:#?}",
                        open.holes
                    ));
                }
            }
        }
        drop(pinholes);
        // What is left of a failing draw would fail the next.
        result = result.and(network.install(kernel.lock().unwrap().take_log()));
        network.ask(&flush(1), 1);
        result
    });
}
