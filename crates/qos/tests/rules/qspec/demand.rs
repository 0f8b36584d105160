//! From a QSPEC to admission control.

use proptest::prelude::*;
use signalbox_core::traffic::{self, ServiceClass, TrafficSpec};
use signalbox_qos::qspec::{Demand, Message, Offer, Supported, Wish, limit_of, tmod_of, traffic_of};
use signalbox_qos::wire::qspec::{
    Admission, AdmissionPriority, Excess, ExcessTreatment, Flags, PhbClass, Preemption, Procedure, Rph, Tmod,
    Value,
};

use super::support::*;

fn demand_of(more: &[(Flags, Value<'_>)]) -> Demand {
    let mut desired = vec![(M, Value::Tmod1(tmod(100.0)))];
    desired.extend_from_slice(more);
    let offer = Offer { supported: Supported::EVERYTHING, y1541: Some(0), ..node(1e6) };
    at(&compose(&Wish::of(Procedure::DESIRED, &desired)), Message::Reserve, &offer).1.demand
}

/// QSPEC-5.2.9-08: without Admission Priority a reservation counts as one of Y.2171 priority 1.
#[test]
fn no_priority_is_normal() {
    let none = demand_of(&[]);
    let normal = demand_of(&[(PLAIN, Value::Admission(Admission::y2171(AdmissionPriority::NORMAL)))]);
    assert_eq!(none.admission, normal.admission);
    assert_eq!(none.priorities(), normal.priorities());
    assert_eq!(none.admission.y2171, AdmissionPriority(1));
}

/// QSPEC-5.2.9-03, QSPEC-5.2.8-03: high is above normal, and normal is above best effort, and the priorities of RFC
/// 3181 go to admission control as they are. Beside an RPH Priority the Admission Priority still counts.
/// QSPEC-5.2.9-06: with Y.2171 both fields have the same value, otherwise the first is all ones.
#[test]
fn priorities() {
    let priorities = |admission| demand_of(&[(PLAIN, Value::Admission(admission))]).priorities();
    let [low, normal, high] =
        [AdmissionPriority::BEST_EFFORT, AdmissionPriority::NORMAL, AdmissionPriority::HIGH]
            .map(Admission::y2171)
            .map(priorities);
    assert!(low.preemption < normal.preemption && normal.preemption < high.preemption);
    assert!(low.defending < normal.defending && normal.defending < high.defending);
    assert!(priorities(Admission::local(9)).preemption > priorities(Admission::local(8)).preemption);
    let explicit = Preemption { preemption: 3, defending: 400 };
    let both =
        demand_of(&[(PLAIN, Value::Preemption(explicit)), (PLAIN, Value::Admission(Admission::local(9)))]);
    assert_eq!(both.priorities(), explicit);
    for n in 0..3 {
        let admission = Admission::y2171(AdmissionPriority(n));
        assert_eq!((admission.y2171.0, admission.priority), (n, n));
    }
    assert_eq!(Admission::local(7), Admission { y2171: AdmissionPriority(0xff), priority: 7 });
    let rph = demand_of(&[
        (PLAIN, Value::Admission(Admission::local(9))),
        (PLAIN, Value::Rph(Rph { namespace: 1, priority: 2 })),
    ]);
    assert_eq!(rph.priorities(), priorities(Admission::local(9)));
}

#[test]
fn services() {
    assert_eq!(demand_of(&[]).service(), ServiceClass::ControlledLoad);
    let ef = (PLAIN, Value::Phb(PhbClass::dscp(46)));
    assert_eq!(demand_of(&[ef]).service(), ServiceClass::Dscp(46));
    let slack = (PLAIN, Value::SlackTerm(0));
    assert_eq!(demand_of(&[slack, ef]).service(), ServiceClass::Guaranteed);
    assert_eq!(demand_of(&[slack, ef]).dscp(), Some(46));
}

/// The kernel drops excess traffic if that is requested; other treatments do not appear in the request.
#[test]
fn excess_traffic() {
    let excess =
        |treatment, remark| demand_of(&[(PLAIN, Value::Excess(Excess { treatment, remark }))]).excess();
    assert_eq!(excess(ExcessTreatment::DROP, None), Some(traffic::Excess::Drop));
    assert_eq!(excess(ExcessTreatment::RE_MARK, Some(0)), None);
    assert_eq!(excess(ExcessTreatment::NO_METERING, None), None);
    assert_eq!(excess(ExcessTreatment::SHAPE, None), None);
    assert_eq!(demand_of(&[]).excess(), None);
}

/// The request to admission control omits parameters that the node does not support.
#[test]
fn unsupported_is_not_demanded() {
    let desired =
        [(M, Value::Tmod1(tmod(1.0))), (PLAIN, Value::SlackTerm(1)), (PLAIN, Value::Phb(PhbClass::dscp(8)))];
    let sent = compose(&Wish::of(Procedure::DESIRED, &desired));
    let (_, passed) = at(&sent, Message::Reserve, &Offer { supported: Supported::NOTHING, ..node(1e6) });
    assert_eq!((passed.demand.slack_us, passed.demand.phb), (None, None));
    assert_eq!(passed.demand.traffic(), Some(traffic_of(&tmod(1.0))));
}

#[test]
fn limits() {
    let limit = limit_of(0, None, 0, 1500);
    assert_eq!((limit.rate, limit.max_packet), (0.0, 1500));
    assert_eq!(traffic_of(&Tmod { bucket: 250e9, ..tmod(1.0) }).burst, u32::MAX);
}

proptest! {
    /// The requested rate is never less than the traffic, the offered rate never more than the link, and a value that a
    /// float can hold is returned unchanged.
    #[test]
    fn rounding(rate in 1..=40_000_000_000_000_u64, burst in 1..=u32::MAX, peak in any::<Option<u32>>(), mtu in 1..=9000_u32) {
        let peak = peak.map(|more| rate + u64::from(more));
        let wanted = TrafficSpec { rate, burst, peak, min_policed: 1, max_packet: mtu };
        let asked = tmod_of(&wanted);
        let got = traffic_of(&asked);
        prop_assert!(got.rate >= rate && got.burst >= burst);
        prop_assert!(got.peak >= peak);
        prop_assert_eq!(asked.peak.is_infinite(), peak.is_none());
        prop_assert_eq!(tmod_of(&got), asked, "twice is once");
        let limit = limit_of(rate, Some(burst.into()), rate, mtu);
        let offered = traffic_of(&limit);
        prop_assert!(offered.rate <= rate && offered.burst <= burst && limit.max_packet == mtu);
        if rate < 1 << 24 {
            prop_assert_eq!(offered.rate, rate);
            prop_assert_eq!(got.rate, rate);
        }
    }
}
