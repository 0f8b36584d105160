//! What a message asks for in one direction: a rate of a code point, or IntServ parameters.

use signalbox_core::index::KeyedHasher;
use signalbox_core::traffic::{ServiceClass, TrafficSpec};
use signalbox_resources::GrantRequest;
use signalbox_resources::intserv::{ErrorTerms, RSpec, TSpec};
use signalbox_resources::request::GuaranteedRequest;

use super::io::{Reason, ServiceParameters};
use crate::wire::{Parameters, Pass, Qos, Rates};

/// IntServ parameters that admission control can judge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IntServ {
    /// Distinguishes these parameters from others, in place of a rate.
    pub(super) tag: u32,
    traffic: TrafficSpec,
    guaranteed: Option<GuaranteedRequest>,
}

/// What a message asks for in the direction of its pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    /// Rate, bit/s; 0: nothing.
    pub(super) rate: u32,
    /// The IntServ parameters; `None`: the rate is all.
    pub(super) intserv: Option<IntServ>,
}

/// A number as a float that does not exceed it.
fn float(number: u32) -> f32 {
    // A float holds 24 bits.
    let rest = 8_u32.saturating_sub(number.leading_zeros());
    #[expect(clippy::cast_precision_loss, reason = "what does not fit is cut off")]
    let float = (number >> rest << rest) as f32;
    float
}

impl ServiceParameters {
    /// The IntServ messages of both directions with these token rates.
    pub(super) fn messages(&self, rates: Rates) -> [Vec<u8>; 2] {
        [Pass::Request, Pass::Reply].map(|pass| {
            let rate = rates.of(pass) / 8;
            let mut message = Vec::new();
            if rate == 0 {
                return vec![0; 4];
            }
            let parameters = Parameters {
                rate: float(rate),
                bucket: float(self.bucket),
                peak: self.peak.map_or(f32::INFINITY, float),
                min_policed: self.min_policed,
                max_packet: self.max_packet,
                // After a change the rate of the service is at least the new token rate.
                guaranteed: self.guaranteed.map(|(own, slack)| (float(own.max(rate)), slack)),
            };
            parameters.encode(&mut message);
            message
        })
    }

    /// Whether they can be asked for with these token rates.
    pub(super) fn fit(&self, rates: &[Rates], hasher: &KeyedHasher) -> bool {
        let [rates] = rates else { return false };
        let most = rates.forward.max(rates.reverse) / 8;
        self.guaranteed.is_none_or(|(rate, _)| rate >= most) && self.are_valid(*rates, hasher)
    }

    /// Whether admission control can judge them with these token rates.
    pub(super) fn are_valid(&self, rates: Rates, hasher: &KeyedHasher) -> bool {
        let [forward, reverse] = &self.messages(rates);
        let qos = Qos::IntServ(crate::wire::IntServ { forward, reverse });
        [Pass::Request, Pass::Reply].into_iter().all(|pass| Demand::read(&qos, pass, hasher).is_ok())
    }
}

/// The rates that a message has, of IntServ parameters the token rates. A rate that cannot be read is 0. BOOM-G21-02.
pub(super) fn offered(qos: &Qos<'_>, hasher: &KeyedHasher) -> Rates {
    let rate = |pass| Demand::read(qos, pass, hasher).map_or(0, |demand| demand.rate);
    Rates { forward: rate(Pass::Request), reverse: rate(Pass::Reply) }
}

impl Demand {
    /// Reads what a QoS specification asks for; an error is the reason why it cannot be granted.
    pub(super) fn read(qos: &Qos<'_>, pass: Pass, hasher: &KeyedHasher) -> Result<Self, Reason> {
        let message = match qos {
            Qos::BitRate(rates) => return Ok(Self { rate: rates.of(pass), intserv: None }),
            Qos::Downgrade(list) => return Ok(Self { rate: list.first().of(pass), intserv: None }),
            Qos::IntServ(specs) => specs.of(pass),
        };
        if message.len() <= 4 {
            return Ok(Self { rate: 0, intserv: None });
        }
        let parameters = Parameters::parse(message).ok_or(Reason::Unsupported)?;
        let tspec = TSpec::new(
            parameters.rate,
            parameters.bucket,
            parameters.peak,
            parameters.min_policed,
            parameters.max_packet,
        );
        let tspec = tspec.map_err(|_| Reason::BadRequest)?;
        let traffic = tspec.to_traffic().map_err(|_| Reason::BadRequest)?;
        let guaranteed = match parameters.guaranteed {
            None => None,
            Some((rate, slack)) => {
                let rspec = RSpec::new(rate, slack).and_then(|rspec| rspec.checked(&tspec));
                let rspec = rspec.map_err(|_| Reason::BadRequest)?;
                // A message has no error terms: the bound counts from this node.
                Some(GuaranteedRequest { rspec, terms: ErrorTerms::default() })
            }
        };
        let [a, b, c, d, ..] = hasher.hash_octets(message).to_be_bytes();
        let tag = u32::from_be_bytes([a, b, c, d]);
        let rate = u32::try_from(traffic.rate.saturating_mul(8)).unwrap_or(u32::MAX);
        Ok(Self { rate, intserv: Some(IntServ { tag, traffic, guaranteed }) })
    }

    /// What distinguishes it from other demands of its kind: the rate, or the tag of the parameters.
    pub(super) fn tag(&self) -> u32 {
        self.intserv.map_or(self.rate, |intserv| intserv.tag)
    }

    /// The service, with the code point of the message. BOOM-3.2.2-07.
    pub(super) const fn service(&self, dscp: u8) -> ServiceClass {
        match self.intserv {
            None => ServiceClass::Dscp(dscp),
            Some(IntServ { guaranteed: None, .. }) => ServiceClass::ControlledLoad,
            Some(IntServ { guaranteed: Some(_), .. }) => ServiceClass::Guaranteed,
        }
    }

    /// Completes a request to admission control. BOOM-P-07.
    pub(super) fn complete(&self, grant_request: &mut GrantRequest, dscp: u8) {
        grant_request.service = self.service(dscp);
        let Some(intserv) = self.intserv else { return };
        grant_request.traffic = intserv.traffic;
        grant_request.guaranteed = intserv.guaranteed;
        // The queue of an IntServ service needs no code point.
        grant_request.mark_dscp = Some(dscp).filter(|dscp| *dscp != 0);
    }
}
