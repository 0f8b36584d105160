//! The step `inject`: packets that no daemon sent.

use serde::Deserialize;
use toml::Spanned;

use super::StepKeys;
use crate::language::fields::Fields;
use crate::language::kinds::{ANY, Key, key};
use crate::language::{Element, Mistake, Scope, fields, kinds};
use crate::protocols;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inject {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
    pub(crate) replay_last: Option<Spanned<String>>,
    pub(crate) protocol: Option<Spanned<String>>,
    #[serde(default = "no")]
    pub(crate) alter: Spanned<bool>,
    pub(crate) hex: Option<Spanned<String>>,
    #[serde(default = "once")]
    pub(crate) count: u32,
    #[serde(skip)]
    pub(crate) fields: Fields,
}

fn no() -> Spanned<bool> {
    Spanned::new(0..0, false)
}

const fn once() -> u32 {
    1
}

impl StepKeys for Inject {
    const NAME: &'static str = "inject";
    const MEANING: &'static str = "Sends a packet from a node to its neighbor through a raw socket, and not by a daemon: the last message of a type that passed there, as it was captured or altered; or any octets.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the sender"),
        key("to", "node", "its neighbor"),
        key("replay_last", "type", "the `type` of the message, like \"path\"").optional(),
        key("protocol", "protocol", "the protocol of the message").optional(),
        key(
            "alter",
            "boolean",
            "change the message, with a correct checksum; RSVP: one bit of the refresh period",
        )
        .or("false"),
        key("hex", "hexadecimal", "instead of `replay_last`: the octets of an IP packet").optional(),
        key("count", "number", "how often").or("1"),
        key(ANY, "value", "any field of the protocol's messages: the last message with this value"),
    ];

    fn parse(element: Element<'_>) -> Result<Self, Mistake> {
        let (element, fields) = kinds::split(element, Self::KEYS)?;
        Ok(Self { fields, ..kinds::parse(element)? })
    }

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        scope.neighbors(&self.from, &self.to)?;
        match (&self.replay_last, &self.protocol, &self.hex) {
            (Some(_), Some(protocol), None) => {
                fields::validate_fields(protocol, &self.fields)?;
                let alters =
                    |known: &&dyn protocols::Protocol| known.name() == protocol.as_ref() && known.alters();
                if *self.alter.as_ref() && !protocols::all().any(|known| alters(&known)) {
                    let what =
                        format!("the lab cannot alter messages of {}; take `alter` out", protocol.as_ref());
                    return Err(Mistake::new(self.alter.span(), what));
                }
                Ok(())
            }
            (None, None, Some(hex)) => match octets(hex.as_ref()) {
                Some(packet) if matches!(packet.first().map(|first| first >> 4), Some(4 | 6)) => Ok(()),
                _ => Err(Mistake::new(hex.span(), "`hex` is an IP packet, two digits for each octet")),
            },
            _ => Err(Mistake::new(self.from.span(), "`inject` needs `replay_last` and `protocol`, or `hex`")),
        }
    }
}

/// Returns the octets that hexadecimal digits stand for; nothing if they do not.
pub(crate) fn octets(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect()).flatten()
}
