//! The interface to applications of this node (RFC 2205 §3.11.1).

use core::net::IpAddr;

use signalbox_core::stamp::Stamp;
use signalbox_core::{Key, invariant};

use crate::engine::carried::{Carried, Received};
use crate::engine::interfaces::Iface;
use crate::engine::io::{Command, Refused, ReserveRequest, RsvpEvent, SenderRequest};
use crate::engine::merging::Tears;
use crate::engine::path::{E_POLICE, LOCAL, LOCAL_ONLY, PROTECTED};
use crate::engine::receive::Failure;
use crate::engine::reservation::{Branch, Outcome, Wanted};
use crate::engine::session::{APPLICATIONS, NONE, Refusal};
use crate::engine::{Admission, Rsvp};
use crate::wire::{
    self, Adspec, Class, Filter, FlowSpec, HeaderFlags, MessageType, Objects, RawAdspec, Style, Writer,
    attribute, granting,
};

/// Protocols whose packets are classified by SPI (RFC 2207).
const ESP: u8 = 50;
const AH: u8 = 51;

const fn is_gpi(filter: &Filter) -> bool {
    matches!(filter.selector, wire::Selector::Gpi(_))
}

/// An application's registration of a session.
#[derive(Debug)]
pub(in crate::engine) struct Application {
    session: Key,
    /// Its number as a next hop of the session.
    hop: u32,
    sender: Option<Key>,
    reserve: Option<Reserve>,
    /// The interface by which it receives data, if it named one.
    pub(in crate::engine) receives: Option<Iface>,
}

/// What an application reserves.
#[derive(Debug)]
struct Reserve {
    request: Box<ReserveRequest>,
    confirmation: Confirmation,
}

/// The confirmation of a reservation (RFC 2205 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confirmation {
    NotRequested,
    /// It was requested, and that was not forwarded yet.
    Due,
    /// It was requested for this or an earlier reservation: a ResvConf may be for it.
    Requested,
}

impl Application {
    pub(in crate::engine) const fn session(&self) -> Key {
        self.session
    }
}

impl Application {
    pub(super) fn reserve_mut(&mut self) -> Option<&mut ReserveRequest> {
        self.reserve.as_mut().map(|reserve| &mut *reserve.request)
    }
}

const fn refused(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::DestPorts | Refusal::SenderPorts => Refused::ConflictingPorts,
        Refusal::Full => Refused::Full,
    }
}

impl Rsvp {
    /// Handles a command of an application (RFC 2205 §3.11.1).
    pub(in crate::engine) fn on_command(&mut self, id: u64, command: Command, resources: &mut dyn Admission) {
        let result = match command {
            Command::Session(session) => self.register(id, &session, resources),
            Command::Sender(request) => self.announce(id, &request, resources),
            Command::Reserve(request) => self.ask_for(id, request, resources),
            Command::ReceiveAt(address) => self.receive_at(id, address, resources),
            Command::ReleaseSender => self.withdraw_sender(id, resources),
            Command::ReleaseReservation => self.withdraw_reservation(id, resources),
            Command::Close => self.close(id, resources),
            Command::EndSenders { session, source } => {
                let (senders, more) = self.end_senders(&session, source, resources);
                self.out.event(id, RsvpEvent::SendersEnded { senders, more });
                Ok(())
            }
            Command::ForgetNeighbor { neighbor, ifindex } => {
                let interfaces = self.forget_neighbor(neighbor, ifindex);
                self.out.event(id, RsvpEvent::NeighborForgotten { interfaces });
                Ok(())
            }
        };
        if let Err(why) = result {
            tracing::debug!(id, reason = %why, "command of an application refused");
            self.out.event(id, RsvpEvent::Refused(why));
        }
    }

    pub(in crate::engine) fn application(&self, id: u64) -> Result<&Application, Refused> {
        self.clients.applications.get(&id).ok_or(Refused::NoSession)
    }

