//! Rows with gateways under loss, reordering, duplication, links that go down, crashes, and NATs that lose their bindings.
//!
//! * **One refresh period and a handshake after the end of the faults every session is whole again**: both hosts have state, and probes
//!   are answered.
//! * **The bindings of a gateway are bounded at each moment**: one for each flow, and those of datagrams for each port that the
//!   Querying node had. That port can change when a gateway nearer to the Querying node starts again. [`most`] has the number.
//! * **When the hosts stop, all bindings end** within two minutes, which is their shortest life (RFC 4787 REQ-5).

use core::time::Duration;

use signalbox_core::Time;
use signalbox_node::ping;
use signalbox_node::{Command, Config};
use signalbox_sim::{Impairment, Sim};

use super::{FORWARDED, Net, SECOND, TO};
use crate::net::{config, gist, replies, sessions};
use crate::parts::run_part;

/// Number of seeds, unless the environment variable `SIGNALBOX_SEEDS` is set.
const SEEDS: u64 = 60;
const PINGS: u16 = 3;
/// Validity of routing state: a refresh comes after half to three quarters of it.
const VALIDITY: Duration = Duration::from_secs(6);
/// A handshake with its repetitions, after a Query that was lost in the last moment of the faults.
const HANDSHAKE: Duration = Duration::from_secs(2);

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

fn host() -> Config {
    let mut config = config();
    let gist = gist(&mut config);
    gist.validity = VALIDITY;
    gist.inactivity = VALIDITY;
    gist.t1 = Duration::from_millis(200);
    gist.t2 = SECOND;
    gist.attempts = 4;
    config
}

/// The most bindings of one gateway of a row, after this number of starts of gateways. A gateway that does not run leaves the MRI of
/// a Query as it is, so that a flow has up to one source for each gateway before the sender.
const fn most(before: usize, starts: usize) -> usize {
    (1 + before) * (PINGS as usize + 3 * (1 + starts))
}

fn run(seed: u64) {
    let mut random = Sim::<signalbox_node::Node>::new(seed).random(1);
    let before = 1 + usize::from(random.chance(0.5));
    let mut net = Net::new(seed, before, host);
    for link in net.links.clone() {
        net.sim.set_impairment(link, BAD);
    }
    for id in 0..PINGS {
        net.ping(id.into(), TO + id % FORWARDED, None);
    }
    let gateways = net.gateways();
    let mut starts = 0;
    for _ in 0..8 {
        for _ in 0..10 {
            net.sim.run_for(Duration::from_millis(50 + random.range(0..150)));
            for node in &gateways {
                let table = net.sim.engine(*node).map(|engine| engine.gist_nat().unwrap().tables()[0].size);
                let bindings = table.unwrap_or_default() as usize;
                assert!(
                    bindings <= most(before, starts),
                    "{bindings} bindings, {starts} starts, seed {seed}"
                );
            }
        }
        let gateway = gateways[usize::try_from(random.range(0..gateways.len() as u64)).unwrap()];
        let link = net.links[usize::try_from(random.range(0..net.links.len() as u64)).unwrap()];
        match random.range(0..4) {
            0 => {
                net.sim.restart(gateway);
                starts += 1;
            }
            1 => {
                // A reboot: the kernel removes its bindings too.
                net.sim.lose_pinholes(gateway);
                net.sim.restart(gateway);
                starts += 1;
            }
            2 => net.sim.crash(gateway),
            _ => net.sim.set_link_up(link, random.chance(0.5)),
        }
    }
    for link in net.links.clone() {
        net.sim.set_link_up(link, true);
        net.sim.set_impairment(link, Impairment::default());
    }
    for node in &gateways {
        if net.sim.engine(*node).is_none() {
            net.sim.restart(*node);
        }
    }
    net.sim.run_for(VALIDITY + HANDSHAKE);
    let since = net.sim.now();
    net.sim.run_for(SECOND * 3);
    for id in 0..PINGS {
        let good = answered(&net, id.into(), since);
        assert!(good >= 2, "{good} replies to ping {id}, {before} gateways before the sender, seed {seed}");
    }
    assert_eq!(sessions(&net.sim, net.nodes[0]), PINGS.into(), "seed {seed}");
    for id in 0..PINGS {
        net.sim.command(net.nodes[0], Command::Ping { id: id.into(), command: ping::Command::Stop });
    }
    net.sim.run_for(VALIDITY * 3 + SECOND * 125);
    assert_eq!(net.bindings(), 0, "seed {seed}");
}

/// Replies of the other host to probes since that time.
fn answered(net: &Net, id: u64, since: Time) -> usize {
    let replies = replies(&net.sim, id);
    replies.iter().filter(|(at, reply)| *at - reply.rtt > since && reply.reached_end).count()
}

#[test]
fn after_a_storm_every_session_is_whole_and_the_bindings_are_bounded() {
    run_part(0, 1, SEEDS, run);
}
