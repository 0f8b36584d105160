//! A gateway that starts in place of another one.

use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_gist::gateway::{Config, Input};

use crate::adopted::handshake;
use crate::rig::*;

/// O08: an end inside keeps its external port, although the next gateway would draw another one. It is free if no request comes for it in the
/// time of a binding.
#[test]
fn an_end_keeps_its_port_over_a_restart() {
    let gateway = |seed| Rig::between(Config { forwards: Vec::new(), ..config() }, [GATE, EXTERNAL], seed);
    let mut rig = gateway(7);
    let port = handshake(&mut rig);
    let mut entries = Entries::default();
    rig.gateway.hand_over(&mut entries);
    let again = |entries: &Entries| {
        let mut rig = gateway(8);
        rig.gateway.take_over(rig.now, entries.clone());
        rig
    };
    assert_ne!(handshake(&mut again(&Entries::default())), port);
    assert_eq!(handshake(&mut again(&entries)), port);
    let mut rig = again(&entries);
    let [_, ports] = rig.gateway.tables();
    assert!(ports.size > 0, "{ports:?}");
    let end = rig.now + Duration::from_secs(122);
    assert!(rig.gateway.next_deadline().is_some_and(|due| due <= end));
    rig.gateway.handle(end, Input::Timer);
    let [_, ports] = rig.gateway.tables();
    assert_eq!(ports.size, 0);
}
