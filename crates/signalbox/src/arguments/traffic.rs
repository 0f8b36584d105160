//! The traffic of a flow.

use clap::Args;
use signalbox_api::v1;

use super::values::{packet, rate, size};

/// A token bucket (RFC 2215 §3.6), beside its rate.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Traffic")]
pub(crate) struct TrafficArgs {
    /// Burst in octets: 3000, 15k, 64KiB [default: a tenth of a second at the rate].
    #[arg(long, value_name = "OCTETS", value_parser = size)]
    pub(crate) burst: Option<u64>,
    /// Peak rate, at least the rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) peak: Option<u64>,
    /// Largest packet in octets [default: 1500; with `reserve` and qos what the path carries, up to 1500].
    #[arg(long, value_name = "OCTETS", value_parser = packet)]
    pub(crate) max_packet: Option<u32>,
    /// Shorter packets count as this many octets.
    #[arg(long, value_name = "OCTETS", value_parser = packet)]
    pub(crate) min_policed: Option<u32>,
}

impl TrafficArgs {
    /// The token bucket with this rate. The node sets what is not given.
    pub(crate) fn with_rate(self, rate_octets_per_s: u64) -> v1::TokenBucket {
        v1::TokenBucket {
            rate_octets_per_s,
            burst_octets: self.burst,
            peak_octets_per_s: self.peak,
            min_policed_octets: self.min_policed,
            max_packet_octets: self.max_packet,
        }
    }
}
