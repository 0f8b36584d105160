//! The step `resend`: an RSVP message again. The lab sends a frame that passed a link, from its sender but not by its
//! daemon.

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use signalbox_linux::capture::{Capture, CaptureConfig};
use toml::Spanned;

use super::message::{self, RsvpType};
use crate::kernel;
use crate::kinds::{Key, key};
use crate::observe::packet::Ip;
use crate::run::Run;
use crate::scenario::{MOMENT, Mistake, Scope};
use crate::steps::Step;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resend {
    from: Spanned<String>,
    to: Spanned<String>,
    message: RsvpType,
    port: Option<u16>,
    #[serde(default = "once")]
    count: u32,
    #[serde(default)]
    alter: bool,
    label: Option<String>,
}

const fn once() -> u32 {
    1
}

/// A frame that the lab altered and sent. It is not sent again.
#[derive(Debug)]
struct Forged(Vec<u8>);

impl Step for Resend {
    const NAME: &'static str = "resend";
    const MEANING: &'static str =
        "Sends the last RSVP message that went from a node to its neighbour again, as it was captured.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the sender"),
        key("to", "node", "its neighbour"),
        key("message", "message type", "`path`, `resv`, … as in the check `rsvp_messages`"),
        key("port", "port", "of the session").optional(),
        key("count", "number", "how often").or("1"),
        key("alter", "boolean", "change one bit of the refresh period and correct the checksum").or("false"),
        key("label", "moment", "remembers the moment just before").optional(),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.label.iter().for_each(|label| scope.define(MOMENT, label));
        scope.neighbours(&self.from, &self.to)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let (sender, receiver) = (self.from.as_ref(), self.to.as_ref());
        run.progress(&format!(
            "the last {:?} from {sender} to {receiver} again, {} times{}",
            self.message,
            self.count,
            if self.alter { ", altered" } else { "" }
        ));
        run.remember(self.label.as_ref(), sender)?;
        let (from, to) = (run.node(sender)?, run.node(receiver)?);
        let leg = run.lab.plan.leg(from, to).ok_or_else(|| anyhow!("no link between the two"))?;
        let link = &run.lab.plan.links[leg.link];
        let outgoing = link.ends[0].0 == leg.from;
        let wanted = |octets: &[u8]| {
            let genuine = run.evidence.all::<Forged>().all(|forged| forged.0 != octets);
            genuine && Ip::read(octets).is_some_and(|ip| self.is_meant(outgoing, &ip))
        };
        let mut frame = run
            .captures
            .last(leg.link, outgoing, wanted)
            .ok_or_else(|| anyhow!("no {:?} went from {sender} to {receiver}", self.message))?;
        if self.alter {
            message::alter(&mut frame).context("the message has no refresh period to alter")?;
            run.evidence.record(Forged(frame.clone()));
        }
        let namespace = kernel::namespace(&run.lab.plan.nodes[leg.from].namespace)?;
        let (_, interface) =
            link.ends.iter().find(|(node, _)| *node == leg.from).context("a link without its end")?;
        let socket = Capture::open(&namespace, interface, CaptureConfig { outgoing: false, buffer: 1 << 16 })
            .context("cannot open a raw socket")?;
        for _ in 0..self.count {
            socket.send(&frame).context("cannot send a message again")?;
        }
        Ok(())
    }
}

impl Resend {
    /// Whether an IP packet holds just one message, of the type and session that the step names.
    fn is_meant(&self, outgoing: bool, ip: &Ip<'_>) -> bool {
        let messages = message::messages(Default::default(), outgoing, ip);
        let [one] = &messages[..] else { return false };
        one.kind == self.message
            && self.port.is_none_or(|port| one.session.is_some_and(|session| session.2 == port))
    }
}
