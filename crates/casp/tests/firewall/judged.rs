//! What opens is judged in its own direction.

use signalbox_casp::clients::natfw::{Config, NatfwEvent};
use signalbox_casp::wire::natfw::NatfwStatus;
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::Rig;

fn rules(action: Action, opens: Opening) -> signalbox_resources::Config {
    let rule = RuleConfig { opens: vec![opens], ..RuleConfig::new("", action) };
    signalbox_resources::Config { rules: vec![rule], ..signalbox_resources::Config::default() }
}

/// T29: from the inside to the inside only a rule opens, whether the sender asks or the receiver.
#[test]
fn inside_to_inside_needs_a_rule() {
    let all_inside = |_, config| Config { inside: vec!["left".to_owned(), "right".to_owned()], ..config };
    for by_receiver in [false, true] {
        for (policy, granted) in [
            (signalbox_resources::Config::default(), false),
            (rules(Action::Allow, Opening::Outward), false),
            (rules(Action::Allow, Opening::Reserve), false),
            (rules(Action::Allow, Opening::Between), true),
        ] {
            let mut rig = Rig::with(3, &|_| policy.clone(), &all_inside);
            rig.accept();
            rig.ask(by_receiver);
            assert_eq!(rig.passes(1).len(), usize::from(granted), "{by_receiver} {policy:?}");
            let opened = matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. }));
            assert_eq!(opened, granted);
        }
    }
}

/// A receiver inside opens the way in without the sender: the rules about flows from the outside count.
#[test]
fn what_a_receiver_opens_is_judged_as_a_flow_from_the_outside() {
    for (action, opens, granted) in [
        (Action::Deny, Opening::Inward, false),
        (Action::Deny, Opening::Reserve, false),
        (Action::Deny, Opening::Outward, true),
    ] {
        let policy = |n| if n == 2 { rules(action, opens) } else { signalbox_resources::Config::default() };
        let mut rig = Rig::with(4, &policy, &|_, config| config);
        rig.accept();
        rig.ask(true);
        assert_eq!(rig.passes(2).len(), usize::from(granted), "{opens}");
        if !granted {
            assert_eq!(rig.status(3), NatfwStatus::POLICY);
        }
    }
}
