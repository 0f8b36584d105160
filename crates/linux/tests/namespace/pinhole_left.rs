//! What a process leaves in the kernel: after a planned stop, and after a crash.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use signalbox_core::pinhole::{OpenerId, Pinhole};
use signalbox_linux::pinhole::{PinholeConfig, Pinholes};

use crate::network::{Addresses, Network, PATIENCE, bind, families, footprint, tool, until};
use crate::pinhole::{LONG, UDP, at, enforcer, flow, open, received, tracked};
use crate::pinhole_nat::{endpoint, nat, outer, to_any_sender};

/// Less than a test waits for anything.
const SHORT: Duration = Duration::from_secs(1);
/// Longer than this test takes, and shorter than the time of its pinholes.
const KEPT: Duration = Duration::from_secs(60);

/// Hosts inside, whose flows have external ports, and a server outside.
struct Flows {
    net: Network,
    a: IpAddr,
    outside: IpAddr,
    server: UdpSocket,
}

impl Flows {
    fn new(net: Network) -> Self {
        let Addresses { a, b } = families()[0];
        let server = bind(&net.b, at(b, 5004));
        Self { net, a, outside: outer(b), server }
    }

    fn server(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    fn binding(&self, port: u16, external: u16) -> Pinhole {
        let packets = flow(UDP, at(self.a, port), self.server());
        Pinhole { source: endpoint(at(self.outside, external)), ..Pinhole::allow(packets) }
    }

    /// The flow of a socket inside passes in both directions, with this external port.
    fn passes(&self, inside: &UdpSocket, external: u16) {
        inside.send_to(b"out", self.server()).unwrap();
        assert_eq!(received(&self.server, PATIENCE), Some(at(self.outside, external)));
        self.server.send_to(b"in", at(self.outside, external)).unwrap();
        assert_eq!(received(inside, PATIENCE), Some(self.server()));
    }

    fn is_blocked(&self, inside: &UdpSocket, external: u16) {
        inside.send_to(b"out", self.server()).unwrap();
        self.server.send_to(b"in", at(self.outside, external)).unwrap();
        assert_eq!(received(inside, Duration::from_millis(200)), None);
        let mut source = None;
        while let Some(from) = received(&self.server, Duration::from_millis(50)) {
            source = Some(from);
        }
        assert_ne!(source, Some(at(self.outside, external)));
    }

    fn tracks(&self, port: u16) -> bool {
        tracked(&self.net).contains(&format!("sport={port} "))
    }

    /// The ports inside whose sources the kernel translates.
    fn rows(&self) -> String {
        tool(&self.net.r, "nft list map inet signalbox_pinholes snat4_flow")
    }

    fn next(&self) -> Pinholes {
        enforcer(&self.net, &PinholeConfig::default()).unwrap()
    }
}

fn id(number: u64) -> signalbox_core::pinhole::PinholeId {
    OpenerId::NATFW.pinhole(number)
}

/// O08: what a planned stop leaves passes on, with its flow and its external port, for a limited time. The next process takes it over;
/// what it does not take over ends at once, with its flow.
#[test]
fn a_planned_stop_leaves_bindings_to_the_next_process() {
    let Some((net, mut pinholes)) = nat("left") else { return };
    let all = Flows::new(net);
    let sockets = [4000, 4001, 4002].map(|port| bind(&all.net.a, at(all.a, port)));
    for (number, port) in [(1, 4000), (2, 4001), (3, 4002)] {
        open(&mut pinholes, number, all.binding(port, port + 41_000), LONG);
    }
    let [stays, closes, unclaimed] = &sockets;
    all.passes(stays, 45_000);
    all.passes(closes, 45_001);
    all.passes(unclaimed, 45_002);

    assert_eq!(pinholes.keep(KEPT, |one| one != id(2)).unwrap(), 2);
    all.passes(stays, 45_000);
    assert!(all.tracks(4000) && !all.tracks(4001) && all.tracks(4002), "{}", tracked(&all.net));
    let rows = all.rows();
    assert!(rows.contains(" . 4000 ") && !rows.contains(" . 4001 ") && rows.contains(" . 4002 "), "{rows}");

    let mut next = all.next();
    let left = next.bindings_left().unwrap();
    assert!(left.iter().all(|(_, left)| *left <= KEPT), "{left:?}");
    let left: Vec<_> =
        left.into_iter().map(|(one, _)| (one.address, one.protocol, one.port, one.external)).collect();
    assert_eq!(left, [(all.a, UDP, 4000, 45_000), (all.a, UDP, 4002, 45_002)]);
    all.passes(stays, 45_000);
    open(&mut next, 7, all.binding(4000, 45_000), LONG);
    next.adopt(Duration::ZERO);
    until("what nobody took over ends with its flow", || {
        assert_eq!(next.flush(), []);
        !all.tracks(4002)
    });
    all.passes(stays, 45_000);
    assert!(next.read(&[id(7)])[0].unwrap().time_left > KEPT, "it has its own time again");
    assert_eq!(next.bindings_left().unwrap(), []);
    let rows = all.rows();
    assert!(rows.contains(" . 4000 ") && !rows.contains(" . 4002 "), "{rows}");
    all.is_blocked(unclaimed, 45_002);
    next.close().unwrap();
}

/// What a planned stop leaves ends soon, even if no process follows. One that has nothing to leave removes all.
#[test]
fn what_a_stop_leaves_ends_soon() {
    let Some((net, pinholes)) = nat("soon") else { return };
    let all = Flows::new(net);
    pinholes.close().unwrap();
    let before = footprint(&all.net.r);
    let mut pinholes = all.next();
    let inside = bind(&all.net.a, at(all.a, 4000));
    open(&mut pinholes, 1, all.binding(4000, 45_000), LONG);
    all.passes(&inside, 45_000);
    assert_eq!(pinholes.keep(SHORT, |_| true).unwrap(), 1);
    until("the kernel closes it", || !all.rows().contains(" . 4000 "));
    all.is_blocked(&inside, 45_000);
    let mut next = all.next();
    open(&mut next, 1, all.binding(4000, 45_000), LONG);
    assert_eq!(next.keep(KEPT, |_| false).unwrap(), 0);
    assert_eq!(footprint(&all.net.r), before);
    all.is_blocked(&inside, 45_000);
}

/// O08: what a crash left is open until somebody asks for it again, for a limited time. Then it ends, with its flow, although the
/// kernel would keep it longer.
#[test]
fn what_a_crash_left_is_adopted_for_a_limited_time() {
    let Some((net, mut pinholes)) = nat("adopted") else { return };
    let all = Flows::new(net);
    let [stays, ends] = [4000, 4001].map(|port| bind(&all.net.a, at(all.a, port)));
    open(&mut pinholes, 1, all.binding(4000, 45_000), LONG);
    open(&mut pinholes, 2, all.binding(4001, 45_001), LONG);
    let inward = Pinhole {
        destination: endpoint(at(all.a, 4003)),
        ..Pinhole::allow(to_any_sender(at(all.outside, 45_003)))
    };
    open(&mut pinholes, 3, inward, LONG);
    // The socket of the process is closed, and all is as it was.
    assert_eq!(pinholes.keep(LONG, |_| true).unwrap(), 3);
    all.passes(&stays, 45_000);
    all.passes(&ends, 45_001);

    let mut next = all.next();
    let left: Vec<_> =
        next.bindings_left().unwrap().into_iter().map(|(one, _)| (one.port, one.external)).collect();
    assert_eq!(left, [(4000, 45_000), (4001, 45_001), (4003, 45_003)]);
    next.adopt(SHORT);
    open(&mut next, 9, all.binding(4000, 45_000), LONG);
    all.passes(&ends, 45_001);
    until("what nobody asked for is closed, and its flow ended", || {
        assert!(next.wait_time().is_none_or(|wait| wait <= SHORT * 2));
        assert_eq!(next.flush(), []);
        !all.rows().contains(" . 4001 ") && !all.tracks(4001)
    });
    all.is_blocked(&ends, 45_001);
    all.passes(&stays, 45_000);
    assert_eq!(next.bindings_left().unwrap(), []);
    next.close().unwrap();
}
