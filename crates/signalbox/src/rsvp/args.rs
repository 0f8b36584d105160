//! What the commands have in common.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::rsvp_filter::Selector;
use signalbox_resources::Rate;

use crate::ping::{duration, protocol};
use crate::reserve::{octets, rate};

/// Largest packet if nothing is said: that of Ethernet.
const MAX_PACKET: u32 = 1500;
/// Smallest packet if nothing is said: headers of IPv4 and UDP, and little more.
const MIN_POLICED: u32 = 64;

/// Which session.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArgs {
    /// Where the data go: a host or a multicast group.
    pub(crate) destination: IpAddr,
    /// Their IP protocol: a number, or tcp, udp, icmp.
    #[arg(long = "proto", value_name = "PROTOCOL", value_parser = protocol)]
    pub(crate) protocol: u8,
    /// Their destination port.
    #[arg(long = "dport", value_name = "PORT")]
    pub(crate) destination_port: Option<u16>,
    /// The same for so many sessions, to ports from --dport on; told is when all of them are there.
    #[arg(long, value_name = "N", requires = "destination_port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) flows: Option<u16>,
    /// The port is a virtual one, and packets are told apart by their IPsec SPI (RFC 2207).
    #[arg(long)]
    pub(crate) ipsec: bool,
    /// End after this time; without it, at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) hold: Option<Duration>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl SessionArgs {
    /// The first message of the call.
    pub(super) fn register(&self) -> v1::RsvpRegister {
        v1::RsvpRegister {
            destination: self.destination.to_string(),
            protocol: self.protocol.into(),
            port: self.destination_port.unwrap_or(0).into(),
            ipsec: self.ipsec,
        }
    }
}

/// How much traffic.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrafficArgs {
    /// Burst in octets: 3000, 15k, 1m [default: a tenth of a second at the rate].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) burst: Option<u32>,
    /// Peak rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) peak: Option<Rate>,
    /// Largest packet in octets [default: 1500].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) max_packet: Option<u32>,
    /// Shorter packets count as so many octets [default: 64].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) min_policed: Option<u32>,
}

impl TrafficArgs {
    #[expect(clippy::cast_precision_loss, reason = "rates of links are far below 2^53")]
    pub(super) fn with_rate(&self, rate: Rate) -> v1::RsvpTraffic {
        let max_packet = self.max_packet.unwrap_or(MAX_PACKET);
        let usual = (rate.0 / 10).max(u64::from(max_packet) * 2);
        v1::RsvpTraffic {
            rate: rate.0 as f64,
            burst: self.burst.map_or(usual as f64, f64::from),
            peak: self.peak.map(|peak| peak.0 as f64),
            min_policed: self.min_policed.unwrap_or(MIN_POLICED).min(max_packet),
            max_packet,
        }
    }
}

/// A sender as people write it: an address, and behind a slash its port, `label:N` or `spi:N`.
pub(super) fn sender(text: &str) -> Result<v1::RsvpFilter, String> {
    let wrong = || "use ADDRESS, ADDRESS/PORT, ADDRESS/label:N or ADDRESS/spi:N".to_owned();
    let (address, rest) = text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
    let source: IpAddr = address.parse().map_err(|_| wrong())?;
    let selector = match rest {
        None => None,
        Some(rest) => Some(if let Some(label) = rest.strip_prefix("label:") {
            Selector::FlowLabel(number(label).filter(|label| label >> 20 == 0).ok_or_else(wrong)?)
        } else if let Some(spi) = rest.strip_prefix("spi:") {
            Selector::Spi(number(spi).ok_or_else(wrong)?)
        } else {
            Selector::Port(rest.parse::<u16>().map_err(|_| wrong())?.into())
        }),
    };
    Ok(v1::RsvpFilter { source: source.to_string(), selector })
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_read() {
        for (text, expected) in [
            ("10.0.0.1", None),
            ("10.0.0.1/5004", Some(Selector::Port(5004))),
            ("fd00::1/label:0x12345", Some(Selector::FlowLabel(0x12345))),
            ("fd00::1/spi:7", Some(Selector::Spi(7))),
        ] {
            assert_eq!(sender(text).unwrap().selector, expected, "{text}");
        }
        for text in ["h1", "10.0.0.1/", "10.0.0.1/70000", "fd00::1/label:0x100000", "fd00::1/spi:x"] {
            assert!(sender(text).is_err(), "{text}");
        }
    }
}
