//! POLICY_DATA (RFC 2750).

use signalbox_resources::Config as Links;
use signalbox_resources::config::{Action, RuleConfig};
use signalbox_rsvp::engine::{Command, RsvpEvent, SenderRequest};
use signalbox_rsvp::wire::{
    Adspec, ErrorCode, Filter, Identity, MessageType, Object, Objects, Selector, policy_data,
};

use crate::rig::{
    B, Path, Resv, Rig, Sent, all, at, group, kinds, load, one, one_to, sender, session, tspec,
};

/// A POLICY_DATA object with one element of an unknown P-Type with these octets.
fn opaque(what: u8) -> Vec<u8> {
    vec![0, 16, 14, 1, 0, 8, 0, 0, 0, 8, 0xd0, 1, what, what, what, what]
}

/// A POLICY_DATA object with preemption and defending priority (RFC 3181).
pub(crate) fn priority(setup: u16, defending: u16) -> Vec<u8> {
    let [s1, s0] = setup.to_be_bytes();
    let [d1, d0] = defending.to_be_bytes();
    vec![0, 20, 14, 1, 0, 8, 0, 0, 0, 12, 0, 3, 0, 1, 0, 0, s1, s0, d1, d0]
}

fn policies(sent: &Sent) -> Vec<Vec<u8>> {
    sent.message().policy().map(|object| object.octets().to_vec()).collect()
}

/// RSVPX-2750-4-02: POLICY_DATA of a Path leaves by all branches; POLICY_DATA of merged Resvs goes upstream together.
#[test]
fn it_is_carried_unread() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    let sent = rig.path(&Path { extra: opaque(7), ..Path::of(group(), 1, 1) });
    let paths = all(&sent, MessageType::PATH);
    assert_eq!(paths.iter().map(|one| one.oif).collect::<Vec<_>>(), [3, 4]);
    assert!(paths.iter().all(|path| policies(path) == [opaque(7)]));
    let wf = |n, what| Resv { extra: opaque(what), ..Resv::wf(load(B)).from(n, 9, group()) };
    assert_eq!(policies(&one(&rig.resv(&wf(3, 1)), MessageType::RESV)), [opaque(1)]);
    rig.resv(&wf(4, 2));
    let sent = rig.wait(std::time::Duration::from_secs(60));
    let mut both = policies(all(&sent, MessageType::RESV).last().unwrap());
    both.sort();
    assert_eq!(both, [opaque(1), opaque(2)]);
}

/// RSVPX-2750-4-01: tears need no policy.
#[test]
fn tears_need_none() {
    let mut rig = Rig::new();
    rig.path(&Path { extra: opaque(1), ..Path::new() });
    rig.resv(&Resv { extra: opaque(2), ..Resv::ff(&[(load(B), 1)]) });
    let sent = rig.resv_tear(&Resv::ff(&[(load(B), 1)]));
    assert_eq!(kinds(&sent), [(MessageType::RESV_TEAR, at(1, 9))]);
    assert_eq!(policies(&sent[0]), Vec::<Vec<u8>>::new());
    assert_eq!(rig.reservations(), 0);
    let sent = rig.path_tear(&Path::new());
    assert_eq!(kinds(&sent), [(MessageType::PATH_TEAR, session().dest)]);
    assert_eq!(rig.rsvp.sessions(), 0);
}

/// RSVPX-2750-4-03: a policy error has POLICY_DATA: that of the request, or at least an object with its origin.
#[test]
fn a_refusal_comes_with_policy_data() {
    let mut links = Links::of_link("*", "10mbit".parse().unwrap());
    links.rules.push(RuleConfig::new("no request", Action::Deny));
    let mut rig = Rig::with_resources(links);
    rig.path(&Path::new());
    let refusal =
        one(&rig.resv(&Resv { extra: opaque(3), ..Resv::ff(&[(load(B), 1)]) }), MessageType::RESV_ERR);
    assert_eq!((refusal.error().code, refusal.error().value), (ErrorCode::POLICY, 3));
    assert_eq!(policies(&refusal), [opaque(3)]);
    let refusal = one(&rig.resv(&Resv::ff(&[(load(B), 1)])), MessageType::RESV_ERR);
    assert_eq!(refusal.error().code, ErrorCode::POLICY);
    let [own] = &policies(&refusal)[..] else { panic!("{refusal:?}") };
    let object = Objects::at(own, 0).next().unwrap().unwrap();
    let Ok(Object::Policy(own)) = object.read() else { panic!("{object:?}") };
    assert_eq!(own.options().unwrap().origin.unwrap().addr, at(2, 1));
    assert_eq!(own.elements().unwrap().count(), 0);
}

