//! How much a reservation is for: the bounds of a request, and what a node grants between them.

use signalbox_core::traffic::{ServiceClass, TrafficSpec};
use signalbox_resources::intserv::{ErrorTerms, RSpec, SpecError, TSpec};
use signalbox_resources::request::GuaranteedRequest;

use crate::wire::qos::{Bandwidth, Flowspec, QosErrorCode, QosMessage, QosVersion};

/// An amount of resources, of one of the kinds that this node grants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// An IntServ flowspec.
    Flowspec(Flowspec),
    /// A rate in octets a second.
    Rate(f32),
}

/// The bounds of a request: the least that is accepted, and the most that is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The lower bound.
    pub least: Amount,
    /// The upper bound, of the same kind.
    pub most: Amount,
}

/// What admission control is asked for.
pub(super) type Asked = (TrafficSpec, ServiceClass, Option<GuaranteedRequest>);

impl Amount {
    /// Rate in octets a second.
    #[must_use]
    pub const fn rate(&self) -> f32 {
        match self {
            Self::Flowspec(flowspec) => flowspec.rate,
            Self::Rate(rate) => *rate,
        }
    }

    /// The value of VERSION for this kind.
    #[must_use]
    pub const fn version(&self) -> QosVersion {
        match self {
            Self::Flowspec(_) => QosVersion::FLOWSPEC,
            Self::Rate(_) => QosVersion::BANDWIDTH,
        }
    }

    /// This amount, but no more than `rate` and no less than `least`.
    #[must_use]
    pub fn lowered(&self, least: &Self, rate: f32) -> Self {
        match (self, least) {
            (Self::Flowspec(most), Self::Flowspec(least)) => Self::Flowspec(most.lowered(least, rate)),
            _ => Self::Rate(rate.clamp(least.rate().min(self.rate()), self.rate())),
        }
    }

    /// The flowspec of a token bucket, with rate in octets a second and slack in microseconds if the service is guaranteed.
    ///
    /// # Errors
    /// The values do not fit each other.
    pub fn of_traffic(traffic: &TrafficSpec, guaranteed: Option<(u64, u32)>) -> Result<Self, SpecError> {
        let spec = TSpec::from_traffic(traffic)?;
        let guaranteed = match guaranteed {
            Some((rate, slack)) => {
                let served = TSpec::from_traffic(&TrafficSpec { rate, peak: None, ..*traffic })?.rate();
                Some((RSpec::new(served, slack)?.checked(&spec)?.rate(), slack))
            }
            None => None,
        };
        Ok(Self::Flowspec(Flowspec {
            rate: spec.rate(),
            bucket: spec.bucket(),
            peak: spec.peak(),
            min_policed: spec.min_policed(),
            max_packet: spec.max_packet(),
            guaranteed,
        }))
    }

    /// The token bucket of the amount, with rate and slack if the service is guaranteed; `None` if a node
    /// cannot grant it.
    #[must_use]
    pub fn to_traffic(&self) -> Option<(TrafficSpec, Option<(u64, u32)>)> {
        let (traffic, _, guaranteed) = self.asked().ok()?;
        let served = |one: GuaranteedRequest| {
            let of_rate = TSpec::new(one.rspec.rate(), 1.0, f32::INFINITY, 1, 1).ok()?.to_traffic().ok()?;
            Some((of_rate.rate, one.rspec.slack()))
        };
        Some((traffic, guaranteed.and_then(served)))
    }

    /// What admission control is asked for.
    pub(super) fn asked(&self) -> Result<Asked, SpecError> {
        Ok(match self {
            Self::Rate(rate) => {
                let tspec = TSpec::new(*rate, (rate / 10.0).max(3000.0), f32::INFINITY, 64, 1500)?;
                (tspec.to_traffic()?, ServiceClass::ControlledLoad, None)
            }
            Self::Flowspec(one) => {
                let tspec = TSpec::new(one.rate, one.bucket, one.peak, one.min_policed, one.max_packet)?;
                let traffic = tspec.to_traffic()?;
                match one.guaranteed {
                    Some((rate, slack)) => {
                        let (rspec, terms) = (RSpec::new(rate, slack)?, ErrorTerms::default());
                        (traffic, ServiceClass::Guaranteed, Some(GuaranteedRequest { rspec, terms }))
                    }
                    None => (traffic, ServiceClass::ControlledLoad, None),
                }
            }
        })
    }

    /// The granted amount in an answer.
    pub(super) fn answer(&self, message: &mut QosMessage<'_>) {
        message.version = Some(self.version());
        match self {
            Self::Flowspec(flowspec) => message.desired = Some(*flowspec),
            Self::Rate(rate) => message.bandwidth = Some(Bandwidth { upper: *rate, lower: *rate }),
        }
    }

    /// The granted amount of an answer, if it has one.
    pub(super) fn of_answer(message: &QosMessage<'_>) -> Option<Self> {
        match message.version? {
            QosVersion::FLOWSPEC => message.desired.or(message.minimum).map(Self::Flowspec),
            QosVersion::BANDWIDTH => message.bandwidth.map(|one| Self::Rate(one.upper)),
            _ => None,
        }
    }
}

impl Range {
    /// A request for one amount.
    #[must_use]
    pub const fn only(amount: Amount) -> Self {
        Self { least: amount, most: amount }
    }

    /// Whether there is room between the bounds.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.least != self.most
    }

    /// The bounds of a request; the error is its code and detail.
    pub(super) fn of(message: &QosMessage<'_>) -> Result<Self, (QosErrorCode, u16)> {
        const MALFORMED: (QosErrorCode, u16) = (QosErrorCode::MALFORMED, 8);
        match message.version {
            Some(QosVersion::FLOWSPEC) => {
                let least = message.minimum.or(message.desired).ok_or(MALFORMED)?;
                let most = message.desired.or(message.minimum).ok_or(MALFORMED)?;
                if most.rate < least.rate || most.guaranteed.is_some() != least.guaranteed.is_some() {
                    return Err(MALFORMED);
                }
                Ok(Self { least: Amount::Flowspec(least), most: Amount::Flowspec(most) })
            }
            Some(QosVersion::BANDWIDTH) => {
                let bandwidth = message.bandwidth.ok_or(MALFORMED)?;
                Ok(Self { least: Amount::Rate(bandwidth.lower), most: Amount::Rate(bandwidth.upper) })
            }
            // PHBs are no resource that this node can admit.
            Some(other) => Err((QosErrorCode::VERSION, u16::try_from(other.0).unwrap_or(u16::MAX))),
            None => Err(MALFORMED),
        }
    }

    /// Writes the bounds into a request. One flowspec alone stands for both.
    pub(super) fn write(&self, message: &mut QosMessage<'_>) {
        message.version = Some(self.most.version());
        match (self.least, self.most) {
            (Amount::Flowspec(least), Amount::Flowspec(most)) => {
                message.minimum = Some(least);
                message.desired = (least != most).then_some(most);
            }
            (least, most) => {
                message.bandwidth = Some(Bandwidth { upper: most.rate(), lower: least.rate() });
            }
        }
    }

    /// The part of this range that is also in another one; `None`: the least is over the other's upper bound.
    pub(super) fn within(&self, other: &Self) -> Option<Self> {
        let same = self.most.version() == other.most.version();
        let fits = same && self.least.rate() <= other.most.rate();
        fits.then(|| Self { least: self.least, most: self.most.lowered(&self.least, other.most.rate()) })
    }
}
