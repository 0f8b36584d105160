//! Arbitrary messages in any order: no panic, no reservation beyond the capacity, and no state at the end.

use signalbox_core::rng::Random;
use signalbox_core::{SessionId, Time};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{GenericFlags, Info, Message, MessageFlags, MessageType};

use crate::rig::{BEFORE, BEHIND, OTHER, Rig, SESSION, flow, octets, qspec, query_qspec, reserve};

#[test]
fn a_changed_octet_never_harms_the_node() {
    let some = qspec(10_000);
    let whole = octets(&Message { rii: Some(1), refresh_period: Some(5000), ..reserve(0, &some) });
    let mut rig = Rig::with(Config { answer_faults: true, ..Config::default() });
    for at in 0..whole.len() {
        for change in [1u8, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= change;
            rig.receive_octets(BEFORE, flow(), SESSION, &changed);
            rig.receive_octets(BEHIND, flow().inverted(), SESSION, &changed[..changed.len() - 4]);
        }
    }
    assert!(rig.held() <= 93_750);
}

#[test]
fn after_any_storm_what_is_held_is_what_sessions_hold_and_in_the_end_nothing() {
    for seed in 0..20 {
        let mut rng = Random::from_number(seed);
        let mut rig =
            Rig::with(Config { summary: 4, acknowledged_refresh: seed % 2 == 0, ..Config::default() });
        for _ in 0..400 {
            let session = SessionId([u8::try_from(rng.range(1..9)).unwrap(); 16]);
            let rate = u16::try_from(rng.range(1..30)).unwrap() * 1000;
            let some = if rng.chance(0.8) { qspec(rate) } else { Vec::new() };
            let rsn = u32::try_from(rng.range(0..6)).unwrap();
            let from = [BEFORE, BEFORE, OTHER, BEHIND][usize::try_from(rng.range(0..4)).unwrap()];
            let query = query_qspec(rate);
            let rii = rng.chance(0.5).then(|| u32::try_from(rng.range(0..9)).unwrap());
            let message = match rng.range(0..8) {
                0..=3 => Message { rii, ..reserve(rsn, &some) },
                4 => Message { flags: MessageFlags::TEAR, rii, ..reserve(rsn, &[]) },
                5 => Message { rii: Some(3), qspec: Some(&query), ..Message::new(MessageType::QUERY) },
                6 => Message {
                    rii,
                    rsn: Some(signalbox_qos::wire::Rsn { number: rsn, epoch: 1 }),
                    info: Some(Info::CATALOGUE[usize::try_from(rng.range(0..30)).unwrap()].into()),
                    ..Message::new(MessageType::RESPONSE)
                },
                _ => Message {
                    generic: GenericFlags::BREAK,
                    info: Some(Info::CATALOGUE[usize::try_from(rng.range(0..30)).unwrap()].into()),
                    ..Message::new(MessageType::NOTIFY)
                },
            };
            // Each session has its own flow, so that sessions do not share.
            let signalbox_core::Mri::PathCoupled(mut mri) = flow() else { panic!() };
            mri.dst_port = Some(session.0[0].into());
            let mri = signalbox_core::Mri::PathCoupled(mri);
            let mri = if from == BEHIND { mri.inverted() } else { mri };
            for sent in rig.receive_octets(from, mri, session, &octets(&message)) {
                rig.sent(&sent);
            }
            if rng.chance(0.2) {
                let later = Time::from_micros(rig.now.as_micros() + rng.range(0..20_000_000));
                rig.until(later);
            }
            assert!(rig.held() <= 93_750, "{seed}");
            let sessions: u64 = rig.qos.view(rig.now).map(|view| view.rate).sum();
            assert_eq!(rig.held(), sessions, "{seed}");
        }
        let end = Time::from_micros(rig.now.as_micros() + 1_000_000_000);
        rig.until(end);
        assert_eq!((rig.held(), rig.qos.sessions(), rig.qos.next_deadline()), (0, 0, None), "{seed}");
    }
}
