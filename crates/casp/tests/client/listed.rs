//! The list of the nodes that granted a request.

use signalbox_casp::clients::qos::{Config, QosRequest, Range};
use signalbox_casp::wire::Listed;
use signalbox_casp::wire::qos::{QosMessage, QosType};
use signalbox_core::SessionId;
use signalbox_core::hops::{Hop, Hops, MAX_HOPS_OCTETS, Part, Path};
use signalbox_wire::parse_hex;

use crate::rig::{Rig, at, between, flow, mbit, with_rate};

const RATE: Part = Part::Rate(250_000);

fn end(n: usize) -> Hop {
    Hop { answered: true, ..Hop::new(at(n), Part::End) }
}

/// Issue 30: `granted` names each node of the path, and who answered.
#[test]
fn the_user_is_told_of_each_node() {
    let rig = Rig::standing(4, Range::only(mbit(2.0)));
    let hops = vec![Hop::new(at(0), RATE), Hop::new(at(1), RATE), Hop::new(at(2), RATE), end(3)];
    let path = Path { hops, gaps: false, far_end: Some(true) };
    assert_eq!(rig.nodes[0].client.path_of(1), path);
    // The same in one round, where a Commit answers.
    let mut rig = Rig::new(4);
    let request = QosRequest { at_once: true, ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    assert_eq!(rig.nodes[0].client.path_of(1), path);
    // A question.
    let mut rig = Rig::new(4);
    let request = rig.request(Range::only(mbit(2.0)));
    rig.query(0, 1, &request);
    assert_eq!(rig.nodes[0].client.path_of(1), path);
    rig.release(0, 1);
    assert_eq!(rig.nodes[0].client.path_of(1), Path::default());
}

#[test]
fn a_node_that_answers_for_the_end_says_so() {
    let mut rig = Rig::with(3, Config { proxy: true, ..Config::default() });
    // The flow leads beyond the last node.
    let request = QosRequest { flow: flow(9), ..rig.request(Range::only(mbit(2.0))) };
    rig.reserve(0, 1, &request);
    let path = rig.nodes[0].client.path_of(1);
    assert_eq!((path.hops.len(), path.far_end), (3, Some(false)), "{path:?}");
}

/// The source of the data learns who reserved, too.
#[test]
fn the_source_learns_what_the_receiver_reserved() {
    let mut rig = Rig::new(4);
    let request = QosRequest { by_receiver: true, ..rig.request(between(1.0, 2.0)) };
    rig.reserve(0, 1, &request);
    let path = rig.nodes[0].client.path_of(1);
    let addresses: Vec<_> = path.hops.iter().map(|hop| hop.address).collect();
    assert_eq!(addresses, [at(0), at(1), at(2), at(3)]);
    assert_eq!((path.gaps, path.far_end), (false, Some(true)));
}

/// A Reserve with this list, which another node has sent.
fn reserve(listed: Option<Listed<'_>>) -> QosMessage<'_> {
    let mut reserve = QosMessage::new(QosType::RESERVE, flow(3));
    (reserve.sequence, reserve.age, reserve.listed) = (Some(7), Some(1), listed);
    with_rate(&mut reserve, 2.0);
    reserve
}

/// Nodes without the client, and of other makes, are counted.
#[test]
fn nodes_that_do_not_take_part_are_unknown() {
    let mut rig = Rig::new(3);
    let packet = rig.packet(1, 0, SessionId([7; 16]), &reserve(Some(Listed::default())));
    rig.inject(crate::rig::Packet { hops: 4, ..packet });
    let at_end = rig.last(2, QosType::RESERVE);
    let own = at_end.message().listed.unwrap();
    assert_eq!(own.last_hops, 4);
    let unknown = Hop { after_gap: true, routers: 3, ..Hop::new(at(1), RATE) };
    assert_eq!(own.hops.iter().collect::<Vec<_>>(), [unknown]);
}

/// The list does not grow without bound, and what is no list is left out alone.
#[test]
fn a_list_is_bounded_and_a_foreign_object_is_left_out() {
    let mut full = Vec::new();
    (0..100).for_each(|_| Hop::new(at(0), Part::Opened).append(&mut full));
    let mut rig = Rig::new(3);
    let listed = Listed { last_hops: 0, hops: Hops::from_octets(&full).unwrap() };
    let packet = rig.packet(1, 0, SessionId([7; 16]), &reserve(Some(listed)));
    rig.inject(packet);
    let octets = rig.last(2, QosType::RESERVE).message().listed.unwrap().hops.octets().len();
    assert_eq!(octets, MAX_HOPS_OCTETS);

    for foreign in ["00061301 00000000", "000c1301 00000000 05000000", "00081302 00000000"] {
        let mut rig = Rig::new(3);
        let mut packet = rig.packet(1, 0, SessionId([7; 16]), &reserve(None));
        packet.data.extend(parse_hex(foreign).unwrap());
        let length = u32::try_from(packet.data.len()).unwrap();
        packet.data[..4].copy_from_slice(&length.to_be_bytes());
        rig.inject(packet);
        let passed = rig.last(2, QosType::RESERVE);
        assert!(passed.message().listed.is_none(), "{foreign}");
        assert_eq!(rig.nodes[1].client.counters().foreign_objects, 1, "{foreign}");
    }
}
