//! QSPECs on one side, [`Resources`] on the other (RFC 5974 §5.3.8): [`pass`] and admission control in one step.

use signalbox_core::Time;
use signalbox_core::traffic::ServiceClass;
use signalbox_resources::intserv::RSpec;
use signalbox_resources::refusal::{LinkWhy, PolicyWhy, Rule};
use signalbox_resources::{Admitted, Ask, Cause, GrantId, Refusal, Resources};

use super::demand::{Demand, float_down};
use super::messages::{Message, available_is_collected};
use super::offer::Offer;
use super::pass::{Passed, pass};
use super::refuse::{malformed, refuse};
use crate::wire::qspec::{Outcome, ParameterId, Qspec, QspecError, Tmod};

/// How often a request is lowered until it fits: each time by another limit, or by what rounding left.
const MAX_ATTEMPTS: u32 = 6;

/// A RESERVE was not granted. What its RESPONSE shows of the QSPEC was appended, if there is anything to show.
#[derive(Debug, Clone, PartialEq)]
pub enum Denied {
    /// The QSPEC is malformed, or of a newer version.
    Qspec(QspecError),
    /// Something that it asks for is not supported here, or more than the offer says; or a node before this one said
    /// so.
    Unsatisfied,
    /// Admission control refused.
    Refused(Refusal),
}

impl Denied {
    /// What the INFO-SPEC says. A refusal by policy has codes of its own in QoS NSLP; here it is a reservation
    /// failure.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Qspec(error) => error.outcome(),
            Self::Unsatisfied | Self::Refused(_) => Outcome::FAILURE,
        }
    }
}

impl Demand {
    /// Whether it is guaranteed service, and at which rate; see [the module](super).
    #[must_use]
    pub fn rspec(&self) -> Option<RSpec> {
        RSpec::new(self.tmod?.rate, self.slack_us?).ok()
    }

    /// `base` with everything in it that a QSPEC says; `None` if it says no traffic. The path's error terms are not in
    /// a QSPEC: the path begins at this node.
    #[must_use]
    pub fn ask(&self, base: &Ask) -> Option<Ask> {
        let priorities = self.priorities();
        Some(Ask {
            traffic: self.traffic()?,
            service: self.service(),
            guaranteed: self
                .rspec()
                .map(|rspec| signalbox_resources::ask::GuaranteedAsk { rspec, terms: Default::default() }),
            priority: signalbox_resources::Priority {
                setup: priorities.preemption,
                defending: priorities.defending,
            },
            mark_dscp: self.dscp().or(base.mark_dscp),
            excess: self.excess().or(base.excess),
            ..base.clone()
        })
    }
}

/// Admits what the QSPEC of a RESERVE asks for, in the place of `old` if there is one, and appends to `out` the QSPEC
/// that goes on; denied, what of it to send back.
///
/// `base` is the request but for what the QSPEC says. `offer` is what the node promises besides its resources; its limit
/// is the MTU, and whatever else is not for admission control to judge. If the QSPEC lets nodes give less than desired,
/// it is lowered to what admission control would grant.
///
/// # Errors
/// [`Denied`]; then nothing was reserved and `old` stands as before.
pub fn reserve(
    resources: &mut Resources,
    now: Time,
    (base, old): (&Ask, Option<GrantId>),
    octets: &[u8],
    offer: &Offer,
    out: &mut Vec<u8>,
) -> Result<(Admitted, Passed), Denied> {
    let start = out.len();
    let collects = collects(octets, Message::Reserve);
    let mut offer = *offer;
    let mut attempts = 0;
    loop {
        out.truncate(start);
        let passed = pass(octets, Message::Reserve, &offer, out).map_err(|error| {
            malformed(octets, Message::Reserve, out);
            Denied::Qspec(error)
        })?;
        let Some(ask) = passed.demand.ask(base).filter(|_| !passed.failed) else {
            return Err(Denied::Unsatisfied);
        };
        let result = match old {
            Some(old) => resources.modify(now, old, &ask),
            None => resources.admit(now, &ask),
        };
        let refusal = match result {
            Ok(admitted) => return Ok((admitted, passed)),
            Err(refusal) => refusal,
        };
        attempts += 1;
        if collects
            && attempts < MAX_ATTEMPTS
            && let Some(limit) = room(&refusal, &ask, &offer.limit)
        {
            offer.limit = limit;
            continue;
        }
        let lowered = out.split_off(start);
        // What `pass` made can be read.
        let _ = refuse(&lowered, blame(&refusal, &ask), out);
        return Err(Denied::Refused(refusal));
    }
}

