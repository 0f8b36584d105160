//! What passes a node untouched, and what it makes of the flow in a message.

use signalbox_casp::clients::qos::Range;
use signalbox_casp::wire::qos::{QosMessage, QosType, QosVersion};
use signalbox_core::SessionId;

use crate::rig::{Packet, Rig, flow, flowspec};

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
    let one = rig.nodes[1].resources.reservations().next().unwrap();
    assert_eq!(one.filters[0].src.addr, crate::rig::at(0));
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
    let one = signalbox_casp::wire::qos::Flowspec {
        guaranteed: Some((3.0 * crate::rig::MBIT, 0)),
        ..flowspec(1.0)
    };
    let rig = Rig::standing(3, Range::only(signalbox_casp::clients::qos::Amount::Flowspec(one)));
    assert_eq!(rig.booked(1), 3.0);
    assert!(rig.nodes[1].installed.values().all(|one| one.served.is_some()));
}
