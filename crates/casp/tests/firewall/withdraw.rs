//! Rules that a node removes although no message asked for it, and what the host that asked learns.

use std::time::Duration;

use signalbox_casp::clients::natfw::{NatfwEnd, NatfwEvent};
use signalbox_casp::wire::natfw::{NatfwResult, NatfwStatus, NatfwType, NatfwValue, REMOVED, Tlvs};
use signalbox_core::pinhole::PinholeError;

use crate::rig::{FIRST, Rig, at, flow, open_policy};

fn delete(rig: &mut Rig, node: usize) {
    let now = rig.now;
    let firewall = &mut rig.nodes[node];
    firewall.client.delete(now, FIRST, &mut firewall.resources);
    rig.run();
}

/// The rules of a firewall become others, as by a reload.
fn reload(rig: &mut Rig, node: usize, config: signalbox_resources::Config) {
    let now = rig.now;
    let firewall = &mut rig.nodes[node];
    firewall.resources.reload(now, config).unwrap();
    firewall.client.rules_changed(now);
    rig.wait(Duration::ZERO);
}

fn lost(status: NatfwStatus, node: usize) -> [NatfwEvent; 1] {
    [NatfwEvent::Lost { status, node: Some(at(node)) }]
}

/// CASPMID-7-15: a session that an administrator ends at a firewall is reported unasked, and the host that asked ends it
/// everywhere.
#[test]
fn an_administrator_ends_a_session_for_the_host_that_asked() {
    for by_receiver in [false, true] {
        let mut rig = Rig::standing(4, by_receiver);
        delete(&mut rig, 2);
        assert_eq!(rig.events(0), lost(NatfwStatus::ADMINISTRATOR, 2));
        assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
        let reports: Vec<u8> =
            rig.seen.iter().filter(|one| one.to == 0).map(|one| one.results()[0].flags).collect();
        assert_eq!(reports.first(), Some(&REMOVED));
        assert_eq!((rig.nodes[0].torn_down, rig.nodes[2].resources.passage_count()), (1, 0));
        assert_eq!(rig.nodes[2].client.counters().withdrawn, 1);
    }
}

/// The receiver whose CREATE opened a firewall is informed of the reason, once, whichever firewall it is.
#[test]
fn an_administrator_ends_a_session_for_the_receiver() {
    for wall in [1, 2] {
        let mut rig = Rig::standing(4, true);
        delete(&mut rig, wall);
        let why = NatfwEnd::Removed { status: NatfwStatus::ADMINISTRATOR, node: Some(at(wall)) };
        assert_eq!(rig.events(3), [NatfwEvent::Ended { session: FIRST, flow: flow(4), why }]);
        rig.wait(Duration::from_secs(200));
        assert_eq!(rig.events(3).len(), 1);
    }
}

/// Other rules of the policy end what they do not allow, and nothing else.
#[test]
fn a_reload_ends_what_the_rules_no_longer_allow() {
    let mut rig = Rig::standing(4, false);
    reload(&mut rig, 2, open_policy());
    assert_eq!((rig.events(0), rig.passes(2).len()), (vec![], 1));
    reload(&mut rig, 2, signalbox_resources::Config::default());
    assert_eq!((rig.events(0), rig.passes(2).len()), (lost(NatfwStatus::POLICY, 2).to_vec(), 0));
    assert_eq!(rig.nodes[2].resources.passage_count(), 0);
}

/// What the kernel does not prolong is lost at once, not when its lifetime is over.
#[test]
fn a_rule_that_the_kernel_lost_is_reported() {
    let mut rig = Rig::standing(3, true);
    rig.nodes[1].rules.clear();
    rig.nodes[1].kernel = Err(PinholeError::Failed);
    rig.wait(Duration::from_secs(50));
    assert_eq!(rig.events(0), lost(NatfwStatus::RESOURCES, 1));
}

/// A report about an earlier request has no effect: the request after it was judged by the present rules. CASPMID-7-16: it changes
/// nothing at the firewall that it passes.
#[test]
fn a_report_about_an_earlier_request_is_ignored() {
    let mut rig = Rig::standing(4, false);
    let status = NatfwStatus::POLICY;
    let result = NatfwResult { status, flags: REMOVED, request: 2, msg_id: 77, nested: Tlvs::of(&[]) };
    rig.inject(2, 1, NatfwType::RESPONSE, &[NatfwValue::Status(result)]);
    assert_eq!((rig.events(0), rig.nodes[0].torn_down), (vec![], 0));
    assert_eq!((rig.kinds(0), rig.passes(1).len()), (vec![NatfwType::RESPONSE], 1));
}
