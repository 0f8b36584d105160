//! The step `inject`: packets that no daemon sent.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use signalbox_linux::capture::{Capture, CaptureConfig};

use super::Act;
use crate::language::steps::inject::{Inject, octets};
use crate::plan::{Leg, Plan};
use crate::protocols;
use crate::protocols::frame::Frame;
use crate::run::observe::passed::Passed;
use crate::run::observe::trace::LinkTrace;
use crate::run::{Run, kernel, net, wait};

/// The step lasts so long after the last packet, so that the answers to it belong to the step.
const ANSWER: Duration = Duration::from_millis(200);

/// A frame that the lab altered and sent. It is not sent again.
#[derive(Debug)]
struct Forged(Vec<u8>);

impl Act for Inject {
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
