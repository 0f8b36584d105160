//! Records of what became of requests for passages.

use core::time::Duration;

use signalbox_core::pinhole::OpenerId;
use signalbox_core::slab::Key;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{SessionId, invariant};
use signalbox_resources::config::Opening;
use signalbox_resources::decision::{By, Extent, Outcome, Why};
use signalbox_resources::refusal::Refusal;
use signalbox_resources::{Decided, End, Requester, Resources};

use super::Natfw;
use super::response::rule;
use super::session::Session;

impl Natfw {
    /// The policy of this node refused a passage, or does not allow any more what the node before this one had allowed.
    pub(super) fn note_refused(
        outcome: Outcome,
        (session, requester): (SessionId, &Requester),
        (opening, flows): (Opening, &[FlowFilter]),
        lifetime: Duration,
        refusal: &Refusal,
        resources: &mut Resources,
    ) {
        resources.decide(Decided {
            outcome,
            subject: opening.into(),
            by: By::Opener(OpenerId::NATFW),
            session: Some(session),
            requester,
            flows,
            extent: Extent { opening: Some(opening), lifetime: Some(lifetime), ..Extent::default() },
            rule: None,
            why: Why::Refusal(refusal.clone()),
        });
    }

    /// Other rules came into force, which do not allow what stands.
    pub(super) fn note_withdrawn(
        session: &Session,
        requester: &Requester,
        opening: Opening,
        refusal: &Refusal,
        resources: &mut Resources,
    ) {
        resources.decide(Decided {
            outcome: Outcome::Lost,
            subject: opening.into(),
            by: By::Opener(OpenerId::NATFW),
            session: Some(session.id),
            requester,
            flows: &flows_of(session),
            extent: Extent { opening: Some(opening), ..Extent::default() },
            rule: None,
            why: Why::Refusal(refusal.clone()),
        });
    }

    /// The node stops: the passages of the sessions from a place in the table on end. `left`: not those that the next node takes
    /// over. The result is the place that follows.
    pub fn record_stop(&self, from: u32, left: bool, resources: &mut Resources) -> Option<u32> {
        resources.because(End::Stopped);
        self.sessions.walk(from, |key, session| {
            if !left || !session.is_handed_over() {
                self.note_passages(key, Outcome::Ended, resources);
            }
            true
        })
    }

    /// What the policy of this node allowed to a session stands from now on, or ends now: one record for each direction.
    pub(super) fn note_passages(&self, key: Key, outcome: Outcome, resources: &mut Resources) {
        if !resources.records_decisions() {
            return;
        }
        let Some(session) = invariant!(self.sessions.get(key), "a record has a session") else { return };
        let mut passages = session.plan.passages().peekable();
        // Only a session with a passage has packets that are judged.
        let flows = passages.peek().map_or_else(Vec::new, |_| flows_of(session));
        for passage in passages {
            let opening = passage.opening();
            let why = if outcome == Outcome::Ended { Why::End(resources.ending()) } else { Why::Allowed };
            resources.decide(Decided {
                outcome,
                subject: opening.into(),
                by: By::Opener(OpenerId::NATFW),
                session: Some(session.id),
                requester: passage.requester(),
                flows: &flows,
                extent: Extent {
                    opening: Some(opening),
                    lifetime: Some(Duration::from_secs(session.accepted.into())),
                    ..Extent::default()
                },
                rule: passage.rule().cloned(),
                why,
            });
        }
    }
}

/// The packets that the passage of a session is for.
fn flows_of(session: &Session) -> Vec<FlowFilter> {
    let pinhole = rule(&session.request, &session.plan);
    let flows = pinhole.iter().flat_map(|pinhole| pinhole.flows()).map(|flow| flow.packets);
    flows.collect()
}
