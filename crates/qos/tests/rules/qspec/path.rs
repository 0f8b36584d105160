//! QSPECs that travel over several nodes.

use signalbox_qos::qspec::{Collect, Message, Offer, Quality, Supported, Wish};
use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, Flags, ObjectType, ParameterId, PhbClass, Procedure, Tmod, Value,
};

use super::support::*;

const D: ObjectType = ObjectType::DESIRED;
const A: ObjectType = ObjectType::AVAILABLE;
const MIN: ObjectType = ObjectType::MINIMUM;

/// QSPEC-3.2-08, QSPEC-4.3.1-02: over nodes with 100, 50 and 80, each node reserves the least value so far, and 50
/// arrives. QSPEC-3.2-06: QoS Desired and Minimum QoS arrive unchanged.
#[test]
fn the_bottleneck_arrives() {
    let desired = [
        (M, Value::Tmod1(tmod(100.0))),
        (PLAIN, Value::SlackTerm(3)),
        (PLAIN, Value::Unknown { id: ParameterId(259), octets: &[1, 2, 3, 4] }),
    ];
    let minimum = [(M, Value::Tmod1(tmod(20.0)))];
    for procedure in [Procedure::AVAILABLE, Procedure::MINIMUM] {
        let wish = Wish { minimum: &minimum, ..Wish::of(procedure, &desired) };
        let sent = compose(&wish);
        let (arrived, said) = along(&sent, Message::Reserve, &[node(100.0), node(50.0), node(80.0)]);
        let reserved: Vec<_> = said.iter().map(|passed| passed.demand.tmod.unwrap().rate).collect();
        assert_eq!(reserved, [100.0, 50.0, 50.0]);
        assert!(said.iter().all(|passed| !passed.failed));
        assert_eq!(rate(&arrived, A), 50.0);
        assert_eq!(values(&arrived, D), values(&sent, D));
        if procedure == Procedure::MINIMUM {
            assert_eq!(values(&arrived, MIN), values(&sent, MIN));
        }
        // QoS Desired without QoS Available is requested unchanged.
        assert!(said.iter().all(|passed| passed.demand.slack_us == Some(3)));
    }
}

/// QSPEC-4.3.1-01, QSPEC-3.3.1-07: with QoS Desired alone the request is granted completely or not at all, also for the
/// packet size.
#[test]
fn exactly_what_is_desired() {
    let desired = [(M, Value::Tmod1(tmod(100.0)))];
    let mtu = |mtu| Offer::of(Tmod { max_packet: mtu, ..Offer::UNLIMITED });
    for (procedure, message) in
        [(Procedure::DESIRED, Message::Reserve), (Procedure::RECEIVER_DESIRED, Message::Reserve)]
    {
        let sent = compose(&Wish::of(procedure, &desired));
        for (offer, good) in [
            (node(100.0), true),
            (node(99.0), false),
            (mtu(1500), true),
            (mtu(1499), false),
            (Offer::of(Tmod { bucket: 9_999.0, ..Offer::UNLIMITED }), false),
        ] {
            let (out, passed) = at(&sent, message, &offer);
            assert_eq!(passed.failed, !good);
            assert_eq!(flags(&out, D, ParameterId::TMOD_1).error, !good);
            assert_eq!(rate(&out, D), 100.0);
        }
    }
    // A QUERY only informs the receiver of QoS Desired.
    let sent = compose(&Wish::of(Procedure::RECEIVER_DESIRED, &desired));
    assert!(!at(&sent, Message::Query, &node(1.0)).1.failed);
}