/// RSVPX-2750-4-03: a policy error from upstream goes to all next hops, and sets no blockade state.
#[test]
fn a_refusal_goes_to_all_next_hops() {
    let mut rig = Rig::new();
    rig.trees.insert((group().dest, sender(1).src), (1, vec![3, 4]));
    rig.path(&Path::of(group(), 1, 1));
    let large = Resv::wf(load(4.0 * B)).from(3, 9, group());
    rig.resv(&large);
    rig.resv(&Resv::wf(load(2.0 * B)).from(4, 9, group()));
    let error = Resv { extra: opaque(9), ..large }.error_octets(1, ErrorCode::POLICY, 4, false);
    let sent = rig.neighborly(1, at(1, 9), &error);
    for n in [3, 4] {
        assert_eq!(policies(&one_to(&sent, MessageType::RESV_ERR, at(n, 9))), [opaque(9)]);
    }
    assert_eq!(rig.rsvp.counters().blockades, 0);
}

/// RSVPX-2750-3.2-02: priorities count in objects for this node and in those without a destination.
#[test]
fn priorities_are_read() {
    let asked = |policy: Vec<u8>| {
        let mut rig = Rig::new();
        rig.path(&Path::new());
        rig.resv(&Resv { extra: policy, ..Resv::ff(&[(load(B), 1)]) });
        let priority = rig.resources.reservations().next().unwrap().priority;
        (priority.setup, priority.defending)
    };
    assert_eq!(asked(opaque(1)), (0, 0));
    assert_eq!(asked(priority(5, 7)), (5, 7));
    assert_eq!(asked(priority(7, 5)), (7, 7));
    assert_eq!(asked([priority(5, 7), priority(6, 6)].concat()), (6, 7));
    // Two RSVP_HOPs: origin and destination.
    let for_node = |last: u8| {
        let hop = |last: u8| [0, 12, 3, 1, 10, 0, 2, last, 0, 0, 0, 0];
        let element = priority(5, 7).split_off(8);
        [&[0, 44, 14, 1, 0, 32, 0, 0][..], &hop(9), &hop(last), &element].concat()
    };
    assert_eq!(asked(for_node(1)), (5, 7));
    assert_eq!(asked(for_node(2)), (0, 0));
}

/// A POLICY_DATA object with a policy refresh time, milliseconds, if any, and these elements.
fn policy_of(refresh: Option<u32>, elements: &[&[u8]]) -> Vec<u8> {
    let refresh = refresh.map_or_else(Vec::new, |time| [&[0, 8, 5, 1][..], &time.to_be_bytes()].concat());
    let body = elements.concat();
    let length = u8::try_from(8 + refresh.len() + body.len()).unwrap();
    let offset = u8::try_from(8 + refresh.len()).unwrap();
    [&[0, length, 14, 1, 0, offset, 0, 0][..], &refresh, &body].concat()
}

/// The element PREEMPTION_PRI with this priority, setup and defending.
fn preemption(both: u8) -> [u8; 12] {
    [0, 12, 0, 3, 0, 1, 0, 0, 0, both, 0, both]
}

/// An element that deletes those of its P-Type.
const NO_PREEMPTION: [u8; 4] = [0, 4, 0, 3];
/// An element of an unknown P-Type.
const UNKNOWN: [u8; 8] = [0, 8, 0xd0, 1, 9, 9, 9, 9];

fn in_force(rig: &Rig) -> (u16, u16) {
    let one = rig.resources.reservations().next().unwrap();
    (one.priority.setup, one.priority.defending)
}

/// RSVPX-2750-3.3-01: a newer element replaces one of its P-Type, an empty one deletes it; elements of other P-Types stay.
#[test]
fn elements_are_replaced_and_deleted_by_their_type() {
    let mut rig = Rig::new();
    rig.path(&Path::new());
    let mut ask = |elements: &[&[u8]]| {
        let extra = if elements.is_empty() { Vec::new() } else { policy_of(None, elements) };
        let sent = rig.resv(&Resv { extra, ..Resv::ff(&[(load(B), 1)]) });
        let upstream = all(&sent, MessageType::RESV).last().map(policies);
        (in_force(&rig), upstream)
    };
    let all_of = |elements: &[&[u8]]| Some(vec![policy_of(None, elements)]);
    let both: &[&[u8]] = &[&preemption(7), &UNKNOWN];
    assert_eq!(ask(both), ((7, 7), all_of(both)));
    assert_eq!(ask(both), ((7, 7), None), "a refresh");
    assert_eq!(ask(&[]), ((7, 7), None), "an element holds for its own lifetime");
    // Of two P-Types one is replaced: both go upstream, each once.
    let sent = (ask(&[&preemption(3)]).0, ask(&[]).0);
    assert_eq!(sent, ((3, 3), (3, 3)));
    let ((setup, _), upstream) = ask(&[&preemption(2)]);
    assert_eq!(setup, 2);
    assert_eq!(upstream.unwrap(), [policy_of(None, &[&preemption(2)]), policy_of(None, &[&UNKNOWN])]);
    assert_eq!(ask(&[&NO_PREEMPTION]).0, (0, 0));
    assert_eq!(ask(&[]).0, (0, 0));
    assert_eq!(ask(&[&preemption(5), &preemption(1)]).0, (5, 5), "sent together, the higher one counts");
    assert_eq!(ask(&[&preemption(6), &NO_PREEMPTION]).0, (0, 0));
}

