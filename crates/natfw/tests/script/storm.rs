//! Messages, failures and answers of the kernel in any order.

use signalbox_core::pinhole::PinholeError;
use signalbox_core::rng::Random;
use signalbox_core::service::{NetworkEvent, RecvMessage, SendError, SiiHandle};
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Config, Middlebox};
use signalbox_natfw::wire::{FlowInfo, Info, Message, RuleAction};

use crate::rig::{
    EDGE, FAR, HOST, INSIDE, OUTSIDE, Rig, Sent, addr, boxed, create, error, external, loose, notify, octets,
    success, udp,
};

fn pick<T: Copy>(rng: &mut Random, of: &[T]) -> T {
    of[usize::try_from(rng.range(0..of.len() as u64)).unwrap()]
}

fn request(rng: &mut Random) -> (Mri, Message<'static>) {
    let (msn, lifetime) = (pick(rng, &[1, 2, 3, 4, 5, 6]), pick(rng, &[0, 20, 30, 5000]));
    let port = pick(rng, &[5000, 5001]);
    let efi =
        FlowInfo { action: RuleAction(pick(rng, &[1, 1, 1, 2, 3])), sub_ports: pick(rng, &[0, 0, 1, 2]) };
    let proxy = rng.chance(0.3);
    let message = if rng.chance(0.5) { create(msn, lifetime) } else { external(msn, lifetime, port) };
    let extend = proxy && rng.chance(0.3);
    let message = Message { efi: Some(efi), proxy, extend, nonce: proxy.then_some(3), ..message };
    let external = 40000 + u16::try_from(rng.range(0..8)).unwrap();
    let mri = match rng.range(0..5) {
        0 => loose(HOST, FAR),
        1 => Mri::PathCoupled(udp(HOST, port, FAR, 6000)),
        2 => Mri::PathCoupled(udp(FAR, 6000, HOST, port)),
        3 => Mri::PathCoupled(udp(FAR, 6000, EDGE, external)),
        _ => Mri::PathCoupled(udp(FAR, 6000, HOST, port)).inverted(),
    };
    (mri, message)
}

/// One step; what was sent is kept, so that it can be answered.
fn step(rig: &mut Rig, rng: &mut Random, sent: &mut Vec<Sent>) {
    rig.end = rng.chance(0.1);
    rig.answer =
        if rng.chance(0.1) { Err(pick(rng, &[PinholeError::Full, PinholeError::Failed])) } else { Ok(()) };
    let session = SessionId([pick(rng, &[0, 1, 2, 3]); 16]);
    let from = SiiHandle(rng.range(1..4));
    let ifindex = pick(rng, &[INSIDE, OUTSIDE]);
    let known = (!sent.is_empty())
        .then(|| sent.swap_remove(usize::try_from(rng.range(0..sent.len() as u64)).unwrap()));
    let new = match (rng.range(0..10), known) {
        (0..=3, Some(known)) => {
            let msn = known.message().msn.unwrap_or(1);
            let answer = match rng.range(0..3) {
                0 => error(msn, Info::INTERNAL),
                1 => success(msn, 7000),
                _ => success(msn, known.message().lifetime.unwrap_or(20)),
            };
            rig.answer(&known, &answer)
        }
        (4, Some(known)) if known.handle.is_some() => rig.failed(&known, SendError::NoNextNode),
        (5, _) => rig.network(Mri::PathCoupled(udp(HOST, 5000, FAR, 6000)), NetworkEvent::Bad),
        (6, _) => {
            let octets =
                octets(&notify(pick(rng, &[Info::ROUTE_CHANGE, Info::TERMINATED, Info::GOING_DOWN])));
            let mri = Mri::PathCoupled(udp(HOST, 5000, FAR, 6000));
            let received = rig.received(from, ifindex, mri, &octets);
            rig.indicate(RecvMessage { session, ..received })
        }
        (7, _) => rig.pass_secs(pick(rng, &[0, 1, 15, 40])),
        _ => {
            let (mri, message) = request(rng);
            let octets = octets(&message);
            let received = rig.received(from, ifindex, mri, &octets);
            let peer_address = Some(addr(if ifindex == INSIDE { HOST } else { FAR }));
            rig.indicate(RecvMessage { session, peer_address, ..received })
        }
    };
    sent.extend(new);
    sent.truncate(50);
    let opened = rig.holes.len();
    assert!(opened <= usize::try_from(rig.natfw.session_count()).unwrap(), "a rule without a session");
}

/// Whatever happens, each rule in the kernel belongs to a session, and when all lifetimes are over nothing is left: no
/// session, rule, passage or port.
#[test]
fn nothing_is_left_after_a_storm() {
    for seed in 0..300 {
        let mut rng = Random::from_number(seed);
        let middlebox = pick(&mut rng, &[Middlebox::None, Middlebox::Firewall, Middlebox::Nat]);
        let edge = rng.chance(0.5);
        let ports = Config { first_port: 40000, last_port: 40007, edge, ..boxed(middlebox) };
        let mut rig = Rig::with(ports);
        let mut sent = Vec::new();
        for _ in 0..200 {
            step(&mut rig, &mut rng, &mut sent);
        }
        rig.answer = Ok(());
        rig.pass_secs(8000);
        let left = (rig.natfw.session_count(), rig.holes.len(), rig.resources.passage_count());
        assert_eq!((left, rig.natfw.tables()[1].size), ((0, 0, 0), 0), "seed {seed}");
        assert_eq!(rig.natfw.next_deadline(), None, "seed {seed}");
    }
}