    fn register(
        &mut self,
        id: u64,
        session: &wire::Session,
        resources: &mut dyn Admission,
    ) -> Result<(), Refused> {
        if session.dest.is_unspecified() || session.protocol == 0 {
            return Err(Refused::BadSession);
        }
        if session.kind == wire::SessionKind::Gpi {
            if !matches!(session.protocol, ESP | AH) {
                return Err(Refused::NoGpi);
            }
            if session.port == 0 {
                return Err(Refused::BadPort);
            }
        }
        if let Some(known) = self.clients.applications.get(&id) {
            let same = self.find_session(session) == Some(known.session);
            return if same { Ok(()) } else { Err(Refused::NameTaken) };
        }
        if self.clients.applications.len()
            >= usize::try_from(self.config.max_applications).unwrap_or(usize::MAX)
        {
            return Err(Refused::Full);
        }
        let key = match self.find_session(session) {
            Some(key) => key,
            None => self.open_session(session, None).map_err(refused)?,
        };
        let hop = self.free_number(key);
        if let Some(record) = self.sessions.get_mut(key) {
            record.extra().applications.push(id);
        }
        let application = Application { session: key, hop, sender: None, reserve: None, receives: None };
        self.clients.applications.insert(id, application);
        tracing::debug!(id, %session, "application registered");
        // An application that registers later gets a report of the senders that are known (RFC 2205 §2.10).
        let senders: Vec<Key> =
            self.senders_of(key).filter(|(_, one)| one.leaves_by(Iface::LOCAL)).map(|(key, _)| key).collect();
        self.members_changed(key, resources);
        for sender in senders {
            self.path_event_to(sender, id);
        }
        Ok(())
    }

    /// The least number that no application of the session has.
    fn free_number(&self, session: Key) -> u32 {
        let mut taken: Vec<u32> = self.applications_of(session).map(|(_, one)| one.hop).collect();
        taken.sort_unstable();
        (APPLICATIONS..)
            .zip(taken.into_iter().map(Some).chain([None]))
            .find_map(|(number, taken)| (taken != Some(number)).then_some(number))
            .unwrap_or(NONE)
    }

    fn applications_of(&self, session: Key) -> impl Iterator<Item = (u64, &Application)> {
        let ids = self.sessions.get(session).map_or(&[][..], |one| one.applications());
        ids.iter().filter_map(|id| Some((*id, self.clients.applications.get(id)?)))
    }

    /// The application with this number as a next hop of the session.
    pub(in crate::engine) fn application_of(&self, session: Key, hop: u32) -> Option<u64> {
        self.applications_of(session).find(|(_, one)| one.hop == hop).map(|(id, _)| id)
    }

    /// The reservations that other applications request in a session.
    fn others_ask(&self, id: u64, session: Key) -> impl Iterator<Item = &ReserveRequest> {
        self.applications_of(session)
            .filter(move |(other, _)| *other != id)
            .filter_map(|(_, one)| one.reserve.as_ref().map(|reserve| &*reserve.request))
    }

    /// Reports a confirmation to the application that requested it; if that is not known, to those whose request fits.
    pub(in crate::engine) fn confirm_here(
        &mut self,
        session: Key,
        asked: Option<u64>,
        node: IpAddr,
        style: Style,
        flowspec: Option<FlowSpec>,
        senders: Vec<Filter>,
    ) {
        let suits = |Reserve { request, confirmation }: &Reserve| {
            let mut named = request.flows.iter().flat_map(|flow| &flow.senders);
            *confirmation != Confirmation::NotRequested
                && request.style == style
                && (!style.is_explicit() || named.any(|sender| senders.contains(sender)))
        };
        let applications: Vec<u64> = self
            .applications_of(session)
            .filter(|(id, one)| match asked {
                Some(asked) => *id == asked,
                None => one.reserve.as_ref().is_some_and(suits),
            })
            .map(|(id, _)| id)
            .collect();
        if applications.is_empty() {
            self.counters.unmatched += 1;
            tracing::debug!(session = %self.logged(session), reason = "no application asked for it", "confirmation dropped");
        }
        for id in applications {
            let senders = senders.clone();
            self.out.event(id, RsvpEvent::Confirmed { node, style, flowspec, senders });
        }
    }

