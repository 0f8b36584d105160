//! A gateway that starts in place of another one.

use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_gist::gateway::{Config, Forward, Input};

use crate::adopted::handshake;
use crate::rig::*;

fn gateway(config: Config, sides: [&str; 2], seed: u8) -> Rig {
    Rig::between(Config { forwards: Vec::new(), ..config }, sides, seed)
}

/// What a gateway leaves that has the flow of a host.
fn left(rig: &Rig) -> Entries {
    let mut entries = Entries::default();
    rig.0.gateway.hand_over(rig.0.now, &mut entries);
    entries
}

/// The gateway that starts in the place of another one, with this configuration and these addresses.
fn successor(config: Config, sides: [&str; 2], entries: Entries) -> Rig {
    let mut rig = gateway(config, sides, 8);
    rig.0.gateway.take_over(rig.0.now, entries);
    rig.drain();
    rig
}

/// O08: a flow that its host asked for stands at once after a planned restart, with its port and for the time that was left. The next Query
/// finds it, and without one it ends.
#[test]
fn a_flow_stands_over_a_planned_restart() {
    let mut rig = gateway(config(), [GATE, EXTERNAL], 7);
    let port = handshake(&mut rig);
    let flow = |rig: &Rig| rig.binding(17, Some((HOST, Some(5000))), (FAR, 6000)).cloned();
    let before = flow(&rig).unwrap();
    assert!(rig.gateway.leaves(before.id));
    rig.until(30);
    let entries = left(&rig);
    let mut rig = successor(config(), [GATE, EXTERNAL], entries.clone());
    let after = flow(&rig).unwrap();
    assert_eq!((after.pinhole, after.lifetime), (before.pinhole, before.lifetime - Duration::from_secs(30)));
    assert_eq!(handshake(&mut rig), port);
    assert!(flow(&rig).is_some_and(|again| again.id == after.id));
    let mut rig = successor(config(), [GATE, EXTERNAL], entries);
    rig.until(300);
    assert_eq!((flow(&rig).is_none(), rig.gateway.tables().map(|table| table.size)), (true, [0, 0]));
}

/// What is reserved only, and what is left without a Response, is not left; nothing of it stands where the present sides, address or ports do
/// not allow it, nor what somebody changed in the file beyond them.
#[test]
fn a_flow_that_is_not_possible_here_is_left_out() {
    let mut rig = gateway(config(), [GATE, EXTERNAL], 7);
    rig.outward(&query(outbound(), HOST));
    rig.unwatched();
    let opened = |rig: &Rig| rig.standing.len();
    assert_eq!(opened(&successor(config(), [GATE, EXTERNAL], left(&rig))), 0);
    let mut rig = gateway(config(), [GATE, EXTERNAL], 7);
    let port = handshake(&mut rig);
    let entries = left(&rig);
    assert_eq!(opened(&successor(config(), [GATE, EXTERNAL], entries.clone())), 1);
    let (first_port, last_port) = if port < 30_000 { (40_000, 50_000) } else { (10_000, 20_000) };
    let ports = Config { first_port, last_port, ..config() };
    let sides = Config { inside: vec!["eth3".to_owned()], ..config() };
    for (config, sides) in
        [(ports, [GATE, EXTERNAL]), (sides, [GATE, EXTERNAL]), (config(), [GATE, "203.0.113.9"])]
    {
        assert_eq!(opened(&successor(config, sides, entries.clone())), 0);
    }
    let mut all = entries;
    let flow = all.take().unwrap().to_vec();
    for at in 0..flow.len() {
        for value in [0, 1, 6, 0x7f, 0xff] {
            let mut changed = flow.clone();
            changed[at] = value;
            let mut entries = Entries::default();
            assert!(entries.push(&changed));
            let rig = successor(config(), [GATE, EXTERNAL], entries);
            for open in &rig.standing {
                let pinhole = &open.pinhole;
                let external = pinhole.source.map_or(pinhole.packets.dst.addr, |source| source.address);
                assert_eq!(external, ip(EXTERNAL));
                assert!(open.lifetime <= config().max_lifetime);
            }
        }
    }
}

/// O08: a flow of an end to which the operator forwards a port stands over a planned restart too, in both directions, also with a port out
/// of the range for other hosts. It does not where the next configuration forwards the port to another end, or to no end and the port is out of the range.
#[test]
fn a_flow_of_a_forwarded_port_stands_over_a_planned_restart() {
    for first_port in [7000, 20_000] {
        let forward = Forward { first_port, last_port: first_port, ..config().forwards[0] };
        let with = |forwards| Config { forwards, ..config() };
        for flow in [outbound(), upstream(udp((FAR, 6000), (HOST, 5000)))] {
            let mut rig = Rig::with(with(vec![forward]));
            let signal = |rig: &mut Rig| {
                rig.outward(&query(flow, HOST));
                let sent = rig.sent();
                let answer = encode(&response(&sent.message(), FAR));
                rig.packet(&Via::normal(OUTSIDE, at(FAR, 270), sent.src), &answer);
                rig.unwatched();
                [sent.mri().src_port, sent.mri().dst_port]
            };
            let ports = signal(&mut rig);
            assert!(ports.contains(&Some(first_port)), "{ports:?}");
            let of_flow = |open: &&Open| {
                [open.pinhole.packets.src_port, open.pinhole.packets.dst_port].contains(&Some(6000))
            };
            let before = rig.standing.iter().find(of_flow).cloned().unwrap();
            assert!(rig.gateway.leaves(before.id));
            let entries = left(&rig);
            let again = |forwards| {
                let mut rig = Rig::between(with(forwards), [GATE, EXTERNAL], 8);
                rig.0.gateway.take_over(rig.0.now, entries.clone());
                rig.drain();
                rig
            };
            let mut rig = again(vec![forward]);
            let after = rig.standing.iter().find(of_flow).cloned().unwrap();
            assert_eq!((after.pinhole, after.lifetime), (before.pinhole, before.lifetime));
            assert_eq!(signal(&mut rig), ports);
            assert!(rig.standing.iter().any(|open| open.id == after.id), "the next Query finds it");
            rig.until(300);
            assert_eq!((rig.standing.len(), rig.gateway.tables().map(|table| table.size)), (0, [0, 0]));
            let other_host = Forward { address: v4(SECOND), ..forward };
            assert!(again(vec![other_host]).standing.is_empty());
            if first_port == 7000 {
                assert!(again(Vec::new()).standing.is_empty());
            }
        }
    }
}

/// O08: an end inside keeps its external port, although the next gateway would draw another one. It is free if no request comes for it, and
/// for its flow, in their time.
#[test]
fn an_end_keeps_its_port_over_a_restart() {
    let mut rig = gateway(config(), [GATE, EXTERNAL], 7);
    let port = handshake(&mut rig);
    let entries = left(&rig);
    let again = |entries: &Entries| successor(config(), [GATE, EXTERNAL], entries.clone());
    assert_ne!(handshake(&mut again(&Entries::default())), port);
    assert_eq!(handshake(&mut again(&entries)), port);
    let mut rig = again(&entries);
    let [_, ports] = rig.gateway.tables();
    assert!(ports.size > 0, "{ports:?}");
    let end = rig.now + Duration::from_secs(122);
    assert!(rig.gateway.next_deadline().is_some_and(|due| due <= end));
    rig.gateway.handle(end, Input::Timer);
    let [_, ports] = rig.gateway.tables();
    assert_eq!(ports.size, 0);
}
