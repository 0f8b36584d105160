//! Records of what became of requests.

use std::time::Duration;

use signalbox_core::SessionId;
use signalbox_resources::decision::{Outcome, Subject, Why};
use signalbox_resources::{Config, Decision, End, GrantRequest, LostWhy, Requester, Resources};

use crate::support::*;

fn recording(config: Config) -> Resources {
    let mut resources = start(config);
    resources.record_decisions(true);
    resources.begin(NOW);
    resources
}

fn taken(resources: &mut Resources) -> Vec<Decision> {
    std::iter::from_fn(|| resources.next_decision()).collect()
}

fn outcomes(resources: &mut Resources) -> Vec<Outcome> {
    taken(resources).iter().map(|one| one.outcome).collect()
}

#[test]
fn a_reservation_has_a_record_when_it_is_granted_changed_and_ended() {
    let mut resources = recording(config());
    let session_id = Some(SessionId([7; 16]));
    let first = GrantRequest { session_id, ..request_of(5004, 4) };
    let grant = admit(&mut resources, &first).grant;
    // What changes nothing is no decision.
    resources.modify(NOW, grant, &first).unwrap();
    resources.modify(NOW, grant, &GrantRequest { session_id, ..request_of(5004, 6) }).unwrap();
    resources.begin(NOW + Duration::from_secs(90));
    resources.because(End::TornDown);
    resources.release(grant);

    let all = taken(&mut resources);
    let row = |one: &Decision| (one.outcome, one.extent.rate.unwrap() / MBIT, one.why.clone());
    assert_eq!(
        all.iter().map(row).collect::<Vec<_>>(),
        [
            (Outcome::Granted, 4, Why::Allowed),
            (Outcome::Changed, 6, Why::Allowed),
            (Outcome::Ended, 6, Why::End(End::TornDown)),
        ]
    );
    for one in &all {
        assert_eq!((one.grant, one.session, one.subject), (Some(grant), session_id, Subject::Reservation));
        assert_eq!((one.interface.as_deref(), &one.flows), (Some("eth1"), &first.filters));
        assert_eq!(*one.requester, first.requester);
    }
    assert_eq!(all[2].lasted, Some(Duration::from_secs(90)));
    assert_eq!(resources.counters().decisions_left_out, 0);
}

/// The reason of an end is that of one input.
#[test]
fn a_reason_holds_for_one_input() {
    let mut resources = recording(config());
    let grants = [5004, 5005].map(|port| admit(&mut resources, &request_of(port, 1)).grant);
    resources.because(End::Expired);
    resources.release(grants[0]);
    resources.begin(NOW);
    resources.release(grants[1]);
    let whys: Vec<Why> = taken(&mut resources).into_iter().skip(2).map(|one| one.why).collect();
    assert_eq!(whys, [Why::End(End::Expired), Why::End(End::Released)]);
}

#[test]
fn a_refusal_names_what_refused() {
    let mut resources = recording(config());
    let refused = resources.admit(NOW, &request_of(5004, 11)).unwrap_err();
    let decision = taken(&mut resources).remove(0);
    assert_eq!((decision.outcome, decision.grant, decision.lasted), (Outcome::Refused, None, None));
    assert_eq!((decision.extent.rate, &decision.why), (Some(11 * MBIT), &Why::Refusal(refused)));
    assert!(decision.why.to_string().starts_with("eth1: share:"), "{}", decision.why);

    // Who asks for less at once gets one record, of the result.
    let _ = resources.admit(NOW, &request_of(5004, 11));
    admit(&mut resources, &request_of(5004, 3));
    assert_eq!(outcomes(&mut resources), [Outcome::Granted]);
}

#[test]
fn what_is_lost_is_restored_by_the_next_request() {
    let mut resources = recording(Config { preemption: true, ..config() });
    admit(&mut resources, &at_priority(0, 1, request_of(5004, 10)));
    let strong = admit(&mut resources, &at_priority(5, 5, request_of(5005, 10))).grant;
    let all = taken(&mut resources);
    assert_eq!(
        all.iter().map(|one| (one.outcome, one.flows[0])).collect::<Vec<_>>(),
        [(Outcome::Granted, flow(5004)), (Outcome::Preempted, flow(5004)), (Outcome::Granted, flow(5005)),]
    );
    assert_eq!(all[1].why, Why::Lost(LostWhy::Preempted));
    resources.delete(strong);
    admit(&mut resources, &at_priority(0, 1, request_of(5004, 10)));
    resources.interfaces(&[interface(ETH2, "eth2")]);
    assert_eq!(outcomes(&mut resources), [Outcome::Ended, Outcome::Restored, Outcome::Lost]);
}

/// A stranger causes a refusal by each message.
#[test]
fn refusals_of_one_source_are_limited() {
    let mut resources = recording(config());
    for port in 0..1000 {
        let _ = resources.admit(NOW, &request_of(port, 11));
    }
    let mut other = request_of(1, 11);
    other.requester = Requester::at("192.0.2.9".parse().unwrap());
    let _ = resources.admit(NOW, &other);
    let all = taken(&mut resources);
    assert_eq!(all.last().unwrap().requester.claimed, other.requester.claimed);
    assert_eq!(all.len() as u64 + resources.counters().decisions_left_out, 1001);
    assert!(all.len() < 100, "{}", all.len());
}

#[test]
fn a_node_that_records_nothing_queues_nothing() {
    let mut resources = start(config());
    let grant = admit(&mut resources, &request_of(5004, 1)).grant;
    resources.release(grant);
    assert_eq!((resources.next_decision(), resources.counters().decisions_left_out), (None, 0));
}
