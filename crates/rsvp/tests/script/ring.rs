//! Three routers in a ring, whose multicast trees go round it: what an auto-refresh loop would need (RFC 2205 §3.4).

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::Time;
use signalbox_rsvp::engine::{Config, Input};
use signalbox_rsvp::wire::{Filter, RsvpHop, Selector};

use crate::rig::{B, Path, Resv, Rig, Sent, addr, group, handle, load};

/// Router *i*'s eth2 leads to eth1 of the next one; behind its eth3 is sender *i*, behind its eth4 a receiver. The data
/// of each sender go round the ring and end before its router.
struct Ring {
    routers: Vec<Rig>,
}

fn address(router: usize, interface: u32, host: u32) -> IpAddr {
    addr(&format!("10.{}.{interface}.{host}", 100 + router))
}

fn source(router: usize) -> Filter {
    Filter { src: address(router, 3, 9), selector: Selector::Port(4000) }
}

impl Ring {
    fn new(config: &Config) -> Self {
        let routers = (0..3).map(|i| {
            let mut rig = Rig::with(config.clone());
            for (n, interface) in (1..).zip(&mut rig.interfaces) {
                interface.addresses = vec![address(i, n, 1)];
            }
            let list = rig.interfaces.clone();
            rig.input(Input::Interfaces(&list));
            for (far, iif, oifs) in [(0, 3, vec![2, 4]), (1, 1, vec![2, 4]), (2, 1, vec![4])] {
                rig.trees.insert((group().dest, source((i + 3 - far) % 3).src), (iif, oifs));
            }
            rig
        });
        Self { routers: routers.collect() }
    }

    /// Carries the packets of router `from` round the ring until none is left.
    fn carry(&mut self, from: usize, sent: Vec<Sent>) {
        let mut under_way: Vec<(usize, Sent)> = sent.into_iter().map(|one| (from, one)).collect();
        while let Some((from, one)) = under_way.pop() {
            let (to, iif) = match one.oif {
                2 => ((from + 1) % 3, 1),
                1 => ((from + 2) % 3, 2),
                _ => continue,
            };
            let sent = self.routers[to].packet(iif, one.src, one.dst, one.ttl, &one.octets);
            under_way.extend(sent.into_iter().map(|one| (to, one)));
        }
    }

    fn paths(&mut self) {
        for i in 0..3 {
            let hop = RsvpHop { addr: address(i, 3, 9), lih: 0 };
            let path = Path { sender: source(i), hop, ..Path::of(group(), 1, 3) };
            let sent = self.routers[i].path(&path);
            self.carry(i, sent);
        }
    }

    fn resv(&mut self, router: usize) {
        let resv = Resv::wf(load(B)).from(4, 9, group());
        let resv = Resv { hop: RsvpHop { addr: address(router, 4, 9), lih: handle(4) }, ..resv };
        let octets = resv.octets();
        let sent = self.routers[router].packet(4, resv.hop.addr, address(router, 4, 1), 255, &octets);
        self.carry(router, sent);
    }

    /// Half a minute with the senders, and with the receiver behind router 0 if `receives`.
    fn run(&mut self, receives: bool) {
        self.paths();
        if receives {
            self.resv(0);
        }
        for _ in 0..15 {
            for i in 0..3 {
                let sent = self.routers[i].wait(Duration::from_secs(2));
                self.carry(i, sent);
            }
        }
    }

    fn reservations(&self) -> Vec<u64> {
        self.routers.iter().map(|rig| rig.reserved(2) + rig.reserved(4)).collect()
    }
}

/// Reservations of the ring while a receiver is there, and ten minutes later.
fn leave(config: &Config) -> (Vec<u64>, Vec<u64>) {
    let mut ring = Ring::new(config);
    (0..6).for_each(|_| ring.run(true));
    let with = ring.reservations();
    (0..20).for_each(|_| ring.run(false));
    assert!(ring.routers.iter().all(|rig| rig.now > Time::ZERO && rig.rsvp.senders() == 3));
    (with, ring.reservations())
}

/// RSVP-3.4-01: with SCOPE the reservations of a receiver that left end; without, the routers would refresh each
/// other's state for ever.
#[test]
fn a_ring_does_not_refresh_itself() {
    let unit = 10_000;
    assert_eq!(leave(&Config::default()), (vec![unit, unit, unit], vec![0, 0, 0]));
    let (_, after) = leave(&Config { source_trees: false, ..Config::default() });
    assert!(after.iter().all(|reserved| *reserved >= unit), "the ring is one: {after:?}");
}
