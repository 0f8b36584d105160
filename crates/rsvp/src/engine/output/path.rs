//! Paths, PathTears and PathErrs that go out (RFC 2205 §3.1.3, §3.1.5, §3.1.7; PATH REFRESH of RFC 2209).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::{IfIndex, Key, invariant};
use signalbox_resources::Available;
use signalbox_resources::intserv::Path;

use signalbox_core::traffic::ServiceClass;

use super::closing::Torn;
use crate::engine::interfaces::Iface;
use crate::engine::io::RsvpEvent;
use crate::engine::message_ids::SentState;
use crate::engine::outbox::Envelope;
use crate::engine::path::{E_POLICE, HELD, LOCAL, LOCAL_ONLY, NON_RSVP, REPAIR, Sender};
use crate::engine::receive::Failure;
use crate::engine::{Admission, Rsvp};
use crate::wire::{
    Class, ErrorFlags, ErrorSpec, HeaderFlags, LocalService, LocalServices, Message, MessageType, Objects,
    Overrides, RawAdspec, RsvpHop, Writer, attribute,
};

/// TTL of messages to a neighbor: clouds without RSVP may lie between.
const TTL: u8 = 255;

/// The services of the interfaces are asked for again after this time.
const ADVERTISE: Duration = Duration::from_secs(1);

/// Services of an interface, for the ADSPECs of Paths that leave by it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Advertised {
    services: LocalServices,
    /// Whether the interface polices traffic.
    polices: bool,
}

