//! What a process leaves in the kernel for the next one.
//!
//! After a planned stop it is what the next process knows of, for a short time. After a crash it is all that was open. Nobody can tell
//! then who asked for it, so that the next process cannot judge it. It gives it a limited time in which those who asked come again.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use signalbox_core::pinhole::{PinholeId, Verdict};
use signalbox_core::ports::Binding;

use super::flow::{Action, Flow};
use super::index::Index;
use super::ruleset::Use;
use super::table::Table;
use super::{MOST_AT_ONCE, Pinholes};
use crate::error::OpenError;
use crate::netlink::nftables::flow::Translation;

/// Most flows whose elements one call removes.
const AT_ONCE: usize = 64;

/// What a former process left in the table.
pub(super) fn inherited(table: &mut Table) -> Index {
    let (mut index, now) = (Index::default(), Instant::now());
    for (purpose, verdict) in [(Use::Allow, Verdict::Allow), (Use::Deny, Verdict::Deny)] {
        let read = table.read(purpose, |flow, _, left| {
            // A block of ICMP has another form of key. It ends at its time.
            if verdict == Verdict::Allow || !flow.is_icmp() {
                index.inherit(flow, verdict, now + left);
            }
        });
        if let Err(error) = read {
            tracing::warn!(%error, "pinholes of a former process cannot be read");
        }
    }
    index
}

impl Pinholes {
    /// The translations of ports that a former process left, each with its time. Those of several flows of one end are one.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn bindings_left(&mut self) -> io::Result<Vec<(Binding, Duration)>> {
        let mut found: Vec<(Binding, Duration)> = Vec::new();
        if !self.config.translate || !self.index.inherits() {
            return Ok(found);
        }
        for kind in [Translation::Source, Translation::Destination] {
            self.table.read(Use::Port(kind), |flow, value, left| {
                found.extend(binding(&flow, kind, value).map(|binding| (binding, left)));
            })?;
        }
        found.sort_by_key(|(one, left)| {
            (one.address, one.protocol, one.port, one.external, core::cmp::Reverse(*left))
        });
        found.dedup_by_key(|(binding, _)| *binding);
        Ok(found)
    }

    /// Limits the time of what a former process left. What a pinhole replaces until then goes on with its flows.
    pub fn adopt(&mut self, time: Duration) {
        self.adopted = Some(Instant::now() + time);
    }

    /// Removes some of what a former process left, if its time is over.
    pub(super) fn step_left(&mut self, now: Instant) {
        if self.adopted.is_none_or(|at| now < at) || !self.index.inherits() {
            return;
        }
        let flows = self.index.take_inherited(AT_ONCE);
        if let Err(error) = self.table.empty(&flows) {
            tracing::warn!(%error, "pinholes of a former process were not closed; they end at their time");
        }
        // Their flows end.
        self.walks.want();
    }

    /// Ends this process's part, and leaves pinholes in the kernel for the next one: those that `stays` names, for this time at most.
    /// All others are closed with their flows. If none stays, all is removed as by [`Self::close`]. The result is how many stay.
    ///
    /// # Errors
    /// The kernel refuses a part; then all is removed.
    pub fn keep(mut self, time: Duration, stays: impl Fn(PinholeId) -> bool) -> Result<usize, OpenError> {
        let going: Vec<PinholeId> = self.index.ids().filter(|id| !stays(*id)).collect();
        going.into_iter().for_each(|id| self.release(id));
        self.adopt(Duration::ZERO);
        self.flush();
        while self.index.inherits() {
            self.step_left(Instant::now());
        }
        if self.is_empty() {
            return self.close().map(|()| 0);
        }
        self.shorten(time)
            .map_err(|error| OpenError::system("leaving pinholes to the next start", &error))?;
        if let Err(error) = self.end_other_flows() {
            tracing::warn!(%error, "flows of closed pinholes were not deleted");
        }
        self.laid = false;
        Ok(self.len())
    }

    /// Ends all flows that no pinhole is open for.
    fn end_other_flows(&mut self) -> io::Result<()> {
        self.walks.want();
        while self.walks.are_wanted() || self.flows.is_walking() {
            self.walks.hurry();
            self.end_flows(Instant::now())?;
        }
        Ok(())
    }

    /// Lets the kernel close all pinholes after this time.
    fn shorten(&mut self, time: Duration) -> io::Result<()> {
        let now = Instant::now();
        let all: Vec<((Flow, Action), Duration)> = self
            .index
            .flows()
            .filter(|(.., until)| *until > now)
            .map(|(flow, action, until)| ((*flow, *action), (until - now).min(time)))
            .collect();
        for some in all.chunks(MOST_AT_ONCE) {
            let mut changes = Vec::new();
            some.iter().for_each(|(part, left)| self.add(part, *left, true, &mut changes));
            self.table.change(&changes)?;
        }
        Ok(())
    }
}

/// The end inside and the external port of a translation.
fn binding(flow: &Flow, kind: Translation, value: Option<&[u8]>) -> Option<Binding> {
    let (address, port) = value?.split_first_chunk::<4>()?;
    let (address, port) = (IpAddr::from(*address), u16::from_be_bytes(*port.first_chunk()?));
    match kind {
        Translation::Source => {
            let (inside, protocol, inner) = flow.sender().filter(|_| !flow.is_ipv6())?;
            Some(Binding { address: inside, protocol, port: inner, external: port })
        }
        Translation::Destination => {
            let (protocol, external) = (flow.protocol().filter(|_| !flow.is_ipv6())?, flow.dst_port()?);
            Some(Binding { address, protocol, port, external })
        }
    }
}
