//! What clients ask of the node, and of what is beside it.

use signalbox_attached::Attached;
use signalbox_core::Counter;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_linux::Io;
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::Enforcer;
use signalbox_node::Node;

use super::{Counted, DaemonCounters, Driver, Interception};
use crate::course::Routing;
use crate::metrics::{Measured, Measurements};
use crate::requests::Query;
use crate::view::{Kernel, View};

impl Driver {
    /// Runs a query of a client.
    pub(super) fn query(&mut self, query: Query) {
        let now = self.clock.now();
        let daemon = DaemonNumbers {
            counters: self.clients.counted(self.counters),
            measurements: &self.measurements,
            start_unix_us: self.clock.start_unix_us(),
        };
        let Attached { node, io, enforcer, pinholes, .. } = &mut self.engine;
        let interception = self.interception.as_ref();
        let (enforcer, pinholes) = (enforcer.as_mut(), pinholes.as_mut());
        let mut kernel = QueryKernel { io, enforcer, pinholes, interception, daemon };
        query.run(&mut View { now, node, kernel: &mut kernel });
    }
}

/// What the daemon itself counts and measures.
struct DaemonNumbers<'a> {
    counters: DaemonCounters,
    measurements: &'a Measurements,
    start_unix_us: u64,
}

/// What is beside the node, for queries.
struct QueryKernel<'a> {
    io: &'a mut Io,
    enforcer: Option<&'a mut Enforcer>,
    pinholes: Option<&'a mut Pinholes>,
    interception: Option<&'a Interception>,
    daemon: DaemonNumbers<'a>,
}

/// The kernel's answers about routes.
pub(super) struct Routed<'a>(pub(super) &'a mut Io);

impl Routing for Routed<'_> {
    fn interfaces(&self) -> &[Interface] {
        self.0.interfaces()
    }

    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.0.route(query)
    }
}

impl Routing for QueryKernel<'_> {
    fn interfaces(&self) -> &[Interface] {
        self.io.interfaces()
    }

    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.io.route(query)
    }
}

impl Kernel for QueryKernel<'_> {
    fn enforcer(&mut self) -> Option<&mut Enforcer> {
        self.enforcer.as_deref_mut()
    }

    fn pinholes(&mut self) -> Option<&mut Pinholes> {
        self.pinholes.as_deref_mut()
    }

    fn interception(&self) -> Option<&Interception> {
        self.interception
    }

    fn counters(&self, node: &Node) -> Vec<Counter> {
        let (enforcer, pinholes) = (self.enforcer.as_deref(), self.pinholes.as_deref());
        Counted::new(self.daemon.counters, self.io, enforcer, pinholes).with(node).collect()
    }

    fn histograms(&self) -> Vec<Measured> {
        self.daemon.measurements.all()
    }

    fn start_unix_us(&self) -> u64 {
        self.daemon.start_unix_us
    }
}
