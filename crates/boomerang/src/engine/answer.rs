//! What this node writes into a passing message (§2.3).

use core::net::IpAddr;

use signalbox_resources::Resources;

use super::Boomerang;
use super::flow::FlowKey;
use super::io::Reason;
use super::path::Origin;
use super::proof::{Head, Party};
use crate::wire::{Body, Known, Message, Nodes, Note, Pass, Qos, Rates, Refusal, edit};

impl Boomerang {
    /// Writes a refusal of this node: both signs, and which node and why if an option can be added.
    /// BOOM-2.3-04, BOOM-F4.2-03, BOOM-G31-01, BOOM-G24-02.
    pub(super) fn refuse(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: &Origin,
        reason: Reason,
    ) -> bool {
        self.counters.refused += 1;
        tracing::debug!(peer = %origin.ends.src, %reason, "message refused");
        if message.is_refused() {
            return false;
        }
        edit::refuse(octets, message.flags);
        let Some(body) = &message.body else { return true };
        let address = self.interfaces.address(origin.oif, origin.ends.dst);
        let family = body.flow.classifier.src.is_ipv6() == origin.ends.is_ipv6();
        let room = usize::try_from(self.interfaces.mtu(origin.oif)).unwrap_or(0);
        // The IP header with its options has at most 60 octets, the option 24.
        let fits = octets.len() + 84 <= room;
        if let Some(address) = address.filter(|_| fits && family && body.options.tail() == 0) {
            edit::append(octets, &Known::Refusal(Refusal { address, cause: reason.number() }));
        }
        true
    }

    /// Records which node further on refused what this node reserved: a refusal on its way back says so. The initiating node
    /// releases the reservation then, and gives no reason. It has to show the number that the reservation demands, or anybody could
    /// write into the record. A refusal has no KEY, so that a number that travels there shows nothing.
    pub(super) fn note_refused_beyond(
        &self,
        message: &Message<'_>,
        body: &Body<'_>,
        origin: &Origin,
        resources: &mut Resources,
    ) {
        let (Pass::Reply, Some(towards)) = (message.pass, origin.iif) else { return };
        let beyond = body.options.refusal().filter(|one| !self.interfaces.is_local(one.address));
        let (Some(node), Ok(key)) = (beyond, FlowKey::of(&body.flow, Pass::Request)) else { return };
        let found = self.find(key.hash(towards, &self.hasher), &key, towards);
        let Some(flow) = found.and_then(|found| self.flows.get(found)) else { return };
        let party = Party { flow: key, initiator: origin.initiator(Pass::Reply), side: origin.oif };
        let shown = || self.proofs.shown(message).of(Pass::Request);
        let proved = match flow.proof {
            _ if flow.signed => false,
            0 => true,
            head => self.proofs.continues(&party, shown(), Head(head)),
        };
        if proved {
            resources.note_refused_beyond(flow.grant, node.address);
        }
    }

    /// Adds a text for people to a refusal that this node wrote, if there is room.
    pub(super) fn explain(&self, octets: &mut Vec<u8>, message: &Message<'_>, origin: &Origin, note: &str) {
        let room = usize::try_from(self.interfaces.mtu(origin.oif)).unwrap_or(0);
        let plain = message.body.is_some_and(|body| body.options.tail() == 0);
        // The IP header with its options has at most 60 octets.
        if !message.is_refused() && plain && octets.len() + 60 + Note::OCTETS <= room {
            edit::append(octets, &Known::Note(Note::of(note)));
        }
    }

    /// Writes this node into the list of those that granted the request, if its initiating node asks for that. `end`: this node is
    /// the far end. Whether any octet changed.
    pub(super) fn name_granting(
        &self,
        octets: &mut [u8],
        body: &Body<'_>,
        origin: &Origin,
        end: bool,
    ) -> bool {
        let Some((placed, nodes)) = body.options.nodes() else { return false };
        // The initiating node began the list when it composed the message.
        let (Some(iif), Some(came)) = (origin.iif, origin.ttl) else { return false };
        // The far end composes its reply, whose source it is.
        let address = if end { Some(origin.ends.src) } else { self.interfaces.address(iif, origin.ends.src) };
        let (Some(address), place) = (address, usize::from(nodes.count)) else { return false };
        let gap = (place == 0 || came != nodes.ttl) && place < Nodes::MOST;
        let gaps = nodes.gaps | if gap { 0x8000 >> place } else { 0 };
        let [g1, g0] = gaps.to_be_bytes();
        let head = [nodes.count.saturating_add(1), came.saturating_sub(1), g1, g0];
        edit::set_octets(octets, placed.offset + 4, head);
        if end {
            edit::set_octets(octets, placed.offset + 2, (placed.flags | Nodes::END).to_be_bytes());
        }
        if place < Nodes::MOST {
            let at = placed.offset + Nodes::HEAD;
            match address {
                IpAddr::V4(address) => edit::set_octets(octets, at + 4 * place, address.octets()),
                IpAddr::V6(address) => edit::set_octets(octets, at + 16 * place, address.octets()),
            }
        }
        true
    }

    /// Lowers the rates of the pass to what is available. Whether any changed. BOOM-G19-01, BOOM-G21-02.
    pub(super) fn lower(&self, octets: &mut [u8], message: &Message<'_>, available: u32) -> bool {
        let (family, pass) = (message.format.family(), message.pass);
        if let Some(Qos::IntServ(specs)) = message.body.map(|body| body.qos) {
            #[expect(clippy::cast_precision_loss, reason = "the parameters are floats")]
            let rate = (available / 8) as f32;
            return edit::lower_intserv(octets, family, &specs, pass, rate);
        }
        let mut changed = false;
        let mut one = |element, rates: Rates| {
            if rates.of(pass) > available {
                edit::set_rate(octets, family, element, pass, available);
                changed = true;
            }
        };
        match message.body.map(|body| body.qos) {
            Some(Qos::BitRate(rates)) => one(None, rates),
            Some(Qos::Downgrade(list)) => {
                (0..).zip(list.pairs()).for_each(|(element, rates)| one(Some(element), rates));
            }
            Some(Qos::IntServ(_)) | None => {}
        }
        changed
    }

    /// Writes the rate that was granted over the elements of a list in front of it. Whether any changed. BOOM-G20-01.
    pub(super) fn write_grant(&self, octets: &mut [u8], message: &Message<'_>, granted: u32) -> bool {
        let Some(Qos::Downgrade(_)) = message.body.map(|body| body.qos) else { return false };
        self.lower(octets, message, granted)
    }
}
