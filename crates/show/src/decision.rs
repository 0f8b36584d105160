//! Decisions as messages of the API.

use signalbox_api::v1;
use signalbox_node::resources::decision::{By, Decision, End, Outcome, Subject, Why};

use crate::requester::{RequesterFields, counted, requester_fields};
use crate::types;

/// A decision. `time_unix_us` is the time of day at which it was made, `request_id` that of the call that asked for it.
#[must_use]
pub fn decision(decision: &Decision, time_unix_us: u64, request_id: Option<[u8; 16]>) -> v1::Decision {
    let (refused_by, available) = match &decision.why {
        Why::Beyond(node) | Why::End(End::RefusedBeyond(node)) => (node.map(|node| node.to_string()), None),
        Why::Refusal(refusal) => (None, (refusal.available > 0).then_some(refusal.available)),
        Why::Allowed | Why::Protocol(_) | Why::End(_) | Why::Lost(_) | Why::Reduced => (None, None),
    };
    let RequesterFields { neighbor, proof, identity, claimed } = requester_fields(&decision.requester);
    v1::Decision {
        time_unix_us,
        outcome: outcome(decision.outcome).into(),
        subject: subject(decision.subject).into(),
        protocol: match decision.by {
            By::Reserver(id) => types::owner(id),
            By::Opener(id) => types::opener(id),
        }
        .into(),
        id: decision.grant.map(crate::held::id),
        session_id: decision.session.map(types::session_id),
        neighbor,
        proof,
        identity,
        claimed,
        requester: counted(&decision.requester, decision.speaks),
        flows: decision.flows.iter().map(types::filter).collect(),
        interface: decision.interface.as_deref().map(str::to_owned),
        rate_octets_per_s: decision.extent.rate,
        service: decision.extent.service.map(|class| types::service(class, v1::Guaranteed::default)),
        opening: decision.extent.opening.map(|opening| opening.to_string()),
        lifetime_us: decision.extent.lifetime.map(types::micros),
        rule: decision.rule.as_ref().map(ToString::to_string),
        reason: match &decision.why {
            Why::Allowed => None,
            why => Some(why.to_string()),
        },
        refused_by,
        available_octets_per_s: available,
        lasted_us: decision.lasted.map(types::micros),
        request_id: request_id.map(Vec::from),
    }
}

/// What happened.
#[must_use]
pub const fn outcome(outcome: Outcome) -> v1::Outcome {
    match outcome {
        Outcome::Granted => v1::Outcome::Granted,
        Outcome::Changed => v1::Outcome::Changed,
        Outcome::Refused => v1::Outcome::Refused,
        Outcome::Preempted => v1::Outcome::Preempted,
        Outcome::Lost => v1::Outcome::Lost,
        Outcome::Restored => v1::Outcome::Restored,
        Outcome::Ended => v1::Outcome::Ended,
    }
}

const fn subject(subject: Subject) -> v1::Subject {
    match subject {
        Subject::Reservation => v1::Subject::Reservation,
        Subject::Aggregate => v1::Subject::Aggregate,
        Subject::Pinhole => v1::Subject::Pinhole,
        Subject::Binding => v1::Subject::Binding,
        Subject::Block => v1::Subject::Block,
        Subject::Session => v1::Subject::Session,
    }
}
