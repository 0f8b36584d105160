//! The requests of this node: their octets, and what the link to the first node of the path carries.

use core::net::IpAddr;

use signalbox_core::packet::{router_alert_v4, router_alert_v6_before};
use signalbox_core::{Key, invariant};
use signalbox_resources::Resources;

use super::Boomerang;
use super::interfaces::Iface;
use super::outbox::TTL;
use super::path::Origin;
use super::session::State;
use crate::wire::{
    Body, Flags, Format, IntServ, Known, Message, Nodes, Options, Pass, Qos, Rates, UserId, edit,
};

/// IP protocol number of ICMPv6, for the header in front of it.
const ICMPV6: u8 = 58;

/// The Router Alert of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Alert {
    None,
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Alert {
    /// Its IP options.
    pub(super) const fn options(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::V4(options) => options,
            Self::V6(options) => options,
        }
    }
}

impl Boomerang {
    /// Octets of the largest ICMP message to `dst` that the first hop carries: it is sent with DF.
    fn first_hop_room(&self, dst: IpAddr, oif: Iface, alert: &Alert) -> usize {
        let link = Some(self.interfaces.mtu(oif)).filter(|mtu| *mtu > 0);
        let mtu = link.into_iter().chain(self.routes.mtu(dst)).min().unwrap_or(u32::MAX);
        let header = if dst.is_ipv6() { 40 } else { 20 } + alert.options().len();
        usize::try_from(mtu).unwrap_or(usize::MAX).saturating_sub(header)
    }

    /// Writes the request of a session with this transaction, and reserves what it asks for at the own link. The list of nodes is left
    /// out where it does not fit. `None`: the request exceeds the MTU of the first hop, and nothing is reserved.
    pub(super) fn compose(
        &mut self,
        key: Key,
        oif: Iface,
        transaction: u32,
        octets: &mut Vec<u8>,
        resources: &mut Resources,
    ) -> Option<Alert> {
        let session = invariant!(self.sessions.get_mut(key), "a request is of a session")?;
        let release = [Rates::default()];
        let rates: &[Rates] = if session.state == State::Closing { &release } else { &session.wanted };
        let pairs: Vec<[u8; 8]> = rates.iter().map(|pair| pair.octets()).collect();
        let specs;
        let qos = match (session.intserv, rates) {
            (Some(parameters), [one, ..]) => {
                specs = parameters.messages(*one);
                let [forward, reverse] = &specs;
                Qos::IntServ(IntServ { forward, reverse })
            }
            (_, [one]) => Qos::BitRate(*one),
            _ => Qos::list(&pairs),
        };
        let family = session.flow.family();
        let message = Message {
            pass: Pass::Request,
            identifier: self.identifier,
            sequence: self.sequence,
            transaction,
            format: Format::of(family, qos.format()),
            // Both signs of a refusal make the message a query: nodes only write what they have.
            flags: match session.query {
                // BOOM-G18-01
                true => Flags::NACK,
                // BOOM-F5.3-02
                false if session.is_for_group() => Flags::NO_ECHO,
                false => Flags::RETURNS.with_if(Flags::STANDS, session.stands()),
            },
            refresh: session.refresh,
            padding: 0,
            // BOOM-G11-01
            key: if session.query { 0 } else { session.key },
            body: Some(Body { flow: session.flow, qos, options: Options::none() }),
        };
        let ends = session.ends;
        message.encode(&ends, octets);
        if let Some(user) = session.user {
            edit::append(octets, &Known::UserId(UserId { user, credential: [0; 8] }));
        }
        let most = rates.first().copied().unwrap_or_default();
        let option = self.domain.option(&self.config.integrity, self.now, most);
        session.signed = option.is_some();
        if let Some(option) = option {
            let at = octets.len();
            edit::append(octets, &Known::Authentication(option));
            self.domain.sign(&self.config.integrity, octets, ends.is_ipv6(), at, option.key);
        }
        for (flags, proof) in &session.proofs {
            edit::append_with(octets, *flags, &Known::ReturnProof(*proof));
        }
        let names = session.names_nodes && session.state == State::Setup;
        // BOOM-G4-02
        let alert = match (ends.dst, self.config.router_alert, self.config.router_alert_v6) {
            // BOOM-F4.1.4-02
            (IpAddr::V4(_), true, _) => Alert::V4(router_alert_v4(0)),
            // BOOM-G29-05
            (IpAddr::V6(_), _, Some(value)) => Alert::V6(router_alert_v6_before(ICMPV6, value)),
            _ => Alert::None,
        };
        let room = self.first_hop_room(ends.dst, oif, &alert);
        // BOOM-G31-03
        if octets.len() > room {
            return None;
        }
        if names {
            let without = octets.len();
            edit::append(octets, &Known::Nodes(Nodes::beginning(ends.src, TTL)));
            if octets.len() > room {
                octets.truncate(without);
            }
        }
        // The link of this node is a part of the path. A refused message is sent as well: it collects what the path has.
        // BOOM-G36-02
        self.procedure(octets, &message, Origin::own(ends, oif), resources);
        edit::set_checksum(octets, &ends);
        Some(alert)
    }
}
