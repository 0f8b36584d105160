//! What the kernel enforces for the node: reservations, and passages through a firewall or NAT.

use signalbox_core::node::Input;
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::Enforcer;

use super::Driver;
use super::turn::Part;

/// Times that requests are passed to the kernel in one turn: what it refuses may make the node ask for others.
const TIMES: usize = 4;

/// What the kernel enforces for the node.
#[derive(Default)]
pub(crate) struct Enforced {
    /// Reservations, on a node that reserves.
    pub(crate) reservations: Option<Enforcer>,
    /// Pinholes, on a firewall or NAT.
    pub(crate) pinholes: Option<Pinholes>,
}

impl Driver {
    /// Passes to the kernel what the node has reserved and released, and reports the results to the node.
    pub(super) fn enforce(&mut self) {
        for _ in 0..TIMES {
            let Some(enforcer) = self.engine.enforcer.as_mut().filter(|enforcer| !enforcer.is_idle()) else {
                return;
            };
            self.unreported = true;
            let mut results = 0;
            for (id, result) in enforcer.flush() {
                results += 1;
                if let Err(error) = result {
                    tracing::debug!(reservation = id.0, %error, "not reserved");
                }
                self.input(Input::Reserved { id, result });
            }
            self.done(Part::Reservations, results);
        }
    }

    /// The same as [`Self::enforce`] for what the node opens and closes.
    pub(super) fn open(&mut self) {
        for _ in 0..TIMES {
            let Some(pinholes) = self.engine.pinholes.as_mut().filter(|pinholes| !pinholes.is_idle()) else {
                return;
            };
            self.unreported = true;
            let mut results = 0;
            for (id, result) in pinholes.flush() {
                results += 1;
                if let Err(error) = result {
                    tracing::debug!(%id, %error, "not opened");
                }
                self.input(Input::PinholeOpened { id, result });
            }
            self.done(Part::Pinholes, results);
        }
    }

    /// Makes queues for reservations that may come.
    pub(super) fn prepare(&mut self) {
        if let Some(enforcer) = &mut self.engine.enforcer {
            enforcer.prepare();
            self.done(Part::Reservations, 0);
        }
    }
}
