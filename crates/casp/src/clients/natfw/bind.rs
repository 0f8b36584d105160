//! Bindings of a NAT: the outer end that a flow from the inside gets, and messages as the other side sees them (section 10.3 of
//! the draft).

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Endpoint;
use signalbox_core::ports::Inside;
use signalbox_core::shares::source;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Key, invariant};
use signalbox_resources::Resources;
use signalbox_resources::config::Opening;

use super::record::Asker;
use super::rules::PolicyRequest;
use super::{Failure, NatfwClient, Role};
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{
    NatfwFilter, NatfwMessage, NatfwObject, NatfwResult, NatfwStatus, NatfwType, NatfwValue, Tlvs, WITH_PORTS,
};

/// The binding of a flow.
#[derive(Debug)]
pub(super) struct Binding {
    /// The place of the external port.
    pub(super) lease: Key,
    inner: (IpAddr, u16),
    outer: (IpAddr, u16),
}

impl Binding {
    /// The source of packets after translation.
    pub(super) const fn source(&self) -> Endpoint {
        Endpoint { address: self.outer.0, port: Some(self.outer.1) }
    }

    /// A filter as the other side of the NAT sees it. Filters of other ends stay.
    pub(super) fn mapped(&self, mut filter: NatfwFilter, outward: bool) -> NatfwFilter {
        let (from, to) = if outward { (self.inner, self.outer) } else { (self.outer, self.inner) };
        let (address, port) = (Prefix::host(from.0), [(from.1, from.1)]);
        let (new, new_port) = (Prefix::host(to.0), vec![(to.1, to.1)]);
        if filter.src == address && filter.src_ports == port {
            (filter.src, filter.src_ports) = (new, new_port);
        } else if filter.dst == address && filter.dst_ports == port {
            (filter.dst, filter.dst_ports) = (new, new_port);
        }
        filter
    }

    /// The objects inside of a NEXT or STATUS as the other side sees them.
    fn nested(&self, tlvs: &Tlvs<'_>, outward: bool) -> Vec<u8> {
        let mut octets = Vec::new();
        for value in tlvs.iter().filter_map(|tlv| NatfwValue::of(&tlv)) {
            let value = match value {
                NatfwValue::Filter(filter) => NatfwValue::Filter(self.mapped(filter, outward)),
                other => other,
            };
            // It has as many octets as before, which its length can count.
            let _ = value.encode(&mut octets);
        }
        octets
    }

    /// A message as the other side sees it. NAT_OBJECT stays: it is the affair of both ends. `None`: it cannot be read.
    pub(super) fn rewritten(&self, octets: &[u8], outward: bool) -> Option<Vec<u8>> {
        let message = NatfwMessage::parse(octets).ok()?;
        let inside = |value: NatfwValue<'_>| match value {
            NatfwValue::Next(_, nested) | NatfwValue::Status(NatfwResult { nested, .. }) => {
                Some(self.nested(&nested, outward))
            }
            _ => None,
        };
        let nested: Vec<Option<Vec<u8>>> = message.values().map(inside).collect();
        let mut values = Vec::with_capacity(nested.len());
        for (value, inside) in message.values().zip(&nested) {
            let inside = Tlvs::of(inside.as_deref().unwrap_or_default());
            values.push(match value {
                NatfwValue::Filter(filter) => NatfwValue::Filter(self.mapped(filter, outward)),
                NatfwValue::Next(next, _) => NatfwValue::Next(next, inside),
                NatfwValue::Status(result) => NatfwValue::Status(NatfwResult { nested: inside, ..result }),
                other => other,
            });
        }
        let mut out = Vec::new();
        NatfwMessage::compose(message.kind, &values, &mut out).ok()?;
        Some(out)
    }
}

/// The outer source that a request wishes: the contents of its NAT_OBJECT.
fn wish(message: &NatfwMessage<'_>) -> Option<(IpAddr, Option<u16>)> {
    let wished = message.values().find_map(|value| match value {
        NatfwValue::Nat(filter) => filter,
        _ => None,
    })?;
    let port = wished.src_ports.first().filter(|(low, high)| low == high && wished.src_ports.len() == 1);
    Some((wished.src.addr, port.map(|(port, _)| *port)))
}

impl NatfwClient {
    /// Whether this node translates the flow of a request: one over IPv4 that leaves the inside and goes on.
    pub(super) fn translates(&self, job: &OwnedArrival, inside: bool) -> bool {
        self.config.role == Role::Nat && inside && !job.reverse && !job.last && job.flow.src().is_ipv4()
    }

    /// The outer end of a flow, with the present external address.
    pub(super) fn present(&self, key: Key) -> Option<Endpoint> {
        let binding = self.records.get(key)?.binding.as_ref()?;
        self.external.map(|external| Endpoint { address: external.into(), ..binding.source() })
    }

    /// Reserves the binding of a PATH. Nothing passes by it yet. Who may not open the way out gets none.
    pub(super) fn reserve(
        &mut self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        packets: &[FlowFilter],
        resources: &mut Resources,
    ) -> Result<(), Failure> {
        let asker = Asker::of(job, true, self.way.sender);
        let lifetime = super::seconds(job.timeout);
        let claimed = job.flow.src();
        let policy_request =
            PolicyRequest { asker: &asker, claimed, token: None, opening: Opening::Outward, lifetime };
        for packets in packets {
            for passage in self.ask_policy(job, &policy_request, packets, resources)? {
                resources.close_passage(passage);
            }
        }
        self.bind(key, job, message, packets)
    }

