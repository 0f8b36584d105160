//! What a query of a client sees of the node and of the kernel.

use signalbox_core::{Counter, Time};
use signalbox_linux::pinhole::Pinholes;
use signalbox_linux::traffic::Enforcer;
use signalbox_node::Node;

use crate::course::Routing;
use crate::driver::Interception;
use crate::metrics::Measured;

/// The node and what is beside it, while the event loop stands still.
pub(crate) struct View<'a> {
    /// The time since the daemon's start.
    pub(crate) now: Time,
    /// The node.
    pub(crate) node: &'a Node,
    /// The kernel.
    pub(crate) kernel: &'a mut dyn Kernel,
}

/// The kernel as a query may use it.
pub(crate) trait Kernel: Routing {
    /// What keeps the reservations; `None` on a node that reserves nothing.
    fn enforcer(&mut self) -> Option<&mut Enforcer>;

    /// What keeps the pinholes; `None` on a node that opens nothing.
    fn pinholes(&mut self) -> Option<&mut Pinholes>;

    /// What is known of the interception; `None` where no packets are intercepted.
    fn interception(&self) -> Option<&Interception>;

    /// All counters: the daemon's, those of its sockets, and those of `node`.
    fn counters(&self, node: &Node) -> Vec<Counter>;

    /// What the daemon has measured.
    fn histograms(&self) -> Vec<Measured>;

    /// When the daemon started, in microseconds since 1970.
    fn start_unix_us(&self) -> u64;
}

#[cfg(test)]
pub(crate) mod tests {
    use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};

    use super::*;
    use crate::metrics::Measurements;

    /// A kernel without interfaces and routes.
    pub(crate) struct NoKernel;

    impl Routing for NoKernel {
        fn interfaces(&self) -> &[Interface] {
            &[]
        }

        fn route(&mut self, _: &RouteQuery) -> Result<Route, NoRoute> {
            Err(NoRoute::Failed)
        }
    }

    impl Kernel for NoKernel {
        fn enforcer(&mut self) -> Option<&mut Enforcer> {
            None
        }

        fn pinholes(&mut self) -> Option<&mut Pinholes> {
            None
        }

        fn interception(&self) -> Option<&Interception> {
            None
        }

        fn counters(&self, node: &Node) -> Vec<Counter> {
            node.counters().collect()
        }

        fn histograms(&self) -> Vec<Measured> {
            Measurements::default().all()
        }

        fn start_unix_us(&self) -> u64 {
            1_000_000
        }
    }
}
