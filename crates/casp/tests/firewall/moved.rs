//! The source of a passage has another address.

use std::time::Duration;

use signalbox_casp::clients::natfw::NatfwEvent;
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::FlowId;
use signalbox_casp::wire::natfw::NatfwType;

use crate::rig::{FIRST, Rig, flow, moved};

fn go(rig: &mut Rig, flow: FlowId) -> bool {
    let now = rig.now;
    let goes = rig.nodes[0].client.move_to(now, 1, flow);
    rig.run();
    goes
}

/// CASPMID-4.1-07, CASPMID-9.7-01: the passage goes on for another flow in the same session, with another stamp. The former flow is
/// torn down when the path has granted the new one, and its rules end with it.
#[test]
fn a_passage_follows_its_source() {
    for by_receiver in [false, true] {
        // The rig's hops keep their addresses, so that a rule has to allow the packets of the new one.
        let mut rig = Rig::open(4);
        rig.accept();
        rig.ask(by_receiver);
        let kind = if by_receiver { NatfwType::PATH } else { NatfwType::CREATE };
        rig.wait(Duration::from_secs(50));
        let age = rig.last(1, kind).age();
        rig.clear();
        assert!(go(&mut rig, moved(4)));
        let request = rig.last(1, kind);
        assert_eq!((request.session, request.flow), (FIRST, moved(4)));
        assert_ne!(request.age(), age);
        assert!(matches!(rig.events(0)[..], [NatfwEvent::Opened { .. }]), "{:?}", rig.events(0));
        assert_eq!(rig.nodes[0].torn_down, 1);
        for wall in [1, 2] {
            assert_eq!(rig.passes(wall), [flow(4).filter(), moved(4).filter()]);
            rig.indicate(wall, &Indication::Ended { session: FIRST, flow: flow(4), torn_down: true });
            assert_eq!(rig.passes(wall), [moved(4).filter()]);
        }
        rig.wait(Duration::from_secs(300));
        assert_eq!((rig.passes(1), rig.passes(2)), (vec![moved(4).filter()], vec![moved(4).filter()]));
        rig.close();
        assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
    }
}

/// A path that does not grant the new flow leaves the passage as it is until its rules expire.
#[test]
fn a_passage_that_cannot_follow_is_lost() {
    let mut rig = Rig::standing(3, false);
    rig.deaf = Some(1);
    assert!(go(&mut rig, moved(3)));
    rig.wait(Duration::from_secs(300));
    assert!(matches!(rig.events(0).last(), Some(NatfwEvent::Lost { .. })), "{:?}", rig.events(0));
    assert_eq!(rig.nodes[0].torn_down, 2, "both flows are torn down");
    assert!(!go(&mut rig, flow(3)));
}
