//! The flow to reserve for, and how much.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use signalbox_api::v0;
use signalbox_resources::Rate;

use super::{duration, octets, protocol, rate};

/// A flow, and the resources wanted for it.
#[derive(Debug, Args)]
pub(crate) struct WantedArgs {
    /// Destination of the flow.
    pub(crate) destination: IpAddr,
    /// Rate of IP packets, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Rate,
    /// Burst in octets: 3000, 15k, 1m [default: a tenth of a second at the rate].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) burst: Option<u32>,
    /// Peak rate, at least the rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) peak: Option<Rate>,
    /// Largest packet in octets.
    #[arg(long, value_name = "OCTETS", default_value = "1500", value_parser = octets)]
    pub(crate) max_packet: u32,
    /// Least rate that will do if the rate cannot be had.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) at_least: Option<Rate>,
    /// Service: controlled-load, guaranteed, ef, or dscp:N.
    #[arg(long, default_value = "controlled-load", value_parser = service)]
    pub(crate) service: String,
    /// Bound of the queueing delay; with --service guaranteed.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) delay: Option<Duration>,
    /// Source of the flow; the node's own address towards the destination if not given.
    #[arg(long = "src", value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// IP protocol of the flow: a number, or tcp, udp, icmp [default: all].
    #[arg(long = "proto", value_name = "PROTOCOL", value_parser = protocol)]
    pub(crate) protocol: Option<u8>,
    /// Destination port of the flow.
    #[arg(long = "dport", value_name = "PORT", requires = "protocol")]
    pub(crate) destination_port: Option<u16>,
    /// Source port of the flow.
    #[arg(long = "sport", value_name = "PORT", requires = "protocol")]
    pub(crate) source_port: Option<u16>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl WantedArgs {
    /// The flow and the resources as part of a request to the daemon.
    ///
    /// # Errors
    /// The arguments contradict each other.
    pub(crate) fn request(&self) -> Result<v0::Wanted> {
        if self.delay.is_some() && self.service != "guaranteed" {
            bail!("--delay needs --service guaranteed");
        }
        Ok(v0::Wanted {
            destination: self.destination.to_string(),
            source: self.source.map(|a| a.to_string()).unwrap_or_default(),
            protocol: self.protocol.map(Into::into),
            source_port: self.source_port.map(Into::into),
            destination_port: self.destination_port.map(Into::into),
            rate: self.rate.0,
            burst: self.burst,
            peak: self.peak.map(|peak| peak.0),
            max_packet: Some(self.max_packet),
            min_policed: 0,
            service: self.service.clone(),
            delay_us: self.delay.map(|delay| u64::try_from(delay.as_micros())).transpose()?,
            minimum: self.at_least.map(|minimum| minimum.0),
        })
    }
}

/// The service as the API names it.
fn service(text: &str) -> Result<String, String> {
    match text {
        "controlled-load" | "guaranteed" => Ok(text.to_owned()),
        "ef" => Ok("dscp 46".to_owned()),
        _ => text
            .strip_prefix("dscp")
            .and_then(|number| number.trim_start_matches([':', ' ', '=']).parse::<u8>().ok())
            .filter(|dscp| *dscp <= 63)
            .map(|dscp| format!("dscp {dscp}"))
            .ok_or_else(|| "use controlled-load, guaranteed, ef, or dscp:N with N from 0 to 63".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_go_by_name_or_code_point() {
        for (text, expected) in [("ef", "dscp 46"), ("dscp:10", "dscp 10"), ("guaranteed", "guaranteed")] {
            assert_eq!(service(text).as_deref(), Ok(expected));
        }
        for text in ["dscp:64", "dscp", "best"] {
            assert!(service(text).is_err(), "{text}");
        }
    }
}
