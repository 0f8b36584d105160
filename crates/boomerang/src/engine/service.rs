//! What a message asks for in one direction: a rate of a code point, or IntServ parameters.

use signalbox_core::index::KeyedHasher;
use signalbox_core::traffic::{ServiceClass, TrafficSpec};
use signalbox_resources::GrantRequest;
use signalbox_resources::intserv::{ErrorTerms, RSpec, TSpec};
use signalbox_resources::request::GuaranteedRequest;

use super::io::Reason;
use crate::wire::{Parameters, Pass, Qos};

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
        let asked = Parameters::parse(message).ok_or(Reason::Unsupported)?;
        let tspec = TSpec::new(asked.rate, asked.bucket, asked.peak, asked.min_policed, asked.max_packet);
        let tspec = tspec.map_err(|_| Reason::BadRequest)?;
        let traffic = tspec.to_traffic().map_err(|_| Reason::BadRequest)?;
        let guaranteed = match asked.guaranteed {
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

    /// The service, with the code point of the message.
    pub(super) const fn service(&self, dscp: u8) -> ServiceClass {
        match self.intserv {
            None => ServiceClass::Dscp(dscp),
            Some(IntServ { guaranteed: None, .. }) => ServiceClass::ControlledLoad,
            Some(IntServ { guaranteed: Some(_), .. }) => ServiceClass::Guaranteed,
        }
    }

    /// Completes a request to admission control.
    pub(super) fn complete(&self, ask: &mut GrantRequest, dscp: u8) {
        ask.service = self.service(dscp);
        let Some(intserv) = self.intserv else { return };
        ask.traffic = intserv.traffic;
        ask.guaranteed = intserv.guaranteed;
        // The queue of an IntServ service needs no code point.
        ask.mark_dscp = Some(dscp).filter(|dscp| *dscp != 0);
    }
}
