//! QSPECs and admission control in one step (RFC 5974 §5.3.8): [`pass`] and [`Resources`].

use signalbox_core::Time;
use signalbox_core::traffic::ServiceClass;
use signalbox_resources::intserv::RSpec;
use signalbox_resources::refusal::{LinkWhy, PolicyWhy, Rule};
use signalbox_resources::{Admitted, Cause, GrantId, GrantRequest, Refusal, Resources};

use super::demand::{Demand, float_down};
use super::messages::{Message, available_is_collected};
use super::offer::Offer;
use super::pass::{Passed, pass};
use super::refuse::{malformed, refuse};
use crate::wire::qspec::{Outcome, ParameterId, Qspec, QspecError, Tmod};

/// Most attempts to lower a request until it fits: each attempt meets another limit, or corrects rounding.
const MAX_ATTEMPTS: u32 = 6;

/// A RESERVE was refused. The QSPEC of its RESPONSE was appended, if there is one.
#[derive(Debug, Clone, PartialEq)]
pub enum Denied {
    /// The QSPEC is malformed, or of a newer version.
    Qspec(QspecError),
    /// A parameter is not supported here or exceeds the offer, or an earlier node reported so.
    Unsatisfied,
    /// Admission control refused.
    Refused(Refusal),
}

impl Denied {
    /// The outcome in the INFO-SPEC (RFC 5975 §4.2.3). QoS NSLP has codes of its own for a refusal by policy; here it
    /// is a reservation failure.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Qspec(error) => error.outcome(),
            Self::Unsatisfied | Self::Refused(_) => Outcome::FAILURE,
        }
    }
}

impl Demand {
    /// The guaranteed service that is requested, with its rate; see [the module](super).
    #[must_use]
    pub fn rspec(&self) -> Option<RSpec> {
        RSpec::new(self.tmod?.rate, self.slack_us?).ok()
    }

    /// The request to admission control: `base` with the values of a QSPEC. `None` if the QSPEC has no traffic model.
    /// A QSPEC has no error terms of the path: the path begins at this node.
    #[must_use]
    pub fn ask(&self, base: &GrantRequest) -> Option<GrantRequest> {
        let priorities = self.priorities();
        Some(GrantRequest {
            traffic: self.traffic()?,
            service: self.service(),
            guaranteed: self.rspec().map(|rspec| signalbox_resources::request::GuaranteedRequest {
                rspec,
                terms: Default::default(),
            }),
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

/// Admits the request of the QSPEC of a RESERVE, in the place of `old` if there is one. Appends to `out` the QSPEC for
/// the next node or, if it is refused, for the RESPONSE (RFC 5975 §4.3).
///
/// `base` is the request without the values of the QSPEC. `offer` has the properties of the node that admission
/// control does not decide; its limit is the MTU. If nodes may give less than desired, the request is lowered to the
/// available resources.
///
/// # Errors
/// [`Denied`]; then nothing was reserved, and `old` stays.
pub fn reserve(
    resources: &mut Resources,
    now: Time,
    (base, old): (&GrantRequest, Option<GrantId>),
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
        // The result of `pass` is valid.
        let _ = refuse(&lowered, blame(&refusal, &ask), out);
        return Err(Denied::Refused(refusal));
    }
}

/// Compares the QSPEC of a QUERY with the resources of this node, in the place of `old` if there is one. Appends to
/// `out` the QSPEC for the next node, lowered to the available resources if the QUERY collects them (RFC 5975 §4.3.3).
/// Nothing is reserved.
///
/// # Errors
/// As [`pass`].
pub fn query(
    resources: &Resources,
    now: Time,
    (base, old): (&GrantRequest, Option<GrantId>),
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
        // The last attempt shows that nothing is available.
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

/// The limit that the request exceeded; `None` if less traffic would not help.
fn room(refusal: &Refusal, ask: &GrantRequest, limit: &Tmod) -> Option<Tmod> {
    let rate =
        |octets: u64| Tmod { rate: float_down(octets.min(ask.traffic.rate.saturating_sub(1))), ..*limit };
    // The requested rate includes link headers, in a fixed ratio to the rate.
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

/// The parameter that caused a refusal; `None`: no single one.
fn blame(refusal: &Refusal, ask: &GrantRequest) -> Option<ParameterId> {
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
