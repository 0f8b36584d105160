//! What passes a node untouched, and what it makes of the flow in a message.

use std::time::Duration;

use signalbox_casp::clients::qos::Range;
use signalbox_casp::wire::qos::{QosMessage, QosType, QosVersion};
use signalbox_core::SessionId;
use signalbox_resources::decision::Outcome;

use crate::rig::{Packet, Rig, flow, flowspec, mbit};

const SESSION: SessionId = SessionId([7; 16]);

fn reserve(rig: &Rig) -> Packet {
    let mut reserve = QosMessage::new(QosType::RESERVE, flow(3));
    (reserve.sequence, reserve.age) = (Some(1), Some(5));
    (reserve.version, reserve.minimum) = (Some(QosVersion::FLOWSPEC), Some(flowspec(1.0)));
    rig.packet(1, 0, SESSION, &reserve)
}

/// CASPQOS-6-05, CASPQOS-A.2-08, CASPQOS-8-02: LOCAL and CMS objects, and objects of unknown classes, go on untouched.
#[test]
fn objects_of_others_go_on() {
    let mut rig = Rig::new(3);
    let mut packet = reserve(&rig);
    let local = [0, 10, 9, 1, 0, 1, 2, 7, 0xab, 0xcd, 0, 0];
    let unknown = [0, 8, 200, 1, 1, 2, 3, 4];
    let cms = [0, 8, 16, 1, 0x30, 0, 0, 0];
    packet.data.extend_from_slice(&[&local[..], &unknown, &cms].concat());
    let length = u32::try_from(packet.data.len()).unwrap();
    packet.data[..4].copy_from_slice(&length.to_be_bytes());
    rig.inject(packet);
    let on = rig.last(2, QosType::RESERVE);
    for object in [&local[..], &unknown, &cms] {
        assert!(on.data.windows(object.len()).any(|octets| octets == object), "{object:?}");
    }
}

/// CASPQOS-A.1-09: the flow of the messaging layer counts, if the header of the client has another one.
#[test]
fn the_flow_of_the_messaging_layer_counts() {
    let mut rig = Rig::new(3);
    let mut packet = reserve(&rig);
    packet.data[8..12].copy_from_slice(&[192, 0, 2, 77]);
    rig.inject(packet);
    let reservation = rig.nodes[1].resources.reservations().next().unwrap();
    assert_eq!(reservation.filters[0].src.addr, crate::rig::at(0));
    assert_eq!(rig.last(2, QosType::RESERVE).message().flow, flow(3));
    assert_eq!(rig.nodes[1].client.counters().other_flow, 1);
}

/// CASPQOS-5.2-01 in part, CASPQOS-5-02: the first kind of resource that VERSION names is used.
#[test]
fn version_names_the_kind_that_is_used() {
    let mut rig = Rig::new(3);
    let mut message = QosMessage::new(QosType::RESERVE, flow(3));
    (message.sequence, message.age, message.version) = (Some(1), Some(5), Some(QosVersion::FLOWSPEC));
    message.minimum = Some(flowspec(1.0));
    message.bandwidth = Some(signalbox_casp::wire::qos::Bandwidth { upper: 9.0e5, lower: 9.0e5 });
    let packet = rig.packet(1, 0, SESSION, &message);
    rig.inject(packet);
    assert_eq!(rig.booked(1), 1.0);
}

/// CASPQOS-A.2-17: guaranteed service is reserved too.
#[test]
fn guaranteed_service_is_reserved() {
    let flowspec_of_both = signalbox_casp::wire::qos::Flowspec {
        guaranteed: Some((3.0 * crate::rig::MBIT, 0)),
        ..flowspec(1.0)
    };
    let rig = Rig::standing(3, Range::only(signalbox_casp::clients::qos::Amount::Flowspec(flowspec_of_both)));
    assert_eq!(rig.booked(1), 3.0);
    assert!(rig.nodes[1].installed.values().all(|one| one.served.is_some()));
}

/// (T37) What was reserved and then committed is one reservation to users, also while it is refreshed and changed.
#[test]
fn a_reservation_has_one_row() {
    let mut rig = Rig::new(3);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    let rows = |rig: &Rig| {
        let (mut rows, resources) = (Vec::new(), &rig.nodes[1].resources);
        resources.walk(0, |row| {
            rows.push((row.grant, row.traffic.rate));
            true
        });
        assert!(resources.len() >= 2, "what was reserved, and what was committed");
        rows
    };
    let first = rows(&rig);
    assert_eq!(first.iter().map(|row| row.1).collect::<Vec<_>>(), [250_000]);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rows(&rig), first);
}

/// (T37) What was reserved and then committed is one line of the log: it is granted, changed and ended once.
#[test]
fn a_reservation_has_one_line_for_each_decision() {
    let mut rig = Rig::new(3);
    rig.nodes[1].resources.record_decisions(true);
    let lines = |rig: &mut Rig| {
        let resources = &mut rig.nodes[1].resources;
        let all = core::iter::from_fn(|| resources.next_decision());
        all.map(|one| (one.outcome, one.extent.rate.unwrap_or(0))).collect::<Vec<_>>()
    };
    let request = rig.request(Range::only(mbit(2.0)));
    rig.reserve(0, 1, &request);
    assert_eq!(lines(&mut rig), [(Outcome::Granted, 250_000)]);
    rig.wait(Duration::from_secs(60));
    assert_eq!(lines(&mut rig), [], "refreshes are no decisions");
    rig.change(0, 1, Range::only(mbit(3.0)));
    assert_eq!(lines(&mut rig), [(Outcome::Changed, 375_000)]);
    rig.change(0, 1, Range::only(mbit(50.0)));
    assert_eq!(rig.booked(1), 3.0);
    let refused = lines(&mut rig);
    assert!(matches!(refused[..], [] | [(Outcome::Refused, _)]), "{refused:?}");
    rig.release(0, 1);
    assert_eq!(lines(&mut rig), [(Outcome::Ended, 375_000)]);
}
