//! A flow that a gateway leaves to the one that starts in its place: its host asked for it itself, a Response has confirmed it, and the
//! kernel passes its packets.

use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, Pinhole};
use signalbox_core::shares::source;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Time};
use signalbox_wire::{Reader, Short};

use super::bindings::{Binding, Purpose, Requester, State};

/// The first octet of an entry. Those of ports begin with the version of IP.
const FLOW: u8 = 1;

/// The flow, and who asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InheritedFlow {
    /// Its packets go to the host inside.
    pub(super) inward: bool,
    pub(super) protocol: u8,
    pub(super) inside: SocketAddrV4,
    pub(super) external: SocketAddrV4,
    pub(super) far: SocketAddrV4,
    /// The sender of the message that asked for it, and the interface by which that came in.
    pub(super) owner: Ipv4Addr,
    pub(super) ifindex: IfIndex,
    /// Seconds until it ends.
    left: u32,
}

fn v4(address: IpAddr, port: Option<u16>) -> Option<SocketAddrV4> {
    match address {
        IpAddr::V4(address) => Some(SocketAddrV4::new(address, port?)),
        IpAddr::V6(_) => None,
    }
}

fn read_end(r: &mut Reader<'_>) -> Result<SocketAddrV4, Short> {
    Ok(SocketAddrV4::new(Ipv4Addr::from(r.array::<4>()?), r.u16()?))
}

impl InheritedFlow {
    /// What a gateway leaves of a binding; `None`: it is another one than that of an exact flow, or does not stand.
    pub(super) fn of(binding: &Binding, now: Time) -> Option<Self> {
        let asked = binding.purpose == Purpose::Flow
            && binding.requester == Requester::Host
            && binding.is_confirmed();
        let left = u32::try_from(binding.until.since(now).as_secs()).ok()?;
        if !asked || binding.state() != State::Active || left == 0 {
            return None;
        }
        let Pinhole { packets, source, destination, .. } = &binding.pinhole;
        let (src, dst) = (v4(packets.src.addr, packets.src_port)?, v4(packets.dst.addr, packets.dst_port)?);
        let end = |one: &Endpoint| v4(one.address, one.port);
        let (inward, inside, external, far) = match (source, destination) {
            (Some(source), None) => (false, src, end(source)?, dst),
            (None, Some(destination)) => (true, end(destination)?, dst, src),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        let IpAddr::V4(owner) = binding.owner else { return None };
        let (protocol, ifindex) = (packets.protocol?, binding.ifindex);
        let inherited = Self { inward, protocol, inside, external, far, owner, ifindex, left };
        (inherited.pinhole() == binding.pinhole).then_some(inherited)
    }

    /// What the kernel does.
    pub(super) fn pinhole(&self) -> Pinhole {
        let endpoint =
            |end: SocketAddrV4| Endpoint { address: IpAddr::V4(*end.ip()), port: Some(end.port()) };
        let host = |end: SocketAddrV4| Prefix::host(IpAddr::V4(*end.ip()));
        let (src, dst) = if self.inward { (self.far, self.external) } else { (self.inside, self.far) };
        let packets = FlowFilter {
            protocol: Some(self.protocol),
            src_port: Some(src.port()),
            dst_port: Some(dst.port()),
            ..FlowFilter::between(host(src), host(dst))
        };
        let (source, destination) = if self.inward {
            (None, Some(endpoint(self.inside)))
        } else {
            (Some(endpoint(self.external)), None)
        };
        Pinhole { source, destination, ..Pinhole::allow(packets) }
    }

    /// Whose share it takes.
    pub(super) fn holder(&self) -> IpAddr {
        source(IpAddr::V4(self.owner))
    }

    pub(super) const fn left(&self) -> Duration {
        Duration::from_secs(self.left as u64)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut octets = vec![FLOW, u8::from(self.inward), self.protocol];
        for end in [self.inside, self.external, self.far] {
            octets.extend(end.ip().octets());
            octets.extend(end.port().to_be_bytes());
        }
        octets.extend(self.owner.octets());
        octets.extend(self.ifindex.0.to_be_bytes());
        octets.extend(self.left.to_be_bytes());
        octets
    }

    /// Reads what [`InheritedFlow::write`] wrote; `None`: it is another entry, or damaged.
    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        let (FLOW, inward @ 0..=1) = (r.u8().ok()?, r.u8().ok()?) else { return None };
        let inherited = Self {
            inward: inward == 1,
            protocol: r.u8().ok()?,
            inside: read_end(&mut r).ok()?,
            external: read_end(&mut r).ok()?,
            far: read_end(&mut r).ok()?,
            owner: Ipv4Addr::from(r.array::<4>().ok()?),
            ifindex: IfIndex(r.u32().ok()?),
            left: r.u32().ok()?,
        };
        r.take_rest().is_empty().then_some(inherited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_comes_back_as_it_was_written() {
        let end = |last, port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), port);
        for inward in [true, false] {
            let inherited = InheritedFlow {
                inward,
                protocol: 17,
                inside: end(1, 5000),
                external: end(2, 40_000),
                far: end(3, 6000),
                owner: Ipv4Addr::new(192, 0, 2, 1),
                ifindex: IfIndex(7),
                left: 100,
            };
            let octets = inherited.write();
            assert_eq!(InheritedFlow::read(&octets), Some(inherited));
            for end in 0..octets.len() {
                assert_eq!(InheritedFlow::read(&octets[..end]), None, "cut at {end}");
            }
            assert_eq!(InheritedFlow::read(&[&octets[..], &[0]].concat()), None);
            for (at, value) in [(0, 4), (0, 6), (1, 2)] {
                let mut changed = octets.clone();
                changed[at] = value;
                assert_eq!(InheritedFlow::read(&changed), None);
            }
        }
    }
}
