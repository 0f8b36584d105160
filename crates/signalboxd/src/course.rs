//! Whether the packets of a reservation leave by its link, by what the kernel answers now.

use std::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::traffic::FlowFilter;

/// Most flows of one reservation that are asked about.
const FLOWS: usize = 8;
/// Most interfaces that are tried as the one by which a flow comes in.
const INTERFACES: usize = 8;

/// Answers questions about routes as the kernel does.
pub(crate) trait Routing {
    /// The interfaces and their addresses.
    fn interfaces(&self) -> &[Interface];

    /// The route that a packet would take.
    ///
    /// # Errors
    /// There is no route.
    fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute>;
}

/// The destination of a flow of these filters, if the kernel leads none of the flows out by `ifindex`; `None` if it does, and if
/// that cannot be known: filters of whole networks and groups name no packet to ask for, and no answer is no evidence.
pub(crate) fn elsewhere(
    kernel: &mut (impl Routing + ?Sized),
    ifindex: IfIndex,
    filters: &[FlowFilter],
) -> Option<IpAddr> {
    let mut found = None;
    for query in filters.iter().filter_map(question).take(FLOWS) {
        if !leaves_elsewhere(kernel, ifindex, &query) {
            return None;
        }
        found = Some(query.dst);
    }
    found
}

/// Whether the kernel names another interface for a packet, by whatever interface it comes in.
fn leaves_elsewhere(kernel: &mut (impl Routing + ?Sized), ifindex: IfIndex, query: &RouteQuery) -> bool {
    let by_another =
        |answer: Result<Route, NoRoute>| answer.is_ok_and(|route| !route.local && route.ifindex != ifindex);
    if !by_another(kernel.route(query)) {
        return false;
    }
    // Rules on the incoming interface decide seldom, so this is asked last.
    let up = kernel.interfaces().iter().filter(|one| one.up && one.ifindex != ifindex);
    let incoming: Vec<IfIndex> = up.map(|one| one.ifindex).take(INTERFACES).collect();
    incoming.into_iter().all(|iif| by_another(kernel.route(&RouteQuery { iif: Some(iif), ..*query })))
}

/// The question for the packets of a filter, if it names their addresses.
fn question(filter: &FlowFilter) -> Option<RouteQuery> {
    let whole = if filter.is_ipv4() { 32 } else { 128 };
    let (src, dst) = (filter.src, filter.dst);
    let single = src.len == whole && dst.len == whole && !dst.addr.is_multicast();
    single.then(|| RouteQuery {
        src: Some(src.addr),
        protocol: filter.protocol,
        src_port: filter.src_port,
        dst_port: filter.dst_port,
        tos: filter.dscp.unwrap_or(0) << 2,
        ..RouteQuery::to(dst.addr)
    })
}

#[cfg(test)]
mod tests {
    use signalbox_core::node::Prefix;

    use super::*;

    const RIGHT: IfIndex = IfIndex(2);
    const OTHER: IfIndex = IfIndex(3);
    const THIRD: IfIndex = IfIndex(4);

    /// Port 5004 leaves by another interface, and so does all that comes in by no named interface to port 5005.
    struct Rules(Vec<Interface>);

    impl Routing for Rules {
        fn interfaces(&self) -> &[Interface] {
            &self.0
        }

        fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
            let ifindex = match (query.dst_port, query.iif) {
                (Some(5004), _) | (Some(5005), None | Some(OTHER)) => OTHER,
                (Some(5006), _) => return Err(NoRoute::Unreachable),
                _ => RIGHT,
            };
            Ok(Route {
                ifindex,
                src: query.dst,
                gateway: None,
                mtu: 1500,
                local: query.dst_port == Some(5007),
            })
        }
    }

    fn flow(port: u16) -> FlowFilter {
        let host = |text: &str| Prefix::host(text.parse().unwrap());
        let between = FlowFilter::between(host("192.0.2.1"), host("198.51.100.1"));
        FlowFilter { protocol: Some(17), dst_port: Some(port), ..between }
    }

    fn is_elsewhere(filters: &[FlowFilter]) -> bool {
        let interface = |ifindex| Interface {
            ifindex,
            name: String::new(),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: Vec::new(),
        };
        elsewhere(&mut Rules([RIGHT, OTHER, THIRD].map(interface).into()), RIGHT, filters).is_some()
    }

    #[test]
    fn a_flow_that_the_kernel_leads_elsewhere_is_found() {
        assert!(is_elsewhere(&[flow(5004)]));
        assert!(!is_elsewhere(&[flow(5003)]));
        assert!(!is_elsewhere(&[flow(5003), flow(5004)]), "one of those that share the reservation is right");
        assert!(!is_elsewhere(&[flow(5005)]), "the rule is about another incoming interface");
    }

    #[test]
    fn what_cannot_be_known_is_no_evidence() {
        assert!(!is_elsewhere(&[flow(5006)]), "no route");
        let all = Prefix::all_like("192.0.2.1".parse().unwrap());
        assert!(!is_elsewhere(&[FlowFilter { src: all, ..flow(5004) }]), "any source");
        assert!(!is_elsewhere(&[]));
        let group = Prefix::host("233.252.0.1".parse().unwrap());
        assert!(!is_elsewhere(&[FlowFilter { dst: group, ..flow(5004) }]), "a group");
    }
}