/// QSPEC-3.3.1-12, QSPEC-3.2-07: the smallest r, b, p and MPS and the largest m of all nodes; every parameter of QoS
/// Available is processed.
#[test]
fn each_value_has_its_own_bottleneck() {
    let wide = Tmod { rate: 900.0, bucket: 900.0, peak: 900.0, min_policed: 10, max_packet: 9000 };
    let desired = [
        (M, Value::Tmod1(wide)),
        (PLAIN, Value::Tmod2(wide)),
        (PLAIN, Value::TmodExtension(900.0)),
        (PLAIN, Value::Y1541(0)),
    ];
    let collect = Collect { latency: true, jitter: true, plr: true, per: true };
    let sent = compose(&Wish { collect, ..Wish::of(Procedure::AVAILABLE, &desired) });
    let with = |limit| Offer { supported: Supported::EVERYTHING, y1541: Some(0), ..Offer::of(limit) };
    let base = Offer::UNLIMITED;
    let nodes = [
        with(Tmod { rate: 100.0, ..base }),
        with(Tmod { bucket: 200.0, ..base }),
        with(Tmod { peak: 300.0, ..base }),
        with(Tmod { min_policed: 40, ..base }),
        Offer { y1541: Some(2), ..with(Tmod { max_packet: 1500, ..base }) },
    ];
    let (arrived, said) = along(&sent, Message::Reserve, &nodes);
    assert!(said.iter().all(|passed| !passed.failed));
    let left = Tmod { rate: 100.0, bucket: 200.0, peak: 300.0, min_policed: 40, max_packet: 1500 };
    assert_eq!(value(&arrived, A, ParameterId::TMOD_1), Value::Tmod1(left));
    assert_eq!(value(&arrived, A, ParameterId::TMOD_2), Value::Tmod2(left));
    assert_eq!(value(&arrived, A, ParameterId::TMOD_EXTENSION), Value::TmodExtension(200.0));
    assert_ne!(value(&arrived, A, ParameterId::PATH_JITTER), value(&sent, A, ParameterId::PATH_JITTER));
    assert_ne!(value(&arrived, A, ParameterId::PATH_PLR), value(&sent, A, ParameterId::PATH_PLR));
    assert_ne!(value(&arrived, A, ParameterId::PATH_PER), value(&sent, A, ParameterId::PATH_PER));
    // Jitter and loss are unknown: no class with limits for them holds.
    assert_eq!(value(&arrived, A, ParameterId::Y1541_CLASS), Value::Y1541(5));
    assert_eq!(values(&arrived, D), values(&sent, D));
}

/// QSPEC-3.2-09: no parameter of QoS Available is ever deleted, whether supported or not.
#[test]
fn nothing_is_deleted() {
    let unknown = Value::Unknown { id: ParameterId(300), octets: &[9, 9, 9, 9] };
    let all = [
        (M, Value::Tmod1(tmod(100.0))),
        (PLAIN, Value::Dste(3)),
        (PLAIN, unknown),
        (PLAIN, Value::Phb(PhbClass::dscp(46))),
        (PLAIN, Value::PathLatency(1)),
    ];
    let sent = qspec(Procedure::AVAILABLE, &[(D, &all[..1]), (A, &all)]);
    let poor = Offer { supported: Supported::NOTHING, ..node(1.0) };
    let (arrived, _) = along(&sent, Message::Reserve, &[poor, node(5.0)]);
    let ids = |octets: &[u8]| object(octets, A).parameters().map(|p| p.id).collect::<Vec<_>>();
    assert_eq!(ids(&arrived), ids(&sent));
    assert_eq!(value(&arrived, A, ParameterId(300)), unknown);
}

/// QSPEC-3.2-12, QSPEC-4.3.1-06, QSPEC-3.2-11: a value at the minimum passes. Below it the reservation fails with E on
/// the parameter that is too small; for delays, jitter and loss, above it. A parameter without a minimum has no limit.
#[test]
fn minimum() {
    let jitter = |us| {
        let jitter = signalbox_qos::wire::qspec::Jitter { variance: us, percentile: us, minimum: us };
        Value::PathJitter(jitter)
    };
    let desired = [
        (M, Value::Tmod1(tmod(100.0))),
        (PLAIN, Value::PathLatency(0)),
        (PLAIN, jitter(0)),
        (PLAIN, Value::PathPlr(0.0)),
        (PLAIN, Value::PathPer(0.0)),
        (PLAIN, Value::Y1541(0)),
    ];
    use signalbox_qos::qspec::Estimate::Known;
    let quality = Quality {
        latency: Known(1000),
        jitter: Known(signalbox_qos::wire::qspec::Jitter { variance: 10, percentile: 10, minimum: 10 }),
        plr: Known(1e-3),
        per: Known(1e-3),
    };
    let offer = Offer { quality, y1541: Some(3), ..node(60.0) };
    for (minimum, good) in [
        (Value::Tmod1(tmod(60.0)), true),
        (Value::Tmod1(tmod(61.0)), false),
        (Value::Tmod1(Tmod { bucket: 10_001.0, ..tmod(60.0) }), false),
        (Value::Tmod1(Tmod { peak: 1.1e6, ..tmod(60.0) }), false),
        (Value::Tmod1(Tmod { peak: f32::INFINITY, ..tmod(60.0) }), true),
        (Value::Tmod1(Tmod { min_policed: 63, ..tmod(60.0) }), false),
        (Value::Tmod1(Tmod { max_packet: 1501, ..tmod(60.0) }), false),
        (Value::PathLatency(1000), true),
        (Value::PathLatency(999), false),
        (jitter(10), true),
        (jitter(9), false),
        (Value::PathPlr(1e-3), true),
        (Value::PathPlr(0.9e-3), false),
        (Value::PathPer(1e-3), true),
        (Value::PathPer(0.9e-3), false),
        (Value::Y1541(3), true),
        (Value::Y1541(4), true),
        (Value::Y1541(2), false),
    ] {
        let minimum = [(PLAIN, minimum)];
        let sent = compose(&Wish { minimum: &minimum, ..Wish::of(Procedure::MINIMUM, &desired) });
        let (out, passed) = at(&sent, Message::Reserve, &offer);
        assert_eq!(passed.failed, !good, "{}", minimum[0].1);
        for kind in [A, MIN] {
            assert_eq!(flags(&out, kind, minimum[0].1.id()).error, !good, "{}", minimum[0].1);
            assert_eq!(object(&out, kind).error, !good);
        }
    }
}

