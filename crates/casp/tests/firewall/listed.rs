//! The list of the nodes that opened the path.

use signalbox_casp::clients::natfw::Role;
use signalbox_casp::wire::natfw::{NatfwObject, NatfwType, NatfwValue};
use signalbox_core::hops::{Hop, Part, Path};

use crate::rig::{Rig, at, filter, open_policy, wants_response};

/// Issue 30: `granted` names each firewall of the path, whichever end opens it.
#[test]
fn the_user_is_told_of_each_node() {
    for by_receiver in [false, true] {
        let rig = Rig::standing(4, by_receiver);
        let opened = |n| Hop::new(at(n), Part::Opened);
        let end = Hop { answered: true, ..Hop::new(at(3), Part::End) };
        let path = Path { hops: vec![opened(1), opened(2), end], gaps: false, far_end: Some(true) };
        assert_eq!(rig.nodes[0].client.path_of(1), path, "{by_receiver}");
    }
}

/// A node without rules only sends requests on.
#[test]
fn a_node_that_opens_nothing_is_unknown() {
    let mut rig = Rig::with(4, &|_| open_policy(), &|n, mut config| {
        config.role = if n == 2 { Role::Firewall } else { Role::Host };
        config
    });
    rig.ask(false);
    let path = rig.nodes[0].client.path_of(1);
    let unknown = Hop { after_gap: true, routers: 1, ..Hop::new(at(2), Part::Opened) };
    assert_eq!((path.hops.first(), path.gaps), (Some(&unknown), true), "{path:?}");
}

/// An object of the type of the list whose contents are not a list is left out alone, and counted.
#[test]
fn a_foreign_object_is_left_out() {
    for foreign in [&[0; 3][..], &[0, 0, 0, 0, 5, 0, 0, 0], &[0; 200]] {
        let mut rig = Rig::open(4);
        let values = [
            NatfwValue::MsgId(5),
            NatfwValue::Age(1),
            NatfwValue::Filter(filter(4)),
            wants_response(),
            NatfwValue::Unknown(NatfwObject::HOPS, foreign),
        ];
        rig.inject(0, 1, NatfwType::CREATE, &values);
        let passed = rig.last(3, NatfwType::CREATE);
        let has = passed.values().iter().any(|value| value.kind() == NatfwObject::HOPS);
        // Three octets and their padding are a list without entries.
        assert_eq!(has, foreign.len() == 3, "{foreign:?}");
        assert_eq!(rig.nodes[1].client.counters().foreign_objects, u64::from(!has));
        assert_eq!(rig.passes(2).len(), 1);
    }
}
