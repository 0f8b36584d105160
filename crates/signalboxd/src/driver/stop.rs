//! What the daemon does when it stops.

use std::time::Duration;

use anyhow::{Context, Result};
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::{Enforcer, Kept};
use signalbox_node::{self as node, Command};

use super::Driver;
use crate::api::types;
use crate::clients::Clients;

impl Driver {
    /// Ends what all clients began, and passes on to them what comes of it.
    pub(crate) fn end_clients(&mut self) {
        for command in self.clients.close_all() {
            self.command(command);
        }
        self.enforce();
        self.open();
        self.flush();
        self.clients = Clients::default();
        self.decided();
        self.report();
    }

    /// What the next daemon needs. The node does nothing more for its clients.
    pub(crate) fn hand_over(&self) -> Vec<u8> {
        self.engine.node.hand_over(self.clock.now())
    }

    /// Tells neighbors of what ends with this daemon. It waits for no answer, nor until the messages have left. `handed_over`: the next
    /// daemon gets what [`Self::hand_over`] wrote.
    pub(crate) fn announce_stop(&mut self, handed_over: bool) {
        self.command(Command::Stop { handed_over });
        self.flush();
    }

    /// Records the end of what stands, unless the kernel keeps it. It takes a second at most; what is left out is counted, and logged.
    pub(crate) fn record_stop(&mut self, kept: node::KeptInKernel) {
        let (now, unix_us) = (self.clock.now(), types::unix_us());
        let mut last = self.decisions.last();
        self.engine.node.record_stop(now, kept, |decision| {
            last.give(self.clients.request_id(&decision), decision, now, unix_us);
        });
        let left_out = last.left_out();
        if left_out > 0 {
            tracing::warn!(left_out, "ends of reservations and passages that are in no log");
        }
    }

    /// Leaves the queues of reservations in force for some time; zero: they are removed.
    pub(crate) fn keep_queues(&mut self, time: Duration) -> Option<Kept> {
        if time.is_zero() {
            return None;
        }
        match self.engine.enforcer.take()?.keep(time) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(%error, "queues are not kept");
                None
            }
        }
    }

    /// Leaves the pinholes in force for some time that the next daemon takes over; zero: they are removed.
    pub(crate) fn keep_pinholes(&mut self, time: Duration) -> bool {
        if time.is_zero() {
            return false;
        }
        let Some(pinholes) = self.engine.pinholes.take() else { return false };
        match pinholes.keep(time, |id| self.engine.node.leaves(id)) {
            Ok(0) => false,
            Ok(count) => {
                tracing::info!(count, seconds = time.as_secs_f64(), "pinholes stay open for the next start");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "pinholes are not kept");
                false
            }
        }
    }

    /// Removes from the kernel what the daemon has set up there.
    pub(crate) fn close(self) -> Result<()> {
        drop(self.decisions);
        let queues = self.engine.enforcer.map_or(Ok(()), Enforcer::close).context("cannot clean up");
        let pinholes = self.engine.pinholes.map_or(Ok(()), Pinholes::close).context("cannot clean up");
        self.engine.io.close().context("cannot clean up").and(queues).and(pinholes)
    }
}
