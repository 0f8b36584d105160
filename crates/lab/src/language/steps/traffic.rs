//! The step `traffic`: a flow of datagrams, or a number of them.

use serde::Deserialize;
use signalbox_units::BitRate;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::together::alone;
use crate::language::{Mistake, Scope};

/// IP and UDP headers.
pub(crate) const HEADERS: [u16; 2] = [28, 48];

/// The smallest packet that can carry its number, headers included.
const LEAST_SIZE: u16 = HEADERS[1] + 8;

/// The largest packet that a link carries in one piece.
const PACKET_MAX: u16 = 1500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traffic {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) port: Option<u16>,
    pub(crate) source_port: Option<u16>,
    pub(crate) rate: Option<BitRate>,
    pub(crate) count: Option<u32>,
    #[serde(default = "packet_size")]
    pub(crate) size: Spanned<u16>,
}

fn packet_size() -> Spanned<u16> {
    Spanned::new(0..0, 1000)
}

impl StepKeys for Traffic {
    const NAME: &'static str = "traffic";
    const MEANING: &'static str = "Sends UDP datagrams at a constant rate to a sink, until a `stop` of its id or the end; or a number of them, one after the other.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the sender"),
        key("to", "node", "the receiver"),
        key("port", "port", "the destination port of a flow").optional(),
        key("source_port", "port", "the source port; any free one if it is not given").optional(),
        key("rate", "rate", "the rate of a flow, with IP headers; each packet has a number, its times of sending and of arrival in the kernel are recorded").optional(),
        key("count", "number", "instead of `rate` and `port`: so many datagrams to port 9, with a time limit of 1 s each").optional(),
        key("size", "octets", "of a packet, IP header included; 56 to 1500").or("1000"),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])?;
        self.rate.map_or(Ok(()), |rate| scope.rate(rate, self.from.span()))?;
        if (self.rate.is_some() && self.port.is_some()) == self.count.is_some() {
            let what = "`traffic` needs `port` and `rate`, or `count`; like `port = 5004, rate = \"2mbit\"`";
            return Err(Mistake::new(self.from.span(), what));
        }
        if self.count.is_some() {
            let of_flows = [
                ("port", self.port.is_some()),
                ("rate", self.rate.is_some()),
                ("source_port", self.source_port.is_some()),
                // The default has no place in the file.
                ("size", !self.size.span().is_empty()),
            ];
            alone(self.from.span(), "count", &of_flows)?;
        }
        if (LEAST_SIZE..=PACKET_MAX).contains(self.size.as_ref()) {
            return Ok(());
        }
        let what = format!("`size` lies between {LEAST_SIZE} and {PACKET_MAX}");
        Err(Mistake::new(self.size.span(), what))
    }
}
