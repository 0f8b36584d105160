//! The check `load`: what messages or packets cost, on a link or at a node.

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::CheckKeys;
use crate::language::kinds::{Key, key};
use crate::language::steps::Step;
use crate::language::steps::flood::Kind;
use crate::language::together::alone;
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) of: Option<Spanned<String>>,
    pub(crate) min_messages: Option<u64>,
    pub(crate) max_cpu_per_message: Option<Span>,
    pub(crate) max_memory_kib: Option<u64>,
    pub(crate) base: Option<Spanned<String>>,
    pub(crate) max_times: Option<f64>,
    pub(crate) protocol: Option<Spanned<String>>,
    pub(crate) link: Option<Spanned<String>>,
    pub(crate) during: Option<Spanned<String>>,
    pub(crate) base_link: Option<Spanned<String>>,
    pub(crate) fewer_packets: Option<f64>,
    pub(crate) fewer_octets: Option<f64>,
}

impl CheckKeys for Load {
    const NAME: &'static str = "load";
    const MEANING: &'static str = "What a flood cost the node that received it; or how much longer a packet took than in another flood; or how many packets and octets a second a protocol sent on a link, compared with another link or time.";
    const KEYS: &'static [Key] = &[
        key("of", "id", "a `flood` step").optional(),
        key("min_messages", "number", "the least number of messages that the flood sent").optional(),
        key("max_cpu_per_message", "time", "the most processor time of the daemon for each message")
            .optional(),
        key("max_memory_kib", "KiB", "the most that the memory of the daemon grew").optional(),
        key(
            "base",
            "id",
            "what is compared with: another `flood` step, or the step that lasts while `base_link` is judged",
        )
        .optional(),
        key(
            "max_times",
            "number",
            "the best run of the flood took at most so many times as long as that of `base`",
        )
        .optional(),
        key("protocol", "protocol", "the protocol whose messages are judged").optional(),
        key("link", "link", "the link").optional(),
        key("during", "id", "while this step lasts").optional(),
        key("base_link", "link", "the link that it is compared with").optional(),
        key(
            "fewer_packets",
            "number",
            "the least quotient of the packets a second on `base_link` and on `link`",
        )
        .optional(),
        key("fewer_octets", "number", "the same of octets of IP packets").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        let wrong = "`load` needs `of`; or `of`, `base` and `max_times`; or `protocol`, `link`, `during`, `base_link` and `base`";
        let cost = [
            ("min_messages", self.min_messages.is_some()),
            ("max_cpu_per_message", self.max_cpu_per_message.is_some()),
            ("max_memory_kib", self.max_memory_kib.is_some()),
        ];
        let times = [("max_times", self.max_times.is_some())];
        let fewer =
            [("fewer_packets", self.fewer_packets.is_some()), ("fewer_octets", self.fewer_octets.is_some())];
        match (&self.of, &self.base, self.parts()) {
            (Some(of), None, None) => {
                alone(of.span(), "of", &times)?;
                alone(of.span(), "of", &fewer)?;
                flood(scope, of, Kind::Query)
            }
            (Some(of), Some(base), None) if self.max_times.is_some() => {
                alone(base.span(), "base", &cost)?;
                alone(base.span(), "base", &fewer)?;
                flood(scope, of, Kind::Udp)?;
                flood(scope, base, Kind::Udp)
            }
            (None, Some(base), Some([protocol, link, during, base_link])) => {
                alone(protocol.span(), "protocol", &cost)?;
                alone(protocol.span(), "protocol", &times)?;
                scope.link(link)?;
                scope.link(base_link)?;
                scope.ids([during, base])
            }
            _ => Err(Mistake::new(0..0, wrong)),
        }
    }
}

/// Fails unless an earlier step with this `id` floods with such messages or packets.
fn flood(scope: &Scope<'_>, id: &Spanned<String>, kind: Kind) -> Result<(), Mistake> {
    scope.id_of(&["flood"], id)?;
    if scope.is_step(id, |step| matches!(step, Step::Flood(keys) if keys.kind == kind)) {
        return Ok(());
    }
    let what = match kind {
        Kind::Query => "has no `type = \"query\"`: what packets cost is compared with `base` and `max_times`",
        Kind::Udp => "has no `type = \"udp\"`: only the time of packets is compared",
    };
    Err(Mistake::new(id.span(), format!("`{}` {what}", id.as_ref())))
}

impl Load {
    /// Returns protocol, link, step and the other link, if a protocol's messages are judged.
    pub(crate) fn parts(&self) -> Option<[&Spanned<String>; 4]> {
        Some([self.protocol.as_ref()?, self.link.as_ref()?, self.during.as_ref()?, self.base_link.as_ref()?])
    }
}