/// Looks what the QSPEC of a QUERY could get, in the place of `old` if there is one, and appends to `out` the QSPEC that goes on, lowered to that if the QUERY
/// collects. Nothing is reserved.
///
/// # Errors
/// As [`pass`].
pub fn query(
    resources: &Resources,
    now: Time,
    (base, old): (&Ask, Option<GrantId>),
    octets: &[u8],
    offer: &Offer,
    out: &mut Vec<u8>,
) -> Result<Passed, QspecError> {
    let start = out.len();
    let collects = collects(octets, Message::Query);
    let mut offer = *offer;
    let mut attempts = 0;
    loop {
        out.truncate(start);
        let passed = pass(octets, Message::Query, &offer, out)?;
        let Some(ask) = passed.demand.ask(base).filter(|_| collects && !passed.failed) else {
            return Ok(passed);
        };
        let dry = match old {
            Some(old) => resources.dry_modify(now, old, &ask),
            None => resources.dry_run(now, &ask),
        };
        let Err(refusal) = dry.result else { return Ok(passed) };
        attempts += 1;
        // The last attempt says that there is nothing.
        let nothing = Tmod { rate: 0.0, ..offer.limit };
        if attempts > MAX_ATTEMPTS {
            return Ok(passed);
        }
        let limit = room(&refusal, &ask, &offer.limit).filter(|_| attempts < MAX_ATTEMPTS);
        if limit.is_none() {
            attempts = MAX_ATTEMPTS;
        }
        offer.limit = limit.unwrap_or(nothing);
    }
}

fn collects(octets: &[u8], message: Message) -> bool {
    Qspec::frame(octets).is_ok_and(|qspec| available_is_collected(qspec.header.procedure, message))
}

/// The limit by which `ask` would not have been refused for this reason; `None` if less traffic would not help.
fn room(refusal: &Refusal, ask: &Ask, limit: &Tmod) -> Option<Tmod> {
    let rate =
        |octets: u64| Tmod { rate: float_down(octets.min(ask.traffic.rate.saturating_sub(1))), ..*limit };
    // What was asked counts link headers, which are a fixed part of it: the rate shrinks with it.
    let part = |room: u64, asked: u64| {
        let scaled = u128::from(ask.traffic.rate) * u128::from(room) / u128::from(asked.max(1));
        rate(u64::try_from(scaled).unwrap_or(u64::MAX))
    };
    let bucket = |octets: u64| Tmod {
        bucket: float_down(octets.min(ask.traffic.burst.saturating_sub(1).into())),
        ..*limit
    };
    let lowered = match &refusal.rule {
        Rule::Link { why, .. } => match *why {
            LinkWhy::Share { used, asked, limit } | LinkWhy::Service { used, asked, limit, .. } => {
                part(limit.saturating_sub(used), asked)
            }
            LinkWhy::Each { asked, limit, .. } => part(limit, asked),
            LinkWhy::Buffer { used, limit, .. } if ask.service != ServiceClass::Guaranteed => {
                bucket(limit.saturating_sub(used))
            }
            LinkWhy::Mtu { mtu, .. } => Tmod { max_packet: mtu.min(limit.max_packet), ..*limit },
            _ => return None,
        },
        Rule::Policy { why, .. } => match *why {
            PolicyWhy::Rate { asked, limit } => part(limit, asked),
            PolicyWhy::Total { used, asked, limit } => part(limit.saturating_sub(used), asked),
            PolicyWhy::Burst { limit, .. } => bucket(limit.into()),
            _ => return None,
        },
        _ => return None,
    };
    (lowered.rate >= 1.0 && lowered.bucket >= 1.0 && lowered.max_packet >= 1).then_some(lowered)
}

/// The parameter that a refusal is about; `None`: none of them.
fn blame(refusal: &Refusal, ask: &Ask) -> Option<ParameterId> {
    match (&refusal.rule, refusal.cause(), ask.service) {
        (
            Rule::Policy {
                why: PolicyWhy::SetupPriority { .. } | PolicyWhy::DefendingPriority { .. }, ..
            },
            ..,
        ) => Some(ParameterId::PREEMPTION_PRIORITY),
        (
            Rule::Policy {
                why: PolicyWhy::Rate { .. } | PolicyWhy::Burst { .. } | PolicyWhy::Total { .. },
                ..
            },
            ..,
        ) => Some(ParameterId::TMOD_1),
        (_, Cause::Bandwidth | Cause::Buffer | Cause::Mtu | Cause::BadRequest, _) => {
            Some(ParameterId::TMOD_1)
        }
        (_, Cause::Unsupported, ServiceClass::Guaranteed) => Some(ParameterId::SLACK_TERM),
        (_, Cause::Unsupported, ServiceClass::Dscp(_)) => Some(ParameterId::PHB_CLASS),
        _ => None,
    }
}
