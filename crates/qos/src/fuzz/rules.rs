//! Properties of each QSPEC that a node forwards.

use crate::qspec::{
    Estimate, Message, Offer, Quality, Supported, Translation, check, enter, flagged, leave, malformed,
    meets, pass, refuse, reserve_for, respond,
};
use crate::wire::qspec::{Flags, MAX_RATE, ObjectType, ParameterId, Qspec, QspecType, Value};

/// A forwarded QSPEC is valid for the same message and has the same parameters. Only QoS Available, which gets worse,
/// and flags change. A refused QSPEC has an answer. Answers and Local QSPECs are valid too. Input: the value of a
/// QSPEC object.
pub fn qspec_rules(octets: &[u8]) {
    for message in [Message::Reserve, Message::Query, Message::Response, Message::Notify] {
        for offer in [Offer::of(Offer::UNLIMITED), poor()] {
            let mut out = vec![0xa5];
            match pass(octets, message, &offer, &mut out) {
                Ok(_) => {
                    let qspec = out.get(1..).unwrap_or_default();
                    passed_on(octets, message, qspec);
                    answered(qspec, message);
                }
                Err(_) => {
                    assert_eq!(out, [0xa5], "nothing of a QSPEC that is refused");
                    answer_is_valid(octets, message);
                }
            }
        }
    }
}

/// A node with few resources.
fn poor() -> Offer {
    let mut offer = Offer::of(Offer::UNLIMITED);
    offer.limit.rate = 100.0;
    offer.limit.bucket = 100.0;
    offer.limit.peak = MAX_RATE;
    offer.limit.min_policed = 70;
    offer.limit.max_packet = 50;
    offer.quality =
        Quality { latency: Estimate::Known(1), plr: Estimate::AtLeast(0.01), ..Quality::default() };
    offer.y1541 = Some(3);
    offer.supported = Supported::EVERYTHING;
    offer
}

fn passed_on(octets: &[u8], message: Message, out: &[u8]) {
    let (Ok(before), Ok(after)) = (Qspec::parse(octets), Qspec::parse(out)) else { panic!("not parsed") };
    assert_eq!(check(&after, message), Ok(()));
    assert_eq!((before.header, before.encapsulated()), (after.header, after.encapsulated()));
    assert_eq!(before.objects().count(), after.objects().count());
    for (before, after) in before.objects().zip(after.objects()) {
        assert_eq!(before.kind, after.kind);
        assert!(after.error || !before.error, "E stays");
        assert_eq!(before.parameters().count(), after.parameters().count());
        for (before, after) in before.parameters().zip(after.parameters()) {
            assert_eq!(before.id, after.id);
            assert!(after.flags.error || !before.flags.error, "E stays");
            if before.id != ParameterId::TMOD_1 {
                assert!(after.flags.not_supported || !before.flags.not_supported, "N stays");
                assert_eq!(before.flags.mandatory, after.flags.mandatory);
            }
            let (Ok(old), Ok(new)) = (before.value(), after.value()) else { panic!("not read") };
            if before.object != ObjectType::AVAILABLE || !matches!(message, Message::Reserve | Message::Query)
            {
                assert_eq!(old, new);
            } else if let (Value::Tmod1(old), Value::Tmod1(new)) | (Value::Tmod2(old), Value::Tmod2(new)) =
                (old, new)
            {
                // m grows, unless packets have become shorter than that.
                assert!(
                    new.rate <= old.rate && new.bucket <= old.bucket && new.peak <= old.peak,
                    "{old:?} became {new:?}"
                );
                assert!(new.max_packet <= old.max_packet, "{old:?} became {new:?}");
            } else {
                assert_ne!(meets(&old, &new), Some(false), "{old} became {new}");
            }
        }
    }
}

/// Answers to a forwarded QSPEC, and the same in a local domain.
fn answered(octets: &[u8], message: Message) {
    let good = |out: &[u8], message| match Qspec::parse(out) {
        Ok(qspec) => assert_eq!(check(&qspec, message), Ok(()), "{qspec}"),
        Err(error) => panic!("{error}"),
    };
    let mut out = Vec::new();
    if matches!(message, Message::Reserve | Message::Query) {
        let receiver = reserve_for(octets, &mut out).is_ok();
        if receiver {
            good(&out, Message::Reserve);
        }
        out.clear();
        if message == Message::Reserve && respond(octets, message, &mut out).is_ok() {
            good(&out, Message::Response);
        }
    }
    out.clear();
    assert_eq!(refuse(octets, Some(ParameterId::TMOD_1), &mut out), Ok(()));
    assert!(Qspec::parse(&out).is_ok_and(|refused| refused.objects().any(|object| object.error)));
    let translation = Translation {
        qspec_type: QspecType::RMD,
        keep: Supported::default(),
        peak_only: false,
        admission: None,
        phb: None,
    };
    let mut local = Vec::new();
    if enter(octets, &translation, &mut local).is_ok() {
        out.clear();
        assert_eq!(leave(&local, &mut out), Ok(()));
        assert!(Qspec::parse(&out).is_ok_and(|outside| check(&outside, message).is_ok()));
    }
}

/// The answers to a refused QSPEC.
fn answer_is_valid(octets: &[u8], message: Message) {
    let mut out = Vec::new();
    if malformed(octets, message, &mut out) {
        let Ok(shown) = Qspec::frame(&out) else { panic!("what is shown has no parts") };
        for object in shown.objects() {
            assert!(object.error && object.parameters().all(|parameter| parameter.flags.error));
        }
        assert!(out.len() < 4 + 4 * 8 + 256 * 3, "{} octets", out.len());
    } else {
        assert!(out.is_empty());
    }
    out.clear();
    if flagged(octets, message, &mut out) {
        assert_eq!(out.len(), octets.len());
        let flags = Flags::M | Flags::E;
        for (new, old) in out.iter().zip(octets) {
            assert!(new ^ old == 0 || (new ^ old) & !flags == 0 && new & old == *old, "only flags are set");
        }
    }
}