/// RSVPX-2750-3.2-03: policy with a refresh time of N refresh periods lives N times as long without being repeated, a
/// change goes upstream at once.
#[test]
fn policy_is_refreshed_less_often_than_the_reservation() {
    // (K + 0.5) * 1.5 * R = 157.5 s; 100 s are three periods, 10 s count as one.
    for (refresh, lives) in [(Some(100_000), 3 * 157), (Some(10_000), 157), (None, 157)] {
        let mut rig = Rig::new();
        rig.path(&Path { extra: policy_of(refresh, &[&UNKNOWN]), ..Path::new() });
        let resv = |extra| Resv { extra, ..Resv::ff(&[(load(B), 1)]) };
        let sent = rig.resv(&resv(policy_of(refresh, &[&preemption(7)])));
        assert_eq!(policies(&one(&sent, MessageType::RESV)).len(), 1);
        let start = rig.now;
        let (mut held, mut last_path, mut last_resv) = (start, start, start);
        for _ in 0..60 {
            rig.path(&Path::new());
            rig.resv(&resv(Vec::new()));
            if in_force(&rig) == (7, 7) {
                held = rig.now;
            }
            for sent in rig.wait(std::time::Duration::from_secs(10)) {
                match (sent.kind(), policies(&sent).is_empty()) {
                    (MessageType::PATH, false) => last_path = sent.at,
                    (MessageType::RESV, false) => last_resv = sent.at,
                    _ => {}
                }
            }
        }
        for end in [held, last_path, last_resv] {
            let seconds = end.since(start).as_secs();
            assert!((lives - 46..=lives).contains(&seconds), "{refresh:?}: {seconds} s, not {lives}");
        }
        assert_eq!(rig.reservations(), 1);
        // New policy does not wait for a refresh.
        let sent = rig.resv(&resv(policy_of(refresh, &[&preemption(5)])));
        assert_eq!(policies(&one(&sent, MessageType::RESV)), [policy_of(refresh, &[&preemption(5)])]);
        let sent = rig.path(&Path { extra: opaque(4), ..Path::new() });
        assert_eq!(policies(&one(&sent, MessageType::PATH)), [opaque(4)]);
    }
}

/// The identities of a request reach the policy, by name and by distinguished name, and again after a change.
#[test]
fn identities_are_handed_to_the_policy() {
    let of = |name, locator| {
        let identity = Identity { application: false, name, locator };
        policy_data(None, &[identity]).unwrap()
    };
    let mut links = Links::of_link("*", "10mbit".parse().unwrap());
    links.default = Action::Deny;
    let user = vec!["ann".to_owned(), "CN=Bob".to_owned()];
    links.rules.push(RuleConfig { user, ..RuleConfig::new("known", Action::Allow) });
    let mut rig = Rig::with_resources(links);
    rig.path(&Path::new());
    let mut ask = |policy: Vec<u8>| {
        let sent = rig.resv(&Resv { extra: policy, ..Resv::ff(&[(load(B), 1)]) });
        (all(&sent, MessageType::RESV_ERR).len(), rig.reserved(2))
    };
    assert_eq!(ask(Vec::new()), (1, 0));
    assert_eq!(ask(of("mallory", Some("CN=Mallory"))), (1, 0));
    assert_eq!(ask(of("bob", Some("CN=Bob"))), (0, 10_000));
    assert_eq!(ask([priority(1, 1), of("ann", None)].concat()), (0, 10_000));
    let both = ["ann", "mallory"].map(|name| Identity { application: false, name, locator: None });
    assert_eq!(ask(policy_data(None, &both).unwrap()), (0, 10_000), "one of two users is known");
    // The former grant stays.
    assert_eq!(ask(of("mallory", None)), (1, 10_000));
}

/// POLICY_DATA is reported to applications and shown to operators.
#[test]
fn applications_and_operators_see_it() {
    let mut rig = Rig::new();
    rig.command(1, Command::Session(session()));
    let template = Filter { src: at(1, 1), selector: Selector::Port(4000) };
    let policy = opaque(1).into_boxed_slice();
    let request = SenderRequest { ttl: 9, policy, ..SenderRequest::new(template, tspec(B)) };
    let path = one(&rig.command(1, Command::Sender(request)), MessageType::PATH);
    assert_eq!(policies(&path), [opaque(1)]);
    let flows = vec![(Some(load(B)), vec![template])];
    rig.resv(&Resv { flows, extra: opaque(2), ..Resv::ff(&[]) });
    let events = rig.take_events(1);
    let [RsvpEvent::Resv { policy, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(**policy, opaque(2));
    let shown = rig.rsvp.view().next().unwrap();
    assert_eq!(*shown.senders[0].policy, opaque(1));
    assert_eq!(shown.senders[0].adspec, Some(Adspec::START));
    assert_eq!(*shown.reservations[0].policy, opaque(2));
}
