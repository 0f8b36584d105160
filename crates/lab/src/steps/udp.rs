//! The step `udp`: datagrams through the kernels, without any signaling.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kernel;
use crate::kinds::{Key, key};
use crate::observe::trace::PROBE_PAYLOAD;
use crate::plan::Plan;
use crate::run::Run;
use crate::scenario::{Mistake, Scope};

/// The destination port of the lab's own datagrams; port 9 is "discard".
const PROBE_PORT: u16 = 9;
/// A datagram that has not arrived by then is lost.
const ARRIVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Udp {
    from: Spanned<String>,
    to: Spanned<String>,
    #[serde(default = "three")]
    count: u32,
}

const fn three() -> u32 {
    3
}

/// What came of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpRun {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sent: u32,
    pub(crate) arrived: u32,
}

impl Step for Udp {
    const NAME: &'static str = "udp";
    const MEANING: &'static str = "Sends plain datagrams to port 9 and waits up to 1 s for each.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the sender"),
        key("to", "node", "the receiver"),
        key("count", "number", "the number of datagrams").or("3"),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        run.progress(&format!("datagrams from {} to {}", self.from.as_ref(), self.to.as_ref()));
        let (from, to, address) = run.ends(self.from.as_ref(), self.to.as_ref())?;
        let bind = |plan: &Plan, node: usize, address: SocketAddr| {
            let namespace = kernel::namespace(&plan.nodes[node].namespace)?;
            let socket = namespace.run(|| UdpSocket::bind(address))??;
            socket.set_read_timeout(Some(ARRIVAL))?;
            anyhow::Ok(socket)
        };
        let destination = SocketAddr::new(address, PROBE_PORT);
        let receiver = bind(&run.lab.plan, to, destination)?;
        let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let sender = bind(&run.lab.plan, from, SocketAddr::new(any, 0))?;
        let mut arrived = 0;
        let mut buffer = [0; 64];
        for number in 0..self.count {
            let payload = [PROBE_PAYLOAD, &number.to_be_bytes()].concat();
            sender.send_to(&payload, destination).context("cannot send a datagram")?;
            let received = receiver.recv(&mut buffer);
            arrived += u32::from(received.is_ok_and(|length| buffer.get(..length) == Some(&payload[..])));
        }
        run.evidence.record(UdpRun { from, to, sent: self.count, arrived });
        Ok(())
    }
}
