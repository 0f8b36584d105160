//! What a query of a client sees of the node and of the kernel.

use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::{Counter, Time};
use signalbox_linux::traffic::Enforcer;
use signalbox_node::Node;

use crate::metrics::Measured;

/// Rows of a table that one query looks at, so that a long table does not hold up messages.
pub(crate) const PORTION: usize = 256;

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
pub(crate) trait Kernel {
    /// The interfaces and their addresses.
    fn interfaces(&self) -> &[Interface];

    /// The route that a packet would take.
    ///
    /// # Errors
    /// There is no route.
    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute>;

    /// What keeps the reservations; `None` on a node that reserves nothing.
    fn enforcer(&mut self) -> Option<&mut Enforcer>;

    /// All counters: the daemon's, those of its sockets, and those of `node`.
    fn counters(&self, node: &Node) -> Vec<Counter>;

    /// What the daemon has measured.
    fn histograms(&self) -> Vec<Measured>;

    /// When the daemon started, in microseconds since 1970.
    fn start_unix_us(&self) -> u64;
}

/// One portion of a table: the rows, and where the next portion begins; `None` after the last.
pub(crate) type Portion<T> = (Vec<T>, Option<usize>);

/// Looks at [`PORTION`] rows of `table` from row `from` on, and converts those that are `wanted`.
pub(crate) fn portion<R, T>(
    table: impl Iterator<Item = R>,
    from: usize,
    wanted: impl Fn(&R) -> bool,
    mut convert: impl FnMut(&R) -> T,
) -> Portion<T> {
    let mut seen = 0;
    let rows = table
        .skip(from)
        .take(PORTION)
        .inspect(|_| seen += 1)
        .filter(wanted)
        .map(|row| convert(&row))
        .collect();
    (rows, (seen == PORTION).then_some(from + seen))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::metrics::Measurements;

    /// A kernel without interfaces and routes.
    pub(crate) struct NoKernel;

    impl Kernel for NoKernel {
        fn interfaces(&self) -> &[Interface] {
            &[]
        }

        fn route(&mut self, _: &RouteQuery) -> Result<Route, NoRoute> {
            Err(NoRoute::Failed)
        }

        fn enforcer(&mut self) -> Option<&mut Enforcer> {
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

    #[test]
    fn portions_cover_a_table_once() {
        for length in [0, 1, PORTION - 1, PORTION, 3 * PORTION + 1] {
            let (mut all, mut from) = (Vec::new(), Some(0));
            while let Some(start) = from {
                let (rows, next) = portion(0..length, start, |row| row % 2 == 0, |row| *row);
                all.extend(rows);
                from = next;
            }
            assert_eq!(all, (0..length).step_by(2).collect::<Vec<_>>());
        }
    }
}
