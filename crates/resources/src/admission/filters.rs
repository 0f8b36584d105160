//! The filters of a reservation, as its record has them.

use core::net::{IpAddr, Ipv4Addr};

use signalbox_core::RareVec;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;

/// The filters of a reservation. Most reservations have one, between two IPv4 hosts: it takes 16 octets here, where a
/// [`FlowFilter`] takes 64.
#[derive(Debug)]
pub(crate) enum Filters {
    One(HostPair),
    Any(RareVec<FlowFilter>),
}

/// A filter for the packets of one IPv4 host to another, without an SPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostPair {
    src: [u8; 4],
    dst: [u8; 4],
    src_port: [u8; 2],
    dst_port: [u8; 2],
    protocol: u8,
    dscp: u8,
    /// Which of the fields above count: bits of [`PROTOCOL`] and the following.
    present: u8,
}

const PROTOCOL: u8 = 1;
const SRC_PORT: u8 = 2;
const DST_PORT: u8 = 4;
const DSCP: u8 = 8;

impl HostPair {
    /// The filter as a pair of hosts; `None`: it is of another kind.
    fn of(filter: &FlowFilter) -> Option<Self> {
        let FlowFilter { src, dst, protocol, src_port, dst_port, dscp, flow_label: None, spi: None } =
            *filter
        else {
            return None;
        };
        let (Prefix { addr: IpAddr::V4(src), len: 32 }, Prefix { addr: IpAddr::V4(dst), len: 32 }) =
            (src, dst)
        else {
            return None;
        };
        let flag = |is: bool, flag| if is { flag } else { 0 };
        Some(Self {
            src: src.octets(),
            dst: dst.octets(),
            src_port: src_port.unwrap_or(0).to_ne_bytes(),
            dst_port: dst_port.unwrap_or(0).to_ne_bytes(),
            protocol: protocol.unwrap_or(0),
            dscp: dscp.unwrap_or(0),
            present: flag(protocol.is_some(), PROTOCOL)
                | flag(src_port.is_some(), SRC_PORT)
                | flag(dst_port.is_some(), DST_PORT)
                | flag(dscp.is_some(), DSCP),
        })
    }

    fn filter(&self) -> FlowFilter {
        let host = |octets: [u8; 4]| Prefix::host(Ipv4Addr::from(octets).into());
        let has = |flag| self.present & flag != 0;
        FlowFilter {
            protocol: has(PROTOCOL).then_some(self.protocol),
            src_port: has(SRC_PORT).then(|| u16::from_ne_bytes(self.src_port)),
            dst_port: has(DST_PORT).then(|| u16::from_ne_bytes(self.dst_port)),
            dscp: has(DSCP).then_some(self.dscp),
            ..FlowFilter::between(host(self.src), host(self.dst))
        }
    }
}

impl Filters {
    pub(crate) fn of(filters: &[FlowFilter]) -> Self {
        match filters {
            [one] => HostPair::of(one).map(Self::One),
            _ => None,
        }
        .unwrap_or_else(|| Self::Any(filters.to_vec().into()))
    }

    /// The filters, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FlowFilter> {
        let (one, all) = match self {
            Self::One(pair) => (Some(pair.filter()), [].as_slice()),
            Self::Any(all) => (None, all.as_slice()),
        };
        one.into_iter().chain(all.iter().copied())
    }

    pub(crate) fn contains(&self, filter: &FlowFilter) -> bool {
        match self {
            Self::One(pair) => HostPair::of(filter).is_some_and(|filter| filter == *pair),
            Self::Any(all) => all.contains(filter),
        }
    }

    /// Whether they are these, in this order.
    pub(crate) fn are(&self, filters: &[FlowFilter]) -> bool {
        self.iter().eq(filters.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field of a filter is kept, and a field that is absent stays absent.
    #[test]
    fn filters_stay_the_same() {
        let host = |last| Prefix::host(IpAddr::from([192, 0, 2, last]));
        let pair = FlowFilter::between(host(1), host(2));
        let v6 = Prefix::host(IpAddr::from([7; 16]));
        let kinds = [
            (true, pair),
            (true, FlowFilter { protocol: Some(0), ..pair }),
            (true, FlowFilter { protocol: Some(17), src_port: Some(0), ..pair }),
            (true, FlowFilter { protocol: Some(17), dst_port: Some(0), ..pair }),
            (
                true,
                FlowFilter {
                    protocol: Some(6),
                    src_port: Some(7),
                    dst_port: Some(8),
                    dscp: Some(46),
                    ..pair
                },
            ),
            (true, FlowFilter { dscp: Some(0), ..pair }),
            (false, FlowFilter { spi: Some(0), ..pair }),
            (false, FlowFilter { flow_label: Some(0), ..pair }),
            (false, FlowFilter { src: Prefix { len: 24, ..host(0) }, ..pair }),
            (false, FlowFilter { dst: Prefix { len: 31, ..host(2) }, ..pair }),
            (false, FlowFilter::between(v6, v6)),
        ];
        for (packed, filter) in kinds {
            let kept = Filters::of(&[filter]);
            assert_eq!(matches!(kept, Filters::One(_)), packed, "{filter}");
            for (_, other) in kinds {
                assert_eq!((kept.contains(&other), kept.are(&[other])), (other == filter, other == filter));
            }
            assert!(kept.iter().eq([filter]));
        }
        let all = kinds.map(|(_, filter)| filter);
        let kept = Filters::of(&all);
        assert!(kept.are(&all) && !kept.are(&all[1..]) && all.iter().all(|one| kept.contains(one)));
    }

    #[test]
    fn a_filter_between_hosts_is_small() {
        assert_eq!((size_of::<Filters>(), size_of::<FlowFilter>()), (16, 64));
    }
}
