//! The step `inject`: packets that no daemon sent.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use signalbox_linux::capture::{Capture, CaptureConfig};
use toml::Spanned;

use super::Step;
use crate::checks::select::{self, Fields, Passed};
use crate::kernel;
use crate::kinds::{self, ANY, Key, key};
use crate::net;
use crate::observe::trace::LinkTrace;
use crate::plan::{Leg, Plan};
use crate::protocols;
use crate::protocols::frame::Frame;
use crate::run::Run;
use crate::scenario::{Element, Mistake, Scope};
use crate::wait;

/// The step lasts so long after the last packet, so that the answers to it belong to the step.
const ANSWER: Duration = Duration::from_millis(200);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inject {
    from: Spanned<String>,
    to: Spanned<String>,
    replay_last: Option<Spanned<String>>,
    protocol: Option<Spanned<String>>,
    #[serde(default = "no")]
    alter: Spanned<bool>,
    hex: Option<Spanned<String>>,
    #[serde(default = "once")]
    count: u32,
    #[serde(skip)]
    fields: Fields,
}

fn no() -> Spanned<bool> {
    Spanned::new(0..0, false)
}

const fn once() -> u32 {
    1
}

/// A frame that the lab altered and sent. It is not sent again.
#[derive(Debug)]
struct Forged(Vec<u8>);

impl Step for Inject {
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
        scope.neighbours(&self.from, &self.to)?;
        match (&self.replay_last, &self.protocol, &self.hex) {
            (Some(_), Some(protocol), None) => {
                select::validate_fields(protocol, &self.fields)?;
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

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        let (sender, receiver) = (self.from.as_ref(), self.to.as_ref());
        let (from, to) = (run.node(sender)?, run.node(receiver)?);
        let leg = run.lab.plan.leg(from, to).ok_or_else(|| anyhow!("no link between the two"))?;
        run.progress(&format!("packets from {sender} to {receiver} by the lab"));
        let frame = match self.hex.as_ref().and_then(|hex| octets(hex.as_ref())) {
            Some(packet) => [&net::ethernet(&run.lab.plan, leg, packet[0] >> 4)?[..], &packet].concat(),
            None => self.last(run, leg)?,
        };
        let plan = &run.lab.plan;
        let namespace = kernel::namespace(&plan.nodes[leg.from].namespace)?;
        let ends = &plan.links[leg.link].ends;
        let (_, interface) =
            ends.iter().find(|(node, _)| *node == leg.from).context("a link without its end")?;
        let socket = Capture::open(&namespace, interface, CaptureConfig { outgoing: false, buffer: 1 << 16 })
            .context("cannot open a raw socket")?;
        for _ in 0..self.count {
            socket.send(&frame).context("cannot send a packet")?;
        }
        wait::pass(ANSWER)
    }
}

impl Inject {
    /// Returns the last frame with such a message, altered if the step says so.
    fn last(&self, run: &mut Run<'_>, leg: Leg) -> Result<Vec<u8>> {
        let kind = self.replay_last.as_ref().map_or("", |kind| kind.as_ref().as_str());
        let name = self.protocol.as_ref().map_or("", |protocol| protocol.as_ref().as_str());
        let plan = &run.lab.plan;
        let outgoing = plan.links[leg.link].ends[0].0 == leg.from;
        let wanted = |octets: &[u8]| {
            let genuine = run.evidence.all::<Forged>().all(|forged| forged.0 != octets);
            genuine && self.is_meant(plan, name, kind, leg, outgoing, octets)
        };
        let frame = run.captures.last(leg.link, outgoing, wanted);
        let mut frame =
            frame.ok_or_else(|| anyhow!("no such {kind} passed there; the step comes too early"))?;
        if *self.alter.as_ref() {
            let protocol = protocols::all().find(|known| known.name() == name);
            let altered = protocol.and_then(|protocol| protocol.alter(&mut frame));
            altered.context("the message has nothing that can be altered")?;
            run.evidence.record(Forged(frame.clone()));
        }
        Ok(frame)
    }

    /// Whether a frame holds just one message, of the type and with the values that the step names.
    fn is_meant(
        &self,
        plan: &Plan,
        protocol: &str,
        kind: &str,
        leg: Leg,
        outgoing: bool,
        octets: &[u8],
    ) -> bool {
        let frame = Frame { number: 1, at: Duration::ZERO, outgoing, octets: octets.to_vec() };
        let trace = LinkTrace::read(leg.from, &[frame], 0);
        let [message] = trace.messages(protocol)[..] else { return false };
        let passed = Passed { message, leg };
        passed.text("type").as_deref() == Some(kind) && passed.has(plan, &self.fields)
    }
}

fn octets(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect()).flatten()
}
