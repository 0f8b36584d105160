//! RSVP messages once more: a frame that passed a link is sent again by whoever sent it, past its daemon.

use anyhow::{Context, Result, anyhow};
use signalbox_linux::capture::{Capture, CaptureConfig};

use crate::kernel;
use crate::observe::capture::Captures;
use crate::observe::packet::Ip;
use crate::observe::rsvp;
use crate::plan::{Leg, Plan};
use crate::scenario::ResendStep;

/// Sends the last message of that type again that went that way. What it alters becomes one of the `forged`, which are
/// nobody's and not sent again.
pub(crate) fn resend(
    plan: &Plan,
    captures: &Captures,
    step: &ResendStep,
    leg: Leg,
    forged: &mut Vec<Vec<u8>>,
) -> Result<()> {
    let link = &plan.links[leg.link];
    let outgoing = link.ends[0].0 == leg.from;
    let wanted = |octets: &[u8]| {
        let genuine = forged.iter().all(|forged| forged != octets);
        genuine
            && Ip::read(octets).is_some_and(|ip| {
                let mut messages = rsvp::messages(Default::default(), outgoing, &ip).into_iter();
                messages.next().is_some_and(|first| {
                    first.kind == step.message
                        && step.port.is_none_or(|port| first.session.is_some_and(|s| s.2 == port))
                }) && messages.next().is_none()
            })
    };
    let mut frame = captures.last(leg.link, outgoing, wanted).ok_or_else(|| {
        anyhow!("no {:?} went from {} to {}", step.message, step.from.as_ref(), step.to.as_ref())
    })?;
    if step.alter {
        rsvp::alter(&mut frame).context("the message has no refresh period to alter")?;
        forged.push(frame.clone());
    }
    let namespace = kernel::namespace(&plan.nodes[leg.from].namespace)?;
    let (_, interface) =
        link.ends.iter().find(|(node, _)| *node == leg.from).context("a link without its end")?;
    let door = Capture::open(&namespace, interface, CaptureConfig { outgoing: false, buffer: 1 << 16 })
        .context("cannot open a raw socket")?;
    for _ in 0..step.count {
        door.send(&frame).context("cannot send a message again")?;
    }
    Ok(())
}
