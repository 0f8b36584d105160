//! The step `probe_expired`.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Deserialize;
use toml::Spanned;

use super::message::{GIST_PORT, Kind};
use super::seen::{Carrier, Seen, Session};
use crate::kernel;
use crate::kinds::{Key, key};
use crate::observe::trace::Trace;
use crate::plan::Leg;
use crate::run::{Run, now};
use crate::scenario::{Mistake, Scope};
use crate::steps::Step;
use crate::wait;

/// The answer to a probe for an expired session comes at once, if at all.
const ANSWER: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeExpired {
    from: Spanned<String>,
    to: Spanned<String>,
}

/// A Data message that was sent for a session that should be gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiredProbe {
    pub(crate) to: usize,
    pub(crate) at: Duration,
    pub(crate) session: Session,
}

impl Step for ProbeExpired {
    const NAME: &'static str = "probe_expired";
    const MEANING: &'static str =
        "Sends the last Data message of a session, which should have expired, to a daemon again.";
    const KEYS: &'static [Key] =
        &[key("from", "node", "the node that sends it"), key("to", "node", "the neighbour that it goes to")];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.node(&self.from)?;
        scope.daemon(&self.to)
    }

    /// Takes the last Data message from the node to its neighbour out of the capture and sends it again.
    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        run.progress(&format!("Data for an expired session to {}", self.to.as_ref()));
        let (from, to) = (run.node(self.from.as_ref())?, run.node(self.to.as_ref())?);
        let planned = &run.lab.plan.nodes[from];
        let Some(interface) = planned.interfaces.iter().find(|interface| interface.peer.0 == to) else {
            bail!("{} is no neighbour of {}", self.to.as_ref(), self.from.as_ref());
        };
        let trace = run.captures.trace();
        let link = Seen::on(&trace.links[interface.link]);
        let leg = Leg { link: interface.link, from, to };
        let data = link
            .messages
            .iter()
            .rev()
            .filter(|message| message.carrier == Carrier::Datagram && message.kind == Kind::Data)
            .find(|message| link.along(message.outgoing, leg));
        let Some((session, payload)) =
            data.and_then(|data| Some((data.session?, data.packet.get(data.payload_at..)?)))
        else {
            // The check finds that nothing was sent.
            return Ok(());
        };
        let local = SocketAddr::new(interface.address.address, 0);
        let namespace = kernel::namespace(&planned.namespace)?;
        let socket = namespace.run(|| UdpSocket::bind(local))??;
        let at = now()?;
        socket.send_to(payload, SocketAddr::new(interface.peer.1, GIST_PORT))?;
        run.evidence.record(ExpiredProbe { to, at, session });
        let answered = |trace: &Trace| {
            let mut messages = Seen::on(&trace.links[leg.link]).messages.iter();
            messages.any(|message| message.kind == Kind::Error && message.at >= at)
        };
        wait::until(ANSWER, || wait::check().is_err() || answered(&run.captures.trace()));
        wait::check()
    }
}