impl Rsvp {
    /// Composes and sends a message about no lasting state.
    pub(in crate::engine) fn transmit(
        &mut self,
        envelope: Envelope,
        kind: MessageType,
        compose: impl FnOnce(&Self, &mut Writer<'_>),
    ) -> bool {
        self.transmit_state(envelope, kind, SentState::Nothing, false, compose)
    }

    /// Composes and sends a message. All messages but diagnostics and repeated tears leave through this function. A refresh may be
    /// replaced by its MESSAGE_ID (RFC 2961 §5).
    pub(super) fn transmit_state(
        &mut self,
        envelope: Envelope,
        kind: MessageType,
        about: SentState,
        by_id: bool,
        compose: impl FnOnce(&Self, &mut Writer<'_>),
    ) -> bool {
        let ifindex = envelope.ifindex.unwrap_or_default();
        let mut whole = true;
        let sent = if self.neighbors.is_plain(ifindex) || self.gets_plain(&envelope, about) {
            let (mut octets, flags) = self.neighbors.lend(ifindex);
            let start = octets.len();
            let mut writer = Writer::new(&mut octets, kind, flags, envelope.ttl);
            compose(self, &mut writer);
            let sent = writer.finish().is_ok();
            self.neighbors.send_plain(envelope.at(ifindex), octets, start);
            sent
        } else {
            let mut octets = core::mem::take(&mut self.output.message);
            octets.clear();
            let mut writer = Writer::new(&mut octets, kind, HeaderFlags::default(), envelope.ttl);
            compose(self, &mut writer);
            let sent = writer.finish_without_checksum().is_ok();
            if sent {
                whole = self.dispatch(envelope, &octets, about, by_id);
            }
            self.output.message = octets;
            sent
        };
        if !whole {
            tracing::trace!(%kind, dst = %envelope.dst, "refreshed by a MESSAGE_ID");
            return sent;
        }
        if sent {
            tracing::trace!(%kind, dst = %envelope.dst, "message sent");
        } else {
            tracing::debug!(%kind, dst = %envelope.dst, reason = "too large", "message not sent");
        }
        let counters = &mut self.counters;
        let counter = match (sent, kind) {
            (false, _) => &mut counters.too_large,
            (_, MessageType::PATH) => &mut counters.paths_sent,
            (_, MessageType::RESV) => &mut counters.resvs_sent,
            (_, MessageType::PATH_ERR) => &mut counters.path_errors_sent,
            (_, MessageType::RESV_ERR) => &mut counters.resv_errors_sent,
            (_, MessageType::PATH_TEAR) => &mut counters.path_tears_sent,
            (_, MessageType::RESV_TEAR) => &mut counters.resv_tears_sent,
            _ => &mut counters.confirmations_sent,
        };
        *counter += 1;
        sent
    }

    /// The addressing of a message to a neighbor.
    pub(in crate::engine) fn envelope_to(&self, dst: IpAddr, iface: Iface) -> Envelope {
        let known = self.interfaces.get(iface);
        Envelope {
            src: self.own_address(iface, dst.is_ipv6()),
            dst,
            ifindex: known.map(|known| known.ifindex),
            routed: false,
            ttl: TTL,
            tos: known.map_or(self.config.interface.tos, |known| known.config.tos),
            router_alert: false,
            towards: 0,
            gateway: None,
        }
    }

    /// The mark of a router or RSVP node, for the neighbor layer.
    pub(in crate::engine) fn mark(&self, address: IpAddr) -> u32 {
        self.neighbors.mark(address)
    }

    /// The addressing of a message to the previous hop whose Paths come by `iif`. If hops without RSVP lie between, the
    /// route back may leave by another interface. The message is then routed as any packet, and its handle names the
    /// interface (RFC 2205 §2.9, §3.3).
    pub(in crate::engine) fn envelope_back(&self, hop: IpAddr, iif: Iface, far: bool) -> Envelope {
        let near = match hop {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        Envelope { routed: far && !near, ..self.envelope_to(hop, iif) }
    }

    /// The addressing of a message to the previous hop of a sender. Where an application named the interface by which
    /// it receives, the message leaves by that (RFC 2205 §3.9).
    pub(in crate::engine) fn envelope_before(&self, hop: IpAddr, sender: &Sender) -> Envelope {
        let named = || {
            let session = self.sessions.key_of(sender.session);
            sender.has(LOCAL_ONLY) || session.is_some_and(|session| self.received_by(session) == sender.iif)
        };
        self.envelope_back(hop, sender.iif, sender.has(NON_RSVP) && !named())
    }

    /// The RSVP_HOP of this node at an interface; the handle is a secret of this node and those that get its Paths.
    pub(in crate::engine) fn hop_at(&self, iface: Iface, v6: bool) -> RsvpHop {
        let lih = self.interfaces.get(iface).map_or(0, |known| known.handle);
        RsvpHop { addr: self.own_address(iface, v6), lih }
    }

    /// Sends the Path of a sender by all its interfaces, because it is new or has changed.
    pub(in crate::engine) fn send_path(&mut self, key: Key) {
        self.say_path(key, None, false);
    }

    /// Refreshes the Path of a sender, by its MESSAGE_ID if possible.
    pub(in crate::engine) fn refresh_path(&mut self, key: Key) {
        self.say_path(key, None, true);
    }

    /// Refreshes the Path of a sender by one of several interfaces.
    pub(super) fn refresh_path_by(&mut self, key: Key, iface: Iface) {
        self.say_path(key, Some(iface), true);
    }

    /// Sends the Path of a sender once more by one interface.
    pub(in crate::engine) fn send_path_again(&mut self, key: Key, iface: Iface) {
        self.say_path(key, Some(iface), false);
    }

    fn say_path(&mut self, key: Key, only: Option<Iface>, by_id: bool) {
        // State that is sent again may have ended meanwhile.
        let Some(sender) = self.senders.get(key) else { return };
        let by_id = by_id && !sender.has(REPAIR); // another next hop has acknowledged nothing
        let ttl = if sender.has(LOCAL) { sender.ttl } else { sender.ttl.saturating_sub(1) };
        if ttl == 0 {
            return; // Paths reach as far as the data (RFC 2205 §3.3)
        }
        if self.is_cut_off(sender) {
            return self.hold_path(key, "the incoming link is down");
        }
        if self.is_doubtful(sender) {
            return self.hold_path(key, "the route changed, and the previous hop is silent");
        }
        if sender.extra.is_none() {
            let iface = sender.oif;
            if only.is_none_or(|only| only == iface) {
                self.send_path_by(key, iface, ttl, by_id);
            }
            return;
        }
        let ifaces: Vec<Iface> =
            sender.egress().filter(|iface| only.is_none_or(|only| only == *iface)).collect();
        for iface in ifaces {
            self.send_path_by(key, iface, ttl, by_id);
        }
    }

    /// Whether the incoming interface of a sender is down. A Path would then give the next hop two previous hops when
    /// the data reach it by another route (RFC 2205 §3.6); state that is not refreshed expires.
    fn is_cut_off(&self, sender: &Sender) -> bool {
        !sender.has(LOCAL) && self.interfaces.get(sender.iif).is_some_and(|known| !known.up)
    }

    /// Notes that a Path was due and not sent.
    fn hold_path(&mut self, key: Key, reason: &str) {
        tracing::debug!(session = %self.logged_of(key), reason, "Path held back");
        if let Some(sender) = self.senders.get_mut(key) {
            sender.set(HELD, true);
        }
    }

    /// A Path arrived again: the next hop gets one at once if it may have missed any.
    pub(in crate::engine) fn resume(&mut self, key: Key) {
        let Some(sender) = self.senders.get_mut(key).filter(|sender| sender.has(HELD)) else { return };
        sender.set(HELD, false);
        self.send_path(key);
        self.schedule_path(key, true);
        self.arm_sender(key);
    }

    fn path_envelope(&self, sender: &Sender, iface: Iface, ttl: u8) -> Option<Envelope> {
        let known = self.interfaces.get(iface).filter(|known| known.is_usable())?;
        let session = self.sessions.get_index(sender.session)?;
        let towards = Self::next_router(sender, iface);
        Some(Envelope {
            src: self.addresses.unpack(sender.src, session.v6),
            dst: self.addresses.unpack(session.dest, session.v6),
            ifindex: Some(known.ifindex),
            routed: false,
            ttl,
            tos: known.config.tos,
            router_alert: true,
            towards,
            gateway: self.routes.gateway(towards),
        })
    }

    fn send_path_by(&mut self, key: Key, iface: Iface, ttl: u8, by_id: bool) {
        let about = SentState::Path(key, iface);
        self.choose_pace(iface, &about, by_id);
        let period = self.announced_period(iface, &about);
        let Some(sender) = invariant!(self.senders.get(key), "a sent Path has a sender") else { return };
        let Some(envelope) = self.path_envelope(sender, iface, ttl) else { return };
        let is_new = !sender.is_announced(iface);
        let advertised = self.output.advertised.get(usize::from(iface.0)).copied().flatten();
        let mut adspec = core::mem::take(&mut self.output.adspec);
        adspec.clear();
        if let Some(stored) = self.adspecs.lookup(sender.adspec) {
            self.advance_adspec(stored, sender.has(NON_RSVP), advertised, &mut adspec);
        }
        if !self.output.closing.is_empty() || self.neighbors.has_owned() {
            self.path_again(key);
        }
        let sent = self.transmit_state(envelope, MessageType::PATH, about, by_id, |node, w| {
            let Some(sender) = invariant!(node.senders.get(key), "a Path has its sender") else { return };
            let Some(session) = invariant!(
                node.sessions.get_index(sender.session),
                "a Path is written of a session that stands"
            ) else {
                return;
            };
            let police = sender.has(E_POLICE) && !advertised.is_some_and(|one| one.polices);
            let filter = node.filter_of(sender);
            w.session(&node.session_of(session), police)
                .hop(&node.hop_at(iface, session.v6))
                .time_values(period);
            if iface == Self::standby_interface(sender) {
                carry(w, &attribute::unprotected(sender.carried()));
            } else {
                carry(w, sender.carried());
            }
            w.sender_template(&filter).sender_tspec(&sender.tspec);
            if !adspec.is_empty() {
                w.raw(&adspec);
            }
        });
        self.output.adspec = adspec;
        if sent
            && is_new
            && let Some(sender) = self.senders.get_mut(key)
        {
            sender.set_announced(iface, true);
        }
    }

    /// A Path goes out: the tears of state that the sender had before are not repeated any more.
    fn path_again(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "a repeated Path has a sender") else { return };
        let Some(session) =
            invariant!(self.sessions.get_index(sender.session), "a Path ends tears of a session that stands")
        else {
            return;
        };
        let torn = Torn::Path(self.session_of(session), self.filter_of(sender));
        self.end_repetition(&torn, None);
        self.neighbors.end_waiting(self.torn_mark(&torn), |_| true);
    }

    /// Advances an ADSPEC by this hop (TC_Advertise of RFC 2205 §3.11.2). An ADSPEC that cannot be composed goes no
    /// further.
    fn advance_adspec(
        &self,
        stored: &[u8],
        non_rsvp: bool,
        advertised: Option<Advertised>,
        to: &mut Vec<u8>,
    ) {
        let none = LocalServices {
            general: Path { broken: true, hops: 0, mtu: u32::MAX, ..Path::START },
            guaranteed: None,
            controlled_load: None,
        };
        let mut local = advertised.map_or(none, |one| one.services);
        local.general.broken |= non_rsvp;
        let object = Objects::at(stored, 0).next().and_then(Result::ok);
        if let Some(object) = object {
            let _ = RawAdspec::of(&object).advance(&local, to);
        }
    }

    /// Asks admission control for the services of all interfaces, if it is time.
    pub(in crate::engine) fn advertise_in_time(&mut self, resources: &dyn Admission) {
        if self.now >= self.output.advertised_until {
            self.advertise(resources);
            self.output.advertised_until = self.now + ADVERTISE;
        }
    }

    /// Asks admission control for the services of all interfaces, for the Paths of the next second.
    pub(in crate::engine) fn advertise(&mut self, resources: &dyn Admission) {
        let mut all = core::mem::take(&mut self.output.advertised);
        all.clear();
        for known in self.interfaces.all() {
            all.push(advertised(resources, known.ifindex, known.mtu));
        }
        self.output.advertised = all;
    }

    /// Sends PathTear by those outgoing interfaces of a sender by which a Path has gone along its present route (RFC 2205 §3.1.5): a
    /// PathTear is routed like the Path before it. Until the Path follows a new route (§3.6), the PathTear would end there what
    /// the Paths of another way have set up. Path state along the former route ends without refreshes.
    pub(in crate::engine) fn send_path_tear(&mut self, key: Key, tear: Option<&Message<'_>>) {
        let Some(sender) = invariant!(self.senders.get(key), "a sender stands until its PathTear is sent")
        else {
            return;
        };
        let ttl = if sender.has(LOCAL) { sender.ttl } else { sender.ttl.saturating_sub(1) };
        if ttl == 0 {
            return;
        }
        let Some(session) =
            invariant!(self.sessions.get_index(sender.session), "a PathTear is for a session that stands")
        else {
            return;
        };
        let torn = Torn::Path(self.session_of(session), self.filter_of(sender));
        let ifaces: Vec<Iface> = sender.egress().filter(|iface| sender.is_announced(*iface)).collect();
        for iface in ifaces {
            let Some(sender) = invariant!(self.senders.get(key), "a torn sender stands") else { return };
            let Some(envelope) = self.path_envelope(sender, iface, ttl) else { continue };
            let (way, torn) = ((iface, envelope), (torn, Vec::new()));
            let about = SentState::PathTear(key, iface);
            self.send_tear(way, MessageType::PATH_TEAR, torn, about, |node, w| {
                let Some(sender) = invariant!(node.senders.get(key), "a tear has its sender") else { return };
                let Some(session) = invariant!(
                    node.sessions.get_index(sender.session),
                    "a PathTear is written of a session that stands"
                ) else {
                    return;
                };
                w.session(&node.session_of(session), false).hop(&node.hop_at(iface, session.v6));
                for object in tear.iter().flat_map(|tear| tear.kept()) {
                    w.raw(object.octets);
                }
                w.sender_template(&node.filter_of(sender)).sender_tspec(&sender.tspec);
            });
        }
    }

    /// Answers a Path with a PathErr to its previous hop (RFC 2205 §3.1.7); `far`: behind hops without RSVP. Path state
    /// does not change.
    pub(in crate::engine) fn reject_path(
        &mut self,
        message: &Message<'_>,
        hop: RsvpHop,
        (iface, far): (Iface, bool),
        failure: Failure,
    ) {
        self.counters.rejected += 1;
        // The previous hop is claimed, not proved.
        if !self.output.answers.allow(self.now, &iface) {
            self.counters.errors_limited += 1;
            tracing::debug!(peer = %hop.addr, reason = "too many by its interface", "PathErr not sent");
            return;
        }
        let envelope = self.envelope_back(hop.addr, iface, far);
        let error = ErrorSpec {
            node: envelope.src,
            flags: ErrorFlags::default(),
            code: failure.code,
            value: failure.value,
        };
        tracing::debug!(peer = %hop.addr, reason = %error, "Path rejected");
        self.transmit(envelope, MessageType::PATH_ERR, |_, w| copy_path_err(w, message, &error));
    }

    /// Passes a PathErr on to the previous hop, or reports it to the application that announced the sender. No state
    /// changes (RFC 2205 §3.1.7).
    pub(in crate::engine) fn on_path_err(&mut self, message: &Message<'_>, iface: Iface, src: IpAddr) {
        let (Some(session), Some(filter), Some(error)) = (message.session, message.sender, message.error)
        else {
            return;
        };
        let error = ErrorSpec { flags: ErrorFlags::default(), ..error };
        let key = self.find_session(&session).and_then(|session| self.find_sender(session, &filter));
        let Some(sender) = key.and_then(|key| self.senders.get(key)) else {
            self.counters.unmatched += 1;
            tracing::debug!(%session, sender = %filter, reason = "no such path state", "PathErr dropped");
            return;
        };
        let egress: Vec<Iface> = sender.egress().collect();
        if !egress.iter().any(|oif| self.may_come_by(*oif, iface)) {
            return self.wrong_interface(message.kind, &session, src);
        }
        tracing::debug!(%session, sender = %filter, reason = %error, "PathErr received");
        let sent: Vec<SentState> = key
            .into_iter()
            .flat_map(|key| egress.iter().map(move |iface| SentState::Path(key, *iface)))
            .collect();
        if self.message_ids_refused(&sent, &error) {
            return;
        }
        let Some(sender) = invariant!(
            key.and_then(|key| self.senders.get(key)),
            "a sender stands while an error is handled"
        ) else {
            return;
        };
        if iface == Self::standby_interface(sender) {
            self.counters.standby_failed += 1;
            tracing::debug!(%session, sender = %filter, peer = %src, reason = "about the standby copy of its Path", "PathErr dropped");
            return;
        }
        let application = sender.extra.as_ref().and_then(|extra| extra.application);
        let previous = self.previous_hop(sender);
        if previous.is_some_and(|hop| hop.addr == src) {
            self.counters.errors_returning += 1;
            tracing::debug!(%session, sender = %filter, peer = %src, reason = "it came from the previous hop", "PathErr dropped");
            return;
        }
        // Previous hops may form a circle: each passes on few errors of each state.
        let tspec = message.objects().find(|object| object.kind.class == Class::SENDER_TSPEC);
        let contents = (previous.map(|hop| hop.addr), error, tspec.map(|object| object.octets));
        if !self.output.passes_on(self.now, (src, iface), &key, &contents) {
            self.counters.errors_limited += 1;
            tracing::debug!(%session, sender = %filter, peer = %src, reason = "too many about its path state", "PathErr dropped");
            return;
        }
        match (application, previous) {
            (Some(id), _) => {
                let mut policy = Vec::new();
                for object in message.policy() {
                    policy.extend_from_slice(object.octets());
                }
                let policy = policy.into_boxed_slice();
                self.out.event(id, RsvpEvent::PathError { error, sender: filter, policy });
            }
            (None, Some(hop)) => {
                let envelope = self.envelope_before(hop.addr, sender);
                self.transmit(envelope, MessageType::PATH_ERR, |_, w| copy_path_err(w, message, &error));
            }
            (None, None) => {
                self.counters.unmatched += 1;
                tracing::debug!(%session, sender = %filter, peer = %src, reason = "its sender has no previous hop", "PathErr dropped");
            }
        }
    }
}

/// Writes POLICY_DATA and unknown objects.
pub(in crate::engine) fn carry(w: &mut Writer<'_>, carried: &[u8]) {
    if !carried.is_empty() {
        w.body(carried);
    }
}

/// Writes a PathErr with the sender descriptor of another message.
fn copy_path_err(w: &mut Writer<'_>, message: &Message<'_>, error: &ErrorSpec) {
    let of_class = |class: Class| message.objects().filter(move |object| object.kind.class == class);
    for object in of_class(Class::SESSION) {
        w.raw(object.octets);
    }
    w.error_spec(error);
    for object in of_class(Class::POLICY_DATA).chain(message.kept()) {
        w.raw(object.octets);
    }
    for class in [Class::SENDER_TEMPLATE, Class::SENDER_TSPEC, Class::ADSPEC] {
        for object in of_class(class) {
            w.raw(object.octets);
        }
    }
}

/// Services of an interface from admission control; `None`: no integrated services there.
fn advertised(resources: &dyn Admission, ifindex: IfIndex, mtu: u32) -> Option<Advertised> {
    let of = |service| resources.available(ifindex, service);
    let (guaranteed, load) = (of(ServiceClass::Guaranteed), of(ServiceClass::ControlledLoad));
    let any = guaranteed.or(load)?;
    let general = Path::hop(any.capacity, any.latency, any.link_mtu.min(mtu));
    let service = |one: Available| LocalService {
        overrides: Overrides { mtu: Some(one.mtu).filter(|mtu| *mtu < general.mtu), ..Overrides::default() },
        terms: one.terms,
        // The kernel does not delay packets until they conform: the next hop must allow for their burst.
        reshapes: false,
    };
    let services =
        LocalServices { general, guaranteed: guaranteed.map(service), controlled_load: load.map(service) };
    Some(Advertised { services, polices: true })
}
