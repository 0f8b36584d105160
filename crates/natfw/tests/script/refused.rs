//! What who asked gets of a refusal: the node, and the rule if the policy lets it out.

use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Command, Failure, Middlebox, NatfwEvent, OpenRequest, Options};
use signalbox_natfw::wire::{Forwarded, Info, Message, refused_by};
use signalbox_resources::config::{Action, Opening, RuleConfig};
use signalbox_resources::decision::{Outcome, Why};
use signalbox_resources::{Decision, End};

use crate::rig::{
    EDGE, FAR, HOST, Rig, addr, boxed, create, error, flow, inward, octets, only, success, udp,
};

const RULE: &str = "rule 1 'no games': denied";

/// A firewall that denies what comes in.
fn denying(report_rule: bool) -> Rig {
    Rig::with_rules(boxed(Middlebox::Firewall), |config| {
        let opens = vec![Opening::Inward];
        config.rules = vec![RuleConfig { opens, ..RuleConfig::new("no games", Action::Deny) }];
        config.report_rule = report_rule;
    })
}

fn decisions(rig: &mut Rig) -> Vec<Decision> {
    std::iter::from_fn(|| rig.resources.next_decision()).collect()
}

#[test]
fn a_refusal_names_the_node_and_the_rule_if_it_may() {
    for (report_rule, note) in [(false, None), (true, Some(RULE.to_owned()))] {
        let mut rig = denying(report_rule);
        let sent = only(rig.by_outside(inward(), &create(1, 100)));
        assert_eq!(sent.message(), error(1, Info::AUTHORIZATION));
        assert_eq!(sent.refused_by(), (Some(addr(EDGE)), note), "the address towards who asked");
    }
}

/// One request that is refused is one decision.
#[test]
fn a_refusal_is_one_decision() {
    let mut rig = denying(false);
    rig.resources.record_decisions(true);
    rig.by_outside(inward(), &create(1, 100));
    let all = decisions(&mut rig);
    assert_eq!(all.iter().map(|one| one.outcome).collect::<Vec<_>>(), [Outcome::Refused]);
    assert_eq!(all[0].rule.as_ref().unwrap().to_string(), "rule 1 'no games'");
}

/// A node that has no rule against it passes on what the one that refused says, and its own decision names that node.
#[test]
fn the_nodes_between_pass_on_who_refused() {
    let mut rig = Rig::firewall();
    rig.resources.record_decisions(true);
    let request = only(rig.by_inside(flow(), &create(1, 100)));
    let told = refused_by(Some(addr("203.0.113.1")), Some(RULE));
    let refusal = Message { forwarded: Forwarded::among(&told), ..error(1, Info::AUTHORIZATION) };
    let sent = only(rig.answer(&request, &refusal));
    assert_eq!(sent.message(), error(1, Info::AUTHORIZATION));
    assert_eq!(sent.refused_by(), (Some(addr("203.0.113.1")), Some(RULE.to_owned())));
    let why: Vec<Why> = decisions(&mut rig).into_iter().map(|one| one.why).collect();
    assert_eq!(why, [Why::Allowed, Why::End(End::RefusedBeyond(Some(addr("203.0.113.1"))))]);
}

/// Nodes of other makes add nothing. Octets that are no address and no text are left out.
#[test]
fn the_user_gets_what_the_node_gives() {
    let open = OpenRequest {
        src: Some(addr(HOST)),
        dst: addr(FAR),
        protocol: Some(17),
        src_port: Some(5000),
        dst_port: Some(6000),
        options: Options::default(),
    };
    let code = Info::AUTHORIZATION.into();
    let node = addr("2001:db8::9");
    let named = refused_by(Some(node), Some("rule 2\n\u{1b}[31m"));
    // The objects 2002 and 2001 with AB=10, of another meaning.
    let strange = [0x87, 0xd2, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 0x87, 0xd1, 0, 1, 0xff, 0xfe, 0, 0];
    for (told, failure) in [
        (named.as_slice(), Failure::By { code, node, note: Some("rule 2[31m".to_owned()) }),
        (strange.as_slice(), Failure::Code(code)),
        (&[], Failure::Code(code)),
    ] {
        let mut rig = Rig::host();
        let sent = only(rig.command(Command::Open(open.clone())));
        rig.events.clear();
        let msn = sent.message().msn.unwrap();
        let refusal = Message { forwarded: Forwarded::among(told), ..error(msn, Info::AUTHORIZATION) };
        rig.answer(&sent, &refusal);
        assert_eq!(rig.events, [NatfwEvent::Failed(failure)]);
    }
}

/// The object is for refusals only: a request that has it is what it is without it, and carries it along.
#[test]
fn a_request_with_the_objects_is_passed_on() {
    let mut rig = Rig::firewall();
    let told = refused_by(Some(addr(FAR)), Some("nothing"));
    let request = Message { forwarded: Forwarded::among(&told), ..create(1, 100) };
    let mri = Mri::PathCoupled(udp(HOST, 5000, FAR, 6000));
    let sent =
        only(rig.in_session(SessionId([3; 16]), crate::rig::BEFORE, crate::rig::INSIDE, mri, &request));
    assert_eq!(sent.message().forwarded, Forwarded::among(&told));
    assert!(octets(&success(1, 100)).len() < sent.octets.len());
}
