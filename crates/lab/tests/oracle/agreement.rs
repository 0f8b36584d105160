//! The kernel of the tests and the real one, with the same octets and the same packets.

use std::net::IpAddr;

use crate::draw::{Counts, Draw, draws};
use crate::enforcer::Enforcer;
use crate::holes::{self, EXTERNAL, HOSTS, Open};
use crate::kernel::{Fate, Kernel, Packet, TCP, Tuple};
use crate::network;
use crate::octets::open;
use crate::policy::World;
use crate::router::{Link, Router};

/// Draws of pinholes, and of policies.
const DRAWS: [u64; 2] = [600, 600];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The links of the draws of pinholes.
fn two_links() -> [Link; 2] {
    [(["10.1.0.2", "fd01::2"], ["10.1.0.200", "fd01::c8"]), (EXTERNAL, ["10.2.0.200", "fd02::c8"])].map(
        |(router, other)| {
            let side = usize::from(router == EXTERNAL);
            let with_len = |address: &str| (ip(address), if ip(address).is_ipv4() { 24 } else { 64 });
            Link {
                router: router.map(with_len).to_vec(),
                hosts: HOSTS.iter().flat_map(|family| family[side]).map(with_len).collect(),
                other: other.map(ip),
                gateway: router.map(ip),
            }
        },
    )
}

/// The links of the draws of policies, which the simulator has numbered.
fn links_of_hosts() -> Vec<Link> {
    let link = |number: usize| {
        let [router, host] = [1, 2].map(|end| [false, true].map(|ipv6| network::address(ipv6, number, end)));
        let lens = [30, 64];
        let [near, other] = ["1", "200"].map(|end| ip(&format!("10.9.{number}.{end}")));
        Link {
            router: router.into_iter().zip(lens).chain([(near, 24)]).collect(),
            hosts: host.into_iter().zip(lens).collect(),
            other: [other, ip(&format!("fd00:0:0:{number}::c8"))],
            gateway: router,
        }
    };
    (0..network::HOSTS).map(link).collect()
}

/// A mark for a packet, or for what follows the packets of a phase.
fn mark(seed: u64, phase: u8, number: u8) -> [u8; 8] {
    let [a, b, c, d] = u32::try_from(seed).unwrap().to_be_bytes();
    [0x5b, a, b, c, d, phase, 0x42, number]
}

/// Sends the same packets by the real kernel and by that of the tests. False: from now on both have other flows.
fn compare(
    router: &mut Router,
    packets: &[(usize, Packet)],
    control: [u8; 8],
    mut forward: impl FnMut(&Packet) -> Fate,
    counts: &mut Counts,
) -> Result<bool, String> {
    let arrived = router.arriving(packets, control);
    for (_, packet) in packets {
        let fate = forward(packet);
        let real = arrived.iter().find(|other| other.mark == packet.mark);
        let same = match &fate {
            Fate::Passed(left) => real == Some(left),
            Fate::Dropped | Fate::Local => real.is_none(),
            Fate::Clash => return Ok(false),
        };
        *if real.is_some() { &mut counts.passed } else { &mut counts.dropped } += 1;
        if !same {
            return Err(format!("{packet:?}: {fate:?}, and in the kernel {real:?}"));
        }
    }
    Ok(true)
}

/// Both kernels refuse the same requests, and let the same packets pass, in the same form.
#[test]
fn the_kernel_agrees_with_that_of_the_tests() {
    let start = || Router::new("holes", &two_links());
    draws(DRAWS[0], 1, start, |router, seed, counts| {
        let draw = &mut Draw::new(seed, 2);
        let local = EXTERNAL.map(ip).to_vec();
        let (kernel, mut pinholes) = open(Kernel::logging(local));
        let mut open = Open::default();
        let mut result = Ok(true);
        for phase in 0..3 {
            open.change(draw, &mut pinholes);
            let near: Vec<_> = open.holes.values().cloned().collect();
            let packets: Vec<_> =
                (0..10).map(|number| holes::packet(draw, &near, mark(seed, phase, number))).collect();
            let installed = router.install(kernel.lock().unwrap().take_log());
            let forward = |packet: &Packet| kernel.lock().unwrap().forward(packet);
            result = installed
                .and_then(|()| compare(router, &packets, mark(seed, phase, u8::MAX), forward, counts))
                .map_err(|fault| format!("{fault}, with {:#?}", open.holes));
            if result != Ok(true) {
                break;
            }
        }
        drop(pinholes);
        // What is left of a failing draw would fail the next.
        let result = result.and(router.install(kernel.lock().unwrap().take_log()));
        router.flush();
        result
    });
}

/// The same of what hosts open by NATFW and CASP at one firewall or NAT, also after its daemon has stopped or crashed.
#[test]
fn the_kernel_agrees_about_what_hosts_open() {
    let start = || (Router::new("hosts", &links_of_hosts()), Enforcer::on(Kernel::logging(Vec::new())));
    draws(DRAWS[1], 1, start, |(router, enforcer), seed, counts| {
        let draw = &mut Draw::new(seed, 4);
        let mut world = World::single(seed, draw);
        let enforcers = std::slice::from_mut(enforcer);
        enforcers[0].begin(world.judge.network.places[0].own.clone());
        let mut result = Ok(true);
        // How the connections of TCP go on that answers begin, differs between kernels.
        let mut sent: Vec<Tuple> = Vec::new();
        for id in 0..3 + draw.below(3) {
            world.ask(draw, id, enforcers);
            world.settle(enforcers);
            let phase = u8::try_from(id).unwrap();
            let mut packets = Vec::new();
            for number in 0..8 {
                let packet = world.packet(draw, mark(seed, phase, number));
                let tuple = packet.tuple();
                let answers = tuple.protocol == TCP && sent.contains(&tuple.answer());
                if tuple.src != tuple.dst && !answers {
                    sent.push(tuple);
                    packets.push((world.judge.network.host_at(tuple.src).unwrap(), packet));
                }
            }
            let forward = |packet: &Packet| {
                let fate = enforcers[0].forward(packet);
                if let Fate::Passed(left) = &fate {
                    world.judge.flows.push((packet.tuple(), left.tuple()));
                    sent.push(left.tuple());
                }
                fate
            };
            let installed = router.install(enforcers[0].kernel.lock().unwrap().take_log());
            result = installed
                .and_then(|()| compare(router, &packets, mark(seed, phase, u8::MAX), forward, counts))
                .map_err(|fault| format!("{fault}, with {:#?}", world.holes(0)));
            if result != Ok(true) {
                break;
            }
        }
        enforcers[0].end();
        // What is left of a failing draw would fail the next.
        let result = result.and(router.install(enforcers[0].kernel.lock().unwrap().take_log()));
        router.flush();
        result
    });
}