    /// Applications registered or closed: this node joined or left the group.
    fn members_changed(&mut self, session: Key, resources: &mut dyn Admission) {
        if !self.sessions.get(session).is_some_and(|one| one.multicast) {
            return;
        }
        let senders: Vec<Key> =
            self.senders_of(session).filter(|(_, one)| !one.has(LOCAL_ONLY)).map(|(key, _)| key).collect();
        for sender in senders {
            self.update_egress(sender, resources);
        }
    }

    fn announce(
        &mut self,
        id: u64,
        request: &SenderRequest,
        resources: &mut dyn Admission,
    ) -> Result<(), Refused> {
        let (session, mine) = {
            let application = self.application(id)?;
            (application.session, application.sender)
        };
        let record = self.sessions.get(session).ok_or(Refused::NoSession)?;
        let template = request.template;
        if template.src.is_ipv6() != record.v6 || !self.interfaces.is_local(template.src) {
            return Err(Refused::BadSource);
        }
        let gpi = record.kind == wire::SessionKind::Gpi;
        if gpi != is_gpi(&template) {
            return Err(Refused::ConflictingTypes);
        }
        if !gpi && record.port == 0 && template.port() != 0 {
            return Err(Refused::ConflictingPorts);
        }
        if !is_policy(&request.policy) || request.policy.len() > usize::from(self.config.max_carried) {
            return Err(Refused::BadPolicy);
        }
        if request.ttl == 0 {
            return Err(Refused::BadSource);
        }
        // An m of 0 is illegal (RFC 2210 §3.1).
        let asked = request.tspec;
        let asked = asked.with_min_policed(asked.smallest_packet()).unwrap_or(asked);
        let found = self.find_sender(session, &template);
        if found != mine {
            return Err(Refused::SenderTaken);
        }
        let key = match found {
            Some(key) => key,
            None => self.open_sender(session, &template, asked).map_err(refused)?,
        };
        let upstream = if found.is_some() { self.change_of_sender(session, key) } else { None };
        let adspec = if request.adspec { self.share_start() } else { NONE };
        let Some(sender) = invariant!(self.senders.get_mut(key), "a sender stands while it is announced")
        else {
            return Ok(());
        };
        let old = core::mem::replace(&mut sender.adspec, adspec);
        let tspec = core::mem::replace(&mut sender.tspec, self.shared.tspec(&asked));
        sender.flags |= LOCAL | E_POLICE;
        sender.ttl = request.ttl;
        let extra = sender.extra();
        extra.application = Some(id);
        let protecting = attribute::protecting();
        let attribute = if request.protect { &protecting[..] } else { &[] };
        let asking = if request.name_nodes { granting::asking() } else { Vec::new() };
        extra.carried = Carried::of_application([&*request.policy, attribute, &asking].concat());
        self.release_adspec(old);
        let was = self.senders.get(key).is_some_and(|sender| sender.has(PROTECTED));
        self.note_protection(key);
        if let Some(application) = self.clients.applications.get_mut(&id) {
            application.sender = Some(key);
        }
        if found.is_none() {
            self.look_up_route(key);
            return Ok(());
        }
        self.send_path(key);
        self.schedule_path(key, true);
        self.arm_sender(key);
        self.path_event(key);
        if was != request.protect {
            self.look_up_again(key);
        }
        if *tspec != asked {
            self.reinstall_of(session, key, resources);
        }
        if let Some(upstream) = upstream {
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
        Ok(())
    }

    /// The ADSPEC of a sender of this node (RFC 2210 §3.3).
    fn share_start(&mut self) -> u32 {
        let mut octets = Vec::new();
        let mut writer = Writer::new(&mut octets, MessageType::PATH, HeaderFlags::default(), 0);
        writer.adspec(&Adspec::START);
        let written = writer.finish().is_ok();
        let object = octets.get(wire::HEADER_OCTETS..).unwrap_or_default();
        let shared = if written { self.adspecs.intern(object.into()) } else { return NONE };
        self.counters.overload += u64::from(shared.is_err());
        shared.unwrap_or(NONE)
    }

    fn ask_for(
        &mut self,
        id: u64,
        request: ReserveRequest,
        resources: &mut dyn Admission,
    ) -> Result<(), Refused> {
        let session = self.application(id)?.session;
        let record = self.sessions.get(session).ok_or(Refused::NoSession)?;
        // Applications that wait for their senders have a style too.
        let differs =
            record.style.is_some_and(|style| style != request.style) && !self.is_only_reserver(id, session);
        if differs || self.others_ask(id, session).any(|other| other.style != request.style) {
            return Err(Refused::ConflictingStyle);
        }
        let suits = |senders: usize| match request.style {
            Style::Wf => senders == 0,
            Style::Ff => senders == 1,
            Style::Se => senders > 0,
        };
        let count = request.flows.len();
        if count == 0
            || request.style.is_shared() && count > 1
            || !request.flows.iter().all(|flow| suits(flow.senders.len()))
        {
            return Err(Refused::BadFlows);
        }
        let gpi = record.kind == wire::SessionKind::Gpi;
        if request.flows.iter().flat_map(|flow| &flow.senders).any(|sender| is_gpi(sender) != gpi) {
            return Err(Refused::ConflictingTypes);
        }
        if !is_policy(&request.policy) || request.policy.len() > usize::from(self.config.max_carried) {
            return Err(Refused::BadPolicy);
        }
        let changes_style = self
            .clients
            .applications
            .get(&id)
            .and_then(|one| one.reserve.as_ref())
            .is_some_and(|old| old.request.style != request.style);
        if changes_style {
            self.end_local(id, session, resources);
        }
        if let Some(application) = self.clients.applications.get_mut(&id) {
            let former = application.reserve.as_ref().map(|former| former.confirmation);
            let confirmation = match former {
                _ if request.confirm => Confirmation::Due,
                None | Some(Confirmation::NotRequested) => Confirmation::NotRequested,
                Some(Confirmation::Due | Confirmation::Requested) => Confirmation::Requested,
            };
            application.reserve = Some(Reserve { request: Box::new(request), confirmation });
        }
        self.drop_unwanted(id, session, resources);
        self.apply_reserve(id, resources);
        Ok(())
    }

    /// Whether all reservations of a session are this application's.
    fn is_only_reserver(&self, id: u64, session: Key) -> bool {
        let local = |branch: &Branch| branch.oif == Iface::LOCAL;
        let own = self.clients.applications.get(&id).is_some_and(|one| one.reserve.is_some());
        own && self.others_ask(id, session).next().is_none()
            && self
                .senders_of(session)
                .all(|(_, sender)| self.branches_of(sender).all(|(_, branch)| local(branch)))
    }

    /// Ends the reservations for senders that an explicit style does not name any more.
    fn drop_unwanted(&mut self, id: u64, session: Key, resources: &mut dyn Admission) {
        let Some(application) =
            invariant!(self.clients.applications.get(&id), "an application stands while it asks")
        else {
            return;
        };
        let (hop, Some(Reserve { request, .. })) = (application.hop, &application.reserve) else { return };
        if !request.style.is_explicit() {
            return;
        }
        let style = request.style;
        let wanted: Vec<Filter> =
            request.flows.iter().flat_map(|flow| flow.senders.iter().copied()).collect();
        let gone: Vec<Key> = self
            .senders_of(session)
            .filter(|(_, sender)| !wanted.contains(&self.filter_of(sender)))
            .map(|(key, _)| key)
            .collect();
        if gone.is_empty() {
            return;
        }
        let mut upstream = self.begin_change();
        for sender in &gone {
            let own = Some(*sender).filter(|_| style == Style::Ff);
            if let Some(branch) = self.local_branch(session, own, hop) {
                let named = [*sender];
                let named = if style == Style::Se { &named[..] } else { &[] };
                self.release(&mut upstream, session, branch, hop, named, resources);
            }
        }
        self.send_upstream(upstream, session, Tears::Send, None);
    }

    /// Reserves for those senders of an application's request that are known.
    pub(in crate::engine) fn apply_reserve(&mut self, id: u64, resources: &mut dyn Admission) {
        // It may have closed since it was entered in `pending`.
        let Some(application) = self.clients.applications.get(&id) else { return };
        let Some(Reserve { request, confirmation }) = &application.reserve else { return };
        let (session, hop) = (application.session, application.hop);
        let (request, confirms) = (request.clone(), *confirmation == Confirmation::Due);
        let in_place = self.sessions.get(session).and_then(|one| one.style);
        let conflict = in_place.filter(|style| *style != request.style);
        let receiver = if confirms { self.receiver_of(session) } else { None };
        let wanted = Wanted {
            session,
            style: request.style,
            oif: Iface::LOCAL,
            hop,
            application: Some(id),
            expires: Stamp::after(self.now),
            scope: None,
            carried: &request.policy,
            received: Received { limit: usize::from(self.config.max_carried), ..Received::default() },
            confirm: receiver,
        };
        let asked = wanted.confirmation();
        let mut upstream = self.begin_change();
        let mut done = false;
        for flow in &request.flows {
            let named = flow.senders.iter().filter_map(|filter| {
                let sender = self.find_sender(session, filter)?;
                Some(self.for_application(session, sender))
            });
            let mut senders: Vec<Key> = if request.style.is_explicit() {
                named.collect()
            } else {
                self.senders_of(session).map(|(key, _)| key).collect()
            };
            // An application does not receive its own data through the network.
            senders.retain(|key| {
                self.senders.get(*key).is_some_and(|one| {
                    let own = one.extra.as_ref().is_some_and(|extra| extra.application == Some(id));
                    one.leaves_by(Iface::LOCAL) && !own
                })
            });
            senders.sort_unstable();
            senders.dedup();
            let Some(first) = senders.first().copied() else { continue };
            if let Some(other) = conflict {
                // Another style was reserved while this application waited for its senders.
                let (failure, filters) = (Failure::style_in_place(other), flow.senders.clone());
                self.report_failure_to_application(&wanted, failure, false, &flow.flowspec, filters);
                continue;
            }
            let own = (request.style == Style::Ff).then_some(first);
            let shared = if own.is_some() { &[][..] } else { &senders };
            let Some(flowspec) = self.suited(&flow.flowspec, &senders) else {
                self.out.event(id, RsvpEvent::Refused(Refused::NotOffered));
                continue;
            };
            match self.reserve(&mut upstream, &wanted, own, shared, &flowspec, resources) {
                Outcome::Refreshed { .. } => {}
                Outcome::Changed { largest, .. } => {
                    done = true;
                    // Another application of this node requests as much or more.
                    match asked.filter(|_| !largest) {
                        Some(asked) => self.send_confirmation(session, request.style, &asked, &senders),
                        None => upstream.confirm_all(&senders),
                    }
                }
                Outcome::Failed(failure, in_place) => {
                    let filters = flow.senders.clone();
                    self.report_failure_to_application(&wanted, failure, in_place, &flowspec, filters);
                }
            }
        }
        self.send_upstream(upstream, session, Tears::Send, asked.filter(|_| done));
        let application = self.clients.applications.get_mut(&id);
        if let Some(reserve) = application.and_then(|application| application.reserve.as_mut())
            && done
            && reserve.confirmation == Confirmation::Due
        {
            reserve.confirmation = Confirmation::Requested;
        }
    }

    /// The flowspec of a receiver for these senders: packets are not larger than the path MTU in their ADSPECs (RFC
    /// 2210 §2.3.2). `None`: not all of them offer the service. An ADSPEC with a break bit is not used (§2.3.1). One that
    /// names no service at all says nothing about services: there are senders whose ADSPEC has general parameters only.
    fn suited(&self, wanted: &FlowSpec, senders: &[Key]) -> Option<FlowSpec> {
        let mut suited = *wanted;
        for sender in senders.iter().filter_map(|key| self.senders.get(*key)) {
            let object = self.adspecs.lookup(sender.adspec).and_then(|stored| Objects::at(stored, 0).next());
            let Some(Ok(object)) = object else { continue };
            let Ok(adspec) = RawAdspec::of(&object).read() else { continue };
            let names = adspec.guaranteed.is_some() || adspec.controlled_load.is_some();
            let path = if names { adspec.path(wanted.service())? } else { adspec.general };
            if !path.broken && path.mtu < suited.tspec.max_packet() {
                suited.tspec = suited.tspec.with_max_packet(path.mtu).unwrap_or(suited.tspec);
            }
        }
        Some(suited)
    }

    /// The address for confirmations of an application.
    fn receiver_of(&self, session: Key) -> Option<IpAddr> {
        let record = self.sessions.get(session)?;
        let dest = self.addresses.unpack(record.dest, record.v6);
        if self.interfaces.is_local(dest) {
            return Some(dest);
        }
        if let Some(address) = self.interfaces.get(self.received_by(session)) {
            return address.address(record.v6);
        }
        let iif =
            self.senders_of(session).find(|(_, sender)| !sender.has(LOCAL)).map(|(_, sender)| sender.iif);
        self.interfaces.address(iif.unwrap_or(Iface::NONE), record.v6)
    }

    fn withdraw_sender(&mut self, id: u64, resources: &mut dyn Admission) -> Result<(), Refused> {
        self.application(id)?;
        let sender = self.clients.applications.get_mut(&id).and_then(|application| application.sender.take());
        let key = sender.ok_or(Refused::NothingToRelease)?;
        self.end_sender(key, None, resources);
        Ok(())
    }

    fn withdraw_reservation(&mut self, id: u64, resources: &mut dyn Admission) -> Result<(), Refused> {
        let session = self.application(id)?.session;
        let application = self.clients.applications.get_mut(&id).ok_or(Refused::NoSession)?;
        if application.reserve.take().is_none() {
            return Err(Refused::NothingToRelease);
        }
        self.end_local(id, session, resources);
        Ok(())
    }

    /// Ends the reservations of an application of this node.
    fn end_local(&mut self, id: u64, session: Key, resources: &mut dyn Admission) {
        let Some(hop) = invariant!(
            self.clients.applications.get(&id).map(|one| one.hop),
            "what an application reserved ends before it"
        ) else {
            return;
        };
        let Some(style) = self.sessions.get(session).and_then(|one| one.style) else { return };
        let senders: Vec<Key> = self.senders_of(session).map(|(key, _)| key).collect();
        let mut upstream = self.begin_change();
        if style == Style::Ff {
            for sender in senders {
                if let Some(branch) = self.local_branch(session, Some(sender), hop) {
                    self.release(&mut upstream, session, branch, hop, &[], resources);
                }
            }
        } else if let Some(branch) = self.local_branch(session, None, hop) {
            self.release(&mut upstream, session, branch, hop, &senders, resources);
        }
        self.send_upstream(upstream, session, Tears::Send, None);
    }

    fn close(&mut self, id: u64, resources: &mut dyn Admission) -> Result<(), Refused> {
        let session = self.application(id)?.session;
        let _ = self.withdraw_reservation(id, resources);
        let _ = self.withdraw_sender(id, resources);
        self.received_at(id, session, None, resources);
        self.clients.applications.remove(&id);
        tracing::debug!(id, session = %self.logged(session), "application closed its session");
        if let Some(record) = self.sessions.get_mut(session) {
            record.extra().applications.retain(|one| *one != id);
            record.shrink();
        }
        self.members_changed(session, resources);
        self.close_if_idle(session);
        Ok(())
    }
}

/// Whether octets are a list of POLICY_DATA objects.
fn is_policy(octets: &[u8]) -> bool {
    Objects::at(octets, 0).all(|object| object.is_ok_and(|object| object.kind.class == Class::POLICY_DATA))
}
