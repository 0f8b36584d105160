//! A request for resources along the path of a flow.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;

use super::values::{rate, time};
use super::{AuthorityArgs, FlowArgs, ServiceArgs, TrafficArgs};

/// A flow, and the resources that it is to get.
#[derive(Debug, Clone, Args)]
pub(crate) struct RequestArgs {
    /// Destination of the flow: an address or a host name.
    #[arg(value_name = "DESTINATION")]
    pub(crate) destination: String,
    /// Rate of IP packets, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: u64,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Bound of the queueing delay, with --service guaranteed.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Service")]
    pub(crate) delay: Option<Duration>,
    #[command(flatten)]
    pub(crate) authority: AuthorityArgs,
}

impl RequestArgs {
    /// The flow.
    ///
    /// # Errors
    /// The destination cannot be resolved.
    pub(crate) fn flow(&self) -> Result<v1::FlowSpec> {
        self.flow.to(&self.destination)
    }

    /// The traffic.
    pub(crate) fn traffic(&self) -> v1::TokenBucket {
        self.traffic.with_rate(self.rate)
    }

    /// The service.
    ///
    /// # Errors
    /// A parameter is given that the service does not have.
    pub(crate) fn service(&self) -> Result<Option<v1::Service>> {
        self.service.request(self.delay)
    }
}