    /// Gives the flow of a request an outer end: the one that it has, the one that the request wishes, or another one. The
    /// messaging layer rewrites FLOW_ID by it.
    pub(super) fn bind(
        &mut self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        packets: &[FlowFilter],
    ) -> Result<(), Failure> {
        let FlowId::V4Ports { src, dst, src_port, dst_port, protocol } = job.flow else {
            return Err(NatfwStatus::GRANULARITY);
        };
        let external = self.external.ok_or(NatfwStatus::RESOURCES)?;
        // One end inside has one end outside.
        let one_end = |packets: &FlowFilter| {
            packets.src == Prefix::host(src.into()) && packets.src_port == Some(src_port)
        };
        if src_port == 0 || !WITH_PORTS.contains(&protocol) || !packets.iter().all(one_end) {
            return Err(NatfwStatus::GRANULARITY);
        }
        let record = self.records.get(key).ok_or(NatfwStatus::RESOURCES)?;
        let ports = self.ports.as_mut().ok_or(NatfwStatus::RESOURCES)?;
        let wished = wish(message);
        let (lease, port, new) = match &record.binding {
            Some(binding) => (binding.lease, binding.outer.1, false),
            None => {
                let inside = Inside { address: src.into(), protocol, port: src_port, second: false };
                let own = wished.filter(|(address, _)| *address == IpAddr::V4(external));
                let holder = source(job.peer);
                let leased = ports.acquire(inside, holder, own.and_then(|(_, port)| port));
                let (lease, port) = leased.map_err(|_| {
                    self.counters.ports_full += 1;
                    tracing::debug!(session = %job.session, peer = %job.peer, reason = "no external port is free", "request refused");
                    NatfwStatus::RESOURCES
                })?;
                (lease, port, true)
            }
        };
        let outer = (IpAddr::V4(external), port);
        let met = wished
            .is_none_or(|(address, port)| address == outer.0 && port.is_none_or(|port| port == outer.1));
        if !met && !self.config.substitutes {
            if new {
                ports.release(lease);
            }
            return Err(NatfwStatus::BINDING);
        }
        let Some(record) = invariant!(self.records.get_mut(key), "a binding is for a record that stands")
        else {
            return Err(NatfwStatus::RESOURCES);
        };
        let binding = Binding { lease, inner: (src.into(), src_port), outer };
        let former = record.binding.replace(binding);
        if former.is_none_or(|former| former.outer != outer) {
            let outer = FlowId::V4Ports { src: external, dst, src_port: port, dst_port, protocol };
            self.out.translate(job.session, job.flow, outer);
        }
        Ok(())
    }

    /// Sends a message on. `data`: its octets as this side sees them, if they are not those that arrived.
    pub(super) fn go_on(&mut self, job: &OwnedArrival, data: Option<Vec<u8>>) {
        let found = self.find(job.session, &job.flow).and_then(|key| self.records.get(key));
        let data = match found.and_then(|record| record.binding.as_ref()) {
            // It was rewritten on its arrival.
            Some(_) if job.reverse => Some(data.unwrap_or_else(|| job.data.as_slice().to_vec())),
            Some(binding) => binding.rewritten(data.as_deref().unwrap_or(job.data.as_slice()), true).or(data),
            None => {
                if self.config.role == Role::Nat && !job.reverse {
                    // The messaging layer waits for it: the next hops see the flow as it is.
                    self.out.translate(job.session, job.flow, job.flow);
                }
                data
            }
        };
        self.out.forward(job.id, data);
    }

    /// The octets of a message against the flow as the inner side sees them. `None`: they are the same.
    pub(super) fn inward(&self, job: &OwnedArrival) -> Option<Vec<u8>> {
        let key = self.find(job.session, &job.flow).filter(|_| job.reverse)?;
        self.records.get(key)?.binding.as_ref()?.rewritten(job.data.as_slice(), false)
    }

    /// The objects of a request that goes on outwards: with an empty NAT_OBJECT, if it had none. `None`: they are those of the
    /// message, or of `rest`.
    pub(super) fn with_nat_object<'a>(
        &self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'a>,
        rest: Option<Vec<NatfwValue<'a>>>,
    ) -> Option<Vec<NatfwValue<'a>>> {
        let bound = self.records.get(key).is_some_and(|record| record.binding.is_some());
        let has = message.values().any(|value| value.kind() == NatfwObject::NAT_OBJECT);
        let request = matches!(message.kind, NatfwType::PATH | NatfwType::CREATE);
        if !bound || job.reverse || has || !request {
            return rest;
        }
        let mut values = rest.unwrap_or_else(|| message.values().collect());
        let behind = |value: &NatfwValue<'_>| {
            matches!(value.kind(), NatfwObject::PACKET_FILTER | NatfwObject::LIFETIME | NatfwObject::AGE)
        };
        let at = values.iter().rposition(behind).map_or(0, |at| at + 1);
        values.insert(at, NatfwValue::Nat(None));
        Some(values)
    }
}
