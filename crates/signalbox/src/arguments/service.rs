//! The service of a flow.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_core::traffic::ServiceClass;
use signalbox_units::Service;

use super::microseconds;
use super::values::{rate, time};
use crate::exit::usage;

/// The service that packets get, and the parameters of guaranteed service.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceArgs {
    /// Service: cl (controlled load, the default), guaranteed, ef, or dscp:N.
    #[arg(long, value_name = "SERVICE")]
    pub(crate) service: Option<Service>,
    /// Rate of the guaranteed service, at least the rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) service_rate: Option<u64>,
    /// Slack of the guaranteed service: what nodes may add to the delay (RFC 2212).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) slack: Option<Duration>,
}

impl ServiceArgs {
    /// The service as part of a request; `None` if no service is given. `delay` is the bound of the queueing delay.
    ///
    /// # Errors
    /// A parameter of guaranteed service is given for another service.
    pub(crate) fn request(&self, delay: Option<Duration>) -> Result<Option<v1::Service>> {
        use v1::service::Service as Kind;
        let kind = self.service.map(|Service(class)| match class {
            ServiceClass::ControlledLoad => Kind::ControlledLoad(v1::ControlledLoad {}),
            ServiceClass::Guaranteed => Kind::Guaranteed(v1::Guaranteed {
                rate_octets_per_s: self.service_rate,
                slack_us: self.slack.map(microseconds),
                delay_bound_us: delay.map(microseconds),
            }),
            ServiceClass::Dscp(code) => Kind::Dscp(code.into()),
        });
        if !matches!(kind, Some(Kind::Guaranteed(_))) {
            let given = [
                (self.service_rate.is_some(), "--service-rate"),
                (self.slack.is_some(), "--slack"),
                (delay.is_some(), "--delay"),
            ];
            if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
                usage!("{option} needs --service guaranteed");
            }
        }
        Ok(kind.map(|kind| v1::Service { service: Some(kind) }))
    }

    /// Whether the service is one of the IntServ architecture, which is described by a token bucket.
    pub(crate) const fn is_intserv(&self) -> bool {
        matches!(self.service, Some(Service(ServiceClass::ControlledLoad | ServiceClass::Guaranteed)))
    }

    /// Whether an option of the group is given.
    pub(crate) const fn is_given(&self) -> bool {
        self.service.is_some() || self.service_rate.is_some() || self.slack.is_some()
    }
}