/// Without any resources left no reservation is possible; a QUERY returns the smallest valid value.
#[test]
fn nothing_left() {
    let desired = [(M, Value::Tmod1(tmod(100.0)))];
    let sent = compose(&Wish::of(Procedure::AVAILABLE, &desired));
    let (out, passed) = at(&sent, Message::Reserve, &node(0.0));
    assert!(passed.failed && flags(&out, A, ParameterId::TMOD_1).error);
    let sent = compose(&Wish::of(Procedure::QUERY, &desired));
    let (out, passed) = at(&sent, Message::Query, &node(0.0));
    assert!(!passed.failed);
    assert_eq!(rate(&out, A), 1.0);
}

/// QSPEC-4.3.1-03, QSPEC-3.3.2-01: QoS Available starts with QoS Desired, sums start at zero. Desired sums are
/// collected by default, directives are not (QSPEC-3.3.3-01). The initiator decides on M (QSPEC-3.3-02).
#[test]
fn how_available_starts() {
    let desired = [
        (M, Value::Tmod1(tmod(100.0))),
        (PLAIN, Value::PathLatency(5000)),
        (M, Value::PathPlr(1e-3)),
        (PLAIN, Value::Admission(Admission::y2171(AdmissionPriority::HIGH))),
    ];
    let collect = Collect { latency: true, per: true, ..Collect::default() };
    let sent = compose(&Wish { collect, ..Wish::of(Procedure::AVAILABLE, &desired) });
    let found: Vec<_> = object(&sent, A).parameters().map(|p| (p.flags, p.value().unwrap())).collect();
    assert_eq!(
        found,
        [desired[0], (PLAIN, Value::PathLatency(0)), (M, Value::PathPlr(0.0)), (PLAIN, Value::PathPer(0.0))]
    );
    let marked: Vec<_> = object(&sent, D).parameters().map(|p| p.flags.mandatory).collect();
    assert_eq!(marked, [true, false, true, false]);
}

/// QSPEC-3.3.1-10, QSPEC-3.3.2-03, QSPEC-3.3.2-05, QSPEC-3.3.2-07, QSPEC-3.3.2-09: the initiator counts the ingress
/// link of the traffic once.
#[test]
fn ingress_link() {
    use signalbox_qos::qspec::Estimate::Known;
    let jitter = signalbox_qos::wire::qspec::Jitter { variance: 1, percentile: 2, minimum: 3 };
    let ingress = Quality { latency: Known(11), jitter: Known(jitter), plr: Known(1e-4), per: Known(1e-5) };
    let desired = [(M, Value::Tmod1(tmod(100.0)))];
    let wish = Wish {
        collect: Collect { latency: true, jitter: true, plr: true, per: true },
        ingress_limit: Some(Tmod { rate: 40.0, ..Offer::UNLIMITED }),
        ingress: Some(ingress),
        ..Wish::of(Procedure::AVAILABLE, &desired)
    };
    let sent = compose(&wish);
    assert_eq!(
        values(&sent, A)[1..],
        [Value::PathLatency(11), Value::PathJitter(jitter), Value::PathPlr(1e-4), Value::PathPer(1e-5)]
    );
    assert_eq!((rate(&sent, A), rate(&sent, D)), (40.0, 100.0));
    let quality = Quality { latency: Known(5), ..ingress };
    let (out, passed) = at(&sent, Message::Reserve, &Offer { quality, ..node(90.0) });
    assert_eq!(value(&out, A, ParameterId::PATH_LATENCY), Value::PathLatency(16));
    assert_eq!((rate(&out, A), passed.demand.tmod.unwrap().rate), (40.0, 40.0));
}

