//! The packets of a flow.

use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;

use super::resolve;
use super::values::{flow_label, ip_protocol, number};

/// The packets of a flow, beside their destination.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Flow")]
pub(crate) struct FlowArgs {
    /// Source address; the node's own address towards the destination if not given.
    #[arg(long = "src", value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// IP protocol: a number, or tcp, udp, icmp [default: all].
    #[arg(long = "proto", value_name = "IP-PROTOCOL", value_parser = ip_protocol)]
    pub(crate) ip_protocol: Option<u8>,
    /// Source port.
    #[arg(long = "sport", value_name = "PORT", requires = "ip_protocol")]
    pub(crate) source_port: Option<u16>,
    /// Destination port.
    #[arg(long = "dport", value_name = "PORT", requires = "ip_protocol")]
    pub(crate) destination_port: Option<u16>,
    /// IPsec security parameter index.
    #[arg(long, value_name = "N", requires = "ip_protocol", conflicts_with_all = ["source_port", "destination_port"], value_parser = number)]
    pub(crate) spi: Option<u32>,
    /// IPv6 flow label.
    #[arg(long, value_name = "N", value_parser = flow_label)]
    pub(crate) flow_label: Option<u32>,
    /// Differentiated-services code point of the packets, 0 to 63.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=63))]
    pub(crate) dscp: Option<u8>,
}

impl FlowArgs {
    /// The flow to a host, which is an address or a name.
    ///
    /// # Errors
    /// The name cannot be resolved.
    pub(crate) fn to(&self, destination: &str) -> Result<v1::FlowSpec> {
        let destination = resolve(destination, self.source)?;
        Ok(v1::FlowSpec {
            source: self.source.map(|source| source.to_string()),
            destination: Some(destination.to_string()),
            ip_protocol: self.ip_protocol.map(Into::into),
            dscp: self.dscp.map(Into::into),
            flow_label: self.flow_label,
            spi: self.spi,
            source_port: self.source_port.map(Into::into),
            destination_port: self.destination_port.map(Into::into),
            ..v1::FlowSpec::default()
        })
    }
}
