//! A branch that lost its link to the node before it: its router still holds the session, and still reaches the node
//! where the branches meet. That node belongs to the new branch (RFC 5974 §5.2.5.4).

use core::time::Duration;

use signalbox_gist::wire::{Encapsulation, MAGIC, Message};
use signalbox_node::Command;
use signalbox_node::qos::{self, Flow, QosRequest, ReserveRequest};
use signalbox_qos::wire::MessageType;
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Packet, Sim};

use super::net::{Host, MODES, Mode, SECOND, config};
use super::reroute::{Diamond, RATE, all, held};

/// The link to the old branch is lost, and the user releases the reservation after a while: the tear ends it at every node
/// that the new path has, at once. The router of the old branch gives its part back by itself.
#[test]
fn a_release_after_a_lost_link_ends_the_whole_path() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for short in [false, true] {
                for after in [200, 1_000, 2_000, 4_000, 6_000, 10_000, 20_000, 40_000, 100_000] {
                    for seed in 0..3 {
                        let what = format!("{mode:?} {receiver_initiated} {short} {after} {seed}");
                        let mut net = Diamond::with_timers(seed, mode, receiver_initiated, short);
                        let (by_r3, common) = (net.by_r3, net.common);
                        net.sim.set_link_up(net.decides, false);
                        net.sim.expect(&what, SECOND * 10, |sim| {
                            all(sim, by_r3, RATE) && all(sim, common, RATE)
                        });
                        net.sim.run_for(Duration::from_millis(after));
                        net.command(qos::Command::Release);
                        let gone = |sim: &Sim<Host>| all(sim, by_r3, 0) && all(sim, common, 0);
                        let ended = net.sim.wait(SECOND * 5, gone);
                        assert!(ended, "{what}: {:?}", net.state());
                        // And it does not come back.
                        let back = net.sim.wait(SECOND * 300, |sim| !gone(sim));
                        assert!(!back, "{what}: {:?}", net.state());
                        assert_eq!(held(&net.sim, net.by_r2[1]), 0, "{what}: the old branch has ended");
                    }
                }
            }
        }
    }
}

/// `h1 – r1 – (a – b – c | d) – r4 – h2`, with a reservation by a, b and c.
struct TwoWays {
    sim: Sim<Host>,
    former: [NodeId; 3],
    /// The links of the former way, in the order of the flow.
    links: [LinkId; 4],
    /// The nodes of the other way.
    kept: [NodeId; 4],
}

impl TwoWays {
    fn reserved(seed: u64, mode: Mode, receiver_initiated: bool) -> Self {
        let mut sim = Sim::new(seed);
        let [h1, r1, a, b, c, d, r4, h2] = ["h1", "r1", "a", "b", "c", "d", "r4", "h2"]
            .map(|name| sim.add_engine(name, move |boot| Host::new(boot, config(mode))));
        let cheap = LinkConfig::default();
        let dear = LinkConfig { cost: 9, ..cheap };
        let links = [(r1, a), (a, b), (b, c), (c, r4)].map(|(from, to)| sim.link(from, to, &cheap));
        for (from, to, config) in [(h1, r1, cheap), (r1, d, dear), (d, r4, dear), (r4, h2, cheap)] {
            sim.link(from, to, &config);
        }
        let flow = Flow { protocol: Some(17), dst_port: Some(5004), ..Flow::to(sim.address(h2, Family::V4)) };
        let request =
            ReserveRequest { receiver_initiated, ..ReserveRequest::new(flow, QosRequest::rate(RATE)) };
        sim.command(h1, Command::Qos { id: 1, command: qos::Command::Reserve(Box::new(request)) });
        let net = Self { sim, former: [a, b, c], links, kept: [h1, r1, d, r4] };
        net.stands()
    }

    fn stands(mut self) -> Self {
        let all = [self.former[0], self.former[1], self.former[2], self.kept[0], self.kept[1], self.kept[3]];
        self.sim.expect("a reservation by a, b and c", SECOND * 10, |sim| {
            all.iter().all(|node| sum(sim, *node) == RATE)
        });
        self.sim.run_for(SECOND * 2);
        self
    }
}

/// What a node holds at all its interfaces.
fn sum(sim: &Sim<Host>, node: NodeId) -> u64 {
    sim.reservations(node).map(|(_, one)| one.traffic.rate).sum()
}

/// The route leaves three routers because one of their links is lost. Each of them gives its part back within seconds, whichever
/// link is lost: it receives a tear from the node where the paths part, or a report from the node where they meet. The lifetime is
/// 157 s. The new path has the reservation all the time.
#[test]
fn the_routers_of_a_former_way_give_their_parts_back() {
    for mode in MODES {
        for receiver_initiated in [false, true] {
            for lost in 0..4 {
                for seed in 0..3 {
                    let what = format!("{mode:?} {receiver_initiated} {lost} {seed}");
                    let mut net = TwoWays::reserved(seed, mode, receiver_initiated);
                    let (former, kept) = (net.former, net.kept);
                    net.sim.set_link_up(net.links[lost], false);
                    let stands = |sim: &Sim<Host>| kept.iter().all(|node| sum(sim, *node) == RATE);
                    net.sim.expect(&what, SECOND * 10, stands);
                    let free = |sim: &Sim<Host>| former.iter().all(|node| sum(sim, *node) == 0);
                    let mut broken = None;
                    let gone = net.sim.wait(SECOND * 10, |sim| {
                        if !stands(sim) {
                            broken.get_or_insert(sim.now());
                        }
                        free(sim)
                    });
                    let left: Vec<_> = former.map(|node| sum(&net.sim, node)).into();
                    assert!(gone && broken.is_none(), "{what}: {left:?} {broken:?}");
                    let strays = net.sim.wait(SECOND * 300, |sim| !(free(sim) && stands(sim)));
                    assert!(!strays, "{what}: at {}", net.sim.now());
                }
            }
        }
    }
}

fn is_notify(packet: &Packet) -> bool {
    let octets = packet.payload.strip_prefix(&MAGIC);
    let message = octets.and_then(|octets| Message::parse(octets, Encapsulation::Normal).ok());
    message.and_then(|message| message.nslp_data).and_then(<[u8]>::first) == Some(&MessageType::NOTIFY.0)
}

/// The same where the first reports are lost between two nodes of the former way: copies follow.
#[test]
fn a_lost_report_leaves_no_part_behind() {
    for receiver_initiated in [false, true] {
        // The report begins at the other end.
        let cut = if receiver_initiated { 3 } else { 0 };
        for deaf in (0..4).filter(|link| *link != cut) {
            for seed in 0..3 {
                let what = format!("{receiver_initiated} {deaf} {seed}");
                let mut net = TwoWays::reserved(seed, Mode::Datagrams, receiver_initiated);
                let (former, kept) = (net.former, net.kept);
                let until = net.sim.now() + Duration::from_millis(1500);
                net.sim.set_filter(net.links[deaf], move |now, _, packet| now < until && is_notify(packet));
                net.sim.set_link_up(net.links[cut], false);
                let free = |sim: &Sim<Host>| former.iter().all(|node| sum(sim, *node) == 0);
                let gone = net.sim.wait(SECOND * 12, free);
                assert!(gone, "{what}: {:?}", former.map(|node| sum(&net.sim, node)));
                let stands = |sim: &Sim<Host>| kept.iter().all(|node| sum(sim, *node) == RATE);
                net.sim.expect(&what, SECOND, stands);
                let strays = net.sim.wait(SECOND * 300, |sim| !(free(sim) && stands(sim)));
                assert!(!strays, "{what}: at {}", net.sim.now());
            }
        }
    }
}