/// QSPEC-5.2.9-02: the Y.2171 field has the same value at the end, in QoS Available as well.
#[test]
fn y2171_is_left_alone() {
    for y2171 in [0, 1, 2, 77, 0xff] {
        let admission = Admission { y2171: AdmissionPriority(y2171), priority: 9 };
        let both = [(M, Value::Tmod1(tmod(100.0))), (PLAIN, Value::Admission(admission))];
        let sent = qspec(Procedure::AVAILABLE, &[(D, &both), (A, &both)]);
        let (arrived, _) = along(&sent, Message::Reserve, &[node(50.0), node(40.0)]);
        for kind in [D, A] {
            assert_eq!(value(&arrived, kind, ParameterId::ADMISSION_PRIORITY), Value::Admission(admission));
        }
    }
}

/// QSPEC-3.3.4-01: a node informs the initiator of the marking by the PHB Class in QoS Available.
#[test]
fn phb_class_is_set_by_nodes() {
    let both = [(M, Value::Tmod1(tmod(100.0))), (PLAIN, Value::Phb(PhbClass::dscp(0)))];
    let sent = qspec(Procedure::AVAILABLE, &[(D, &both), (A, &both)]);
    let ef = Offer { phb: Some(PhbClass::dscp(46)), ..node(500.0) };
    let (arrived, _) = along(&sent, Message::Reserve, &[node(500.0), ef, node(500.0)]);
    assert_eq!(value(&arrived, A, ParameterId::PHB_CLASS), Value::Phb(PhbClass::dscp(46)));
    assert_eq!(value(&arrived, D, ParameterId::PHB_CLASS), Value::Phb(PhbClass::dscp(0)));
}

/// The example of RFC 5976 §4.4: a path of 150 ms cannot be class 0, but class 1, whose latency is reported.
#[test]
fn y1541_class_is_negotiated() {
    use signalbox_qos::qspec::Estimate::Known;
    let jitter = signalbox_qos::wire::qspec::Jitter { variance: 1, percentile: 10, minimum: 1 };
    let quality =
        Quality { latency: Known(75_000), jitter: Known(jitter), plr: Known(1e-6), per: Known(0.0) };
    let desired = [
        (M, Value::Tmod1(tmod(100.0))),
        (M, Value::PathLatency(100_000)),
        (M, Value::PathJitter(jitter)),
        (M, Value::PathPlr(1e-3)),
        (M, Value::Y1541(0)),
    ];
    let minimum = [(M, Value::Y1541(1))];
    let sent = compose(&Wish { minimum: &minimum, ..Wish::of(Procedure::MINIMUM, &desired) });
    let offer = Offer { quality, y1541: Some(0), ..node(1e6) };
    let (arrived, said) = along(&sent, Message::Reserve, &[offer, offer]);
    assert_eq!(said.iter().map(|p| p.demand.y1541).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert!(said.iter().all(|p| !p.failed));
    assert_eq!(value(&arrived, A, ParameterId::PATH_LATENCY), Value::PathLatency(150_000));
    let (_, said) = along(&sent, Message::Reserve, &[offer; 6]);
    assert!(said.last().unwrap().failed, "450 ms is class 4");
    let desired_only = compose(&Wish::of(Procedure::DESIRED, &desired[..1]));
    assert_eq!(at(&desired_only, Message::Reserve, &offer).1.demand.y1541, None);
    let exact = [desired[0], (PLAIN, Value::Y1541(0))];
    let exact = compose(&Wish::of(Procedure::DESIRED, &exact));
    assert!(!at(&exact, Message::Reserve, &offer).1.failed);
    assert!(at(&exact, Message::Reserve, &Offer { y1541: Some(1), ..offer }).1.failed);
}

/// The composed flags of TMOD-1 are the required ones for any input.
#[test]
fn flags_of_tmod_1() {
    let mut octets = compose(&Wish::of(Procedure::DESIRED, &[(M, Value::Tmod1(tmod(100.0)))]));
    octets[8] = 0x20;
    let (out, passed) = at(&octets, Message::Reserve, &node(100.0));
    assert_eq!(flags(&out, D, ParameterId::TMOD_1), Flags::MANDATORY);
    assert!(!passed.failed && !passed.not_supported);
}
