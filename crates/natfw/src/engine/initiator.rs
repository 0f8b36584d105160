//! The initiator: requests of this node's users, repetitions and refreshes (RFC 5973 §3.4, §3.5, §3.7).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::mri::{Direction, LooseEnd, PathCoupled};
use signalbox_core::node::{NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, SessionId, invariant};
use signalbox_resources::{End, Resources};
use signalbox_wire::hops::Path;

use super::Natfw;
use super::check::{has_ports, seconds};
use super::command::{Command, ExposeRequest, OpenRequest, Options, Publish};
use super::event::{Failure, Granted, NatfwEvent, Refusal};
use super::external::Receiver;
use super::plan::Plan;
use super::session::{Answer, Kind, Local, Objects, Origin, Proxied, Request, Session, State};
use super::table::Opening;
use crate::wire::{
    DataTerminal, FlowInfo, MAX_FILTERS, Message, Ports, RuleAction, TerminalPorts, Wish, session_auth,
};

/// Requests that wait for a route at one time.
const MOST_LOOKUPS: usize = 256;

/// A request that waits for the route that gives its address.
#[derive(Debug)]
pub(super) struct Lookup {
    lookup: u64,
    id: u64,
    command: Command,
}

impl Natfw {
    pub(super) fn on_command(&mut self, id: u64, command: Command, resources: &mut Resources) {
        match command {
            Command::Close => return self.close_request(id, resources),
            Command::Delete(session) => return self.delete(session, resources),
            Command::Open(_) | Command::Expose(_) => {}
        }
        let waits = self.lookups.iter().any(|lookup| lookup.id == id);
        if waits || self.commands.contains_key(&id) {
            return self.out.event(id, NatfwEvent::Refused(Refusal::IdInUse));
        }
        let query = match &command {
            Command::Open(open) if open.src.is_none() => RouteQuery {
                protocol: open.protocol,
                src_port: open.src_port,
                dst_port: open.dst_port,
                ..RouteQuery::to(open.dst)
            },
            Command::Expose(expose) if expose.address.is_none() => RouteQuery::to(expose.towards),
            Command::Open(_) | Command::Expose(_) | Command::Close | Command::Delete(_) => {
                return self.start(id, command, None, resources);
            }
        };
        if self.lookups.len() >= MOST_LOOKUPS {
            return self.out.event(id, NatfwEvent::Refused(Refusal::TooMany));
        }
        self.last_lookup += 1;
        self.lookups.push(Lookup { lookup: self.last_lookup, id, command });
        self.out.look_up(self.last_lookup, query);
    }

    pub(super) fn on_route(
        &mut self,
        lookup: u64,
        result: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let Some(at) = self.lookups.iter().position(|waiting| waiting.lookup == lookup) else { return };
        let Lookup { id, command, .. } = self.lookups.swap_remove(at);
        match result {
            Ok(route) => self.start(id, command, Some(route.src), resources),
            Err(_) => self.out.event(id, NatfwEvent::Refused(Refusal::NoRoute)),
        }
    }

    fn start(&mut self, id: u64, command: Command, own: Option<IpAddr>, resources: &mut Resources) {
        let sid = self.rng.session_id();
        let wanted = match &command {
            Command::Open(open) => {
                create(open, own, sid).map(|request| (Kind::Create, request, &open.options, false))
            }
            Command::Expose(expose) => external(expose, own, sid)
                .map(|request| (Kind::External, request, &expose.options, expose.bindings)),
            Command::Close | Command::Delete(_) => return,
        };
        let lifetime = self.config.lifetime();
        let checked = wanted.and_then(|(kind, request, options, bindings)| {
            let lifetime = options.lifetime.unwrap_or(lifetime).as_secs();
            let lifetime = u32::try_from(lifetime).ok().filter(|lifetime| *lifetime > 0);
            let lifetime = lifetime.ok_or(Refusal::Lifetime)?;
            let token = match options.token.as_deref() {
                Some([]) => return Err(Refusal::Token),
                Some(token) => session_auth(token).ok_or(Refusal::Token)?.into(),
                None => Box::default(),
            };
            Ok((kind, request, Local { bindings, token, ..Local::new(Origin::Command(id), lifetime) }))
        });
        let (kind, request, local) = match checked {
            Ok(checked) => checked,
            Err(refusal) => return self.out.event(id, NatfwEvent::Refused(refusal)),
        };
        let mri = request.mri();
        let opening = Opening {
            id: sid,
            kind,
            plan: Plan::plain(&mri, request.terminal(), false),
            request,
            // Users of this host share no table with strangers.
            source: IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
            msn: self.rng.u32(),
            lifetime: local.lifetime,
            local: Some(Box::new(local)),
        };
        let Some(key) = self.open(opening, resources) else {
            return self.out.event(id, NatfwEvent::Refused(Refusal::TooMany));
        };
        self.commands.insert(id, key);
        self.expect_create(key);
        self.emit(key, NatfwEvent::Started { session: sid, mri });
        self.first_request(key);
        self.rearm(key);
    }

    /// Sends the first request of a session that begins here.
    pub(super) fn first_request(&mut self, key: Key) {
        let (first, now) = (self.config.retry, self.now);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a request has a session") else { return };
        let Some(local) = invariant!(session.local.as_mut(), "a request begins here") else { return };
        local.retry = Some((now + first, first * 2));
        let lifetime = local.lifetime;
        session.accepted = lifetime;
        self.send_on(key, lifetime, None);
    }

    /// Sends the request of a session again, with the next number: to refresh it, because it was not answered, or because
    /// the route changed (§3.5, §3.7.3, §3.9).
    pub(super) fn request_again(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a repetition has a session") else {
            return;
        };
        session.msn = session.msn.wrapping_add(1);
        if let Some(local) = invariant!(session.local.as_mut(), "a repetition begins here") {
            local.refresh = None;
        }
        if session.plan.forwards { self.first_request(key) } else { self.send_for_host(key) }
    }

    /// The repetitions and refreshes of a session that are due.
    pub(super) fn step_local(&mut self, key: Key) {
        let now = self.now;
        let Some(session) = invariant!(self.sessions.get_mut(key), "what is due has a session") else {
            return;
        };
        let Some(local) = &mut session.local else { return };
        if let Some((at, wait)) = local.retry
            && at <= now
        {
            local.retry = Some((now + wait, wait * 2));
            let lifetime = local.lifetime;
            session.msn = session.msn.wrapping_add(1);
            self.counters.retransmissions += 1;
            return self.send_on(key, lifetime, None);
        }
        if local.refresh.is_some_and(|at| at <= now) {
            self.request_again(key);
        }
    }

    /// The time to the next refresh of a session with this lifetime (§3.4): a shorter lifetime than requested makes refreshes more
    /// frequent, by the same relation.
    pub(super) fn refresh_period(&mut self, lifetime: Duration) -> Duration {
        let period = self.config.refresh.min(lifetime * 4 / 21);
        self.rng.jitter(period, 0.5, 1.5)
    }

    /// A session that begins here was granted.
    pub(super) fn on_own_success(&mut self, key: Key, message: &Message<'_>, granted: u32) {
        let period = self.refresh_period(Duration::from_secs(granted.into()));
        let Some(session) = invariant!(self.sessions.get_mut(key), "a success has a session") else { return };
        let lifetime = Duration::from_secs(granted.into());
        session.state = State::Established;
        session.expires = self.now + lifetime;
        let proxy = matches!(session.origin(), Origin::Proxy(_));
        let id = session.id;
        let Some(local) = invariant!(session.local.as_mut(), "a success of this node begins here") else {
            return;
        };
        local.retry = None;
        if proxy {
            // The edge has a rule of its own, and no previous peer to answer.
            if session.plan.installs {
                let msn = session.msn;
                self.succeed(key, Answer { msn, lifetime: granted, ..Answer::default() });
            }
            return;
        }
        local.refresh = Some(self.now + period);
        let external = message.external.map(|external| (external.address, external.port));
        let bindings = message.bindings.map(|bindings| bindings.iter().collect()).unwrap_or_default();
        let Path { hops, gaps, far_end } = Path::of(message.hops.unwrap_or_default(), true);
        let far_end = match session.kind {
            // Without a proxy, the node that does not find the end of the flow refuses (RFC 5973 §3.7.1).
            Kind::Create if !session.request.proxy => Some(true),
            Kind::Create => far_end,
            Kind::External => None,
        };
        let granted = Granted { session: id, lifetime, external, bindings, hops, gaps, far_end };
        if let Some(Proxied::Waits(waits)) = &mut local.proxied {
            let until = waits.as_ref().map_or(self.now + wait_for_create(&self.config), |(_, until)| *until);
            *waits = Some((granted, until));
        } else if local.granted.as_ref() != Some(&granted) {
            local.granted = Some(granted.clone());
            self.emit(key, NatfwEvent::Granted(granted));
        }
        self.keep_route(key, seconds(lifetime));
    }

    /// The edge is to send a CREATE for an EXTERNAL in proxy mode: its success is told when the CREATE has arrived here, so that
    /// all nodes between the edge and this one have received it.
    fn expect_create(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a new session exists") else { return };
        let allows = session.request.efi.action == RuleAction::ALLOW;
        let Some(nonce) = session.request.nonce().filter(|_| session.kind == Kind::External && allows) else {
            return;
        };
        if let Some(local) = invariant!(session.local.as_mut(), "a new session begins here") {
            local.proxied = Some(Proxied::Waits(None));
            self.proxied.insert(nonce, key);
        }
    }

    /// A CREATE with a nonce ends at this node: an edge sent it for the EXTERNAL with the same nonce, and it ends with that one
    /// (§3.7.6.1). A CREATE without a nonce is that of the sender of the data.
    pub(super) fn create_arrived(&mut self, create: Key, nonce: u32, mri: &Mri) {
        let Some(key) = self.proxied.get(&nonce).copied() else { return };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a nonce has a session") else { return };
        let receiver =
            session.request.terminal().and_then(|terminal| Receiver::of(&session.request.mri(), &terminal));
        if receiver.is_none_or(|receiver| receiver.address != mri.dst()) {
            return;
        }
        let Some(local) = invariant!(session.local.as_mut(), "a nonce is of a session of this node") else {
            return;
        };
        let Some(Proxied::Waits(granted)) = local.proxied.replace(Proxied::Through(create)) else { return };
        // The CREATE may arrive before the RESPONSE (§3.7.6.1).
        if let Some((granted, _)) = granted {
            local.granted = Some(granted.clone());
            self.emit(key, NatfwEvent::Granted(granted));
        }
        self.rearm(key);
    }

    /// Ends a request whose edge has answered, but whose CREATE does not arrive.
    pub(super) fn give_up_create(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "who gives up has a session") else {
            return;
        };
        session.msn = session.msn.wrapping_add(1);
        self.send_on(key, 0, None);
        self.emit(key, NatfwEvent::Failed(Failure::NoCreate));
        self.close(key, resources);
    }

    /// A session that begins here had no RESPONSE in its lifetime.
    pub(super) fn give_up(&mut self, key: Key, resources: &mut Resources) {
        self.counters.gave_up += 1;
        match self.sessions.get(key).map(Session::origin) {
            Some(Origin::Proxy(primary)) => self.secondary_failed(primary, resources),
            Some(Origin::Host(id)) => self.host_failed(id, Failure::NoResponse, None),
            _ => self.emit(key, NatfwEvent::Failed(Failure::NoResponse)),
        }
        self.close(key, resources);
    }

    fn close_request(&mut self, id: u64, resources: &mut Resources) {
        if let Some(at) = self.lookups.iter().position(|waiting| waiting.id == id) {
            self.lookups.swap_remove(at);
            return self.out.event(id, NatfwEvent::Closed);
        }
        let Some(key) = self.commands.get(&id).copied() else { return };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a command has a session") else { return };
        session.msn = session.msn.wrapping_add(1);
        self.send_on(key, 0, None);
        self.emit(key, NatfwEvent::Closed);
        resources.because(End::User);
        self.close(key, resources);
    }
}

/// How long an edge that has answered may take to get its CREATE through: it repeats the CREATE after `retry`, and after twice and four
/// times as long.
fn wait_for_create(config: &super::Config) -> Duration {
    config.retry * 8
}

/// The nonce of a session: the first 32 bits of its identifier (§3.7.6.1; NATFW_NONCE has no room for 128).
pub(super) const fn nonce(session: SessionId) -> u32 {
    let [a, b, c, d, ..] = session.0;
    u32::from_be_bytes([a, b, c, d])
}

const fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast()),
    }
}

fn options(
    options: &Options,
    ports: bool,
    sid: SessionId,
    action: RuleAction,
    mri: Mri,
    terminal: Option<DataTerminal>,
) -> Result<Request, Refusal> {
    if options.second_port && !ports {
        return Err(Refusal::Ports);
    }
    if options.icmp_types.len() > 255 {
        return Err(Refusal::IcmpTypes);
    }
    let efi = FlowInfo { action, sub_ports: options.second_port.into() };
    let objects = Objects {
        terminal,
        icmp_types: options.icmp_types.as_slice().into(),
        nonce: options.proxy.then(|| nonce(sid)),
        ..Objects::default()
    };
    Ok(Request { proxy: options.proxy, extend: options.extend, ..Request::new(&mri, efi, objects) })
}

/// The CREATE for a flow: from the sender to the receiver, downstream (§4.3.1).
fn create(open: &OpenRequest, own: Option<IpAddr>, sid: SessionId) -> Result<Request, Refusal> {
    let src = open.src.or(own).ok_or(Refusal::NoRoute)?;
    if src.is_ipv4() != open.dst.is_ipv4() || !is_host(src) || !is_host(open.dst) {
        return Err(Refusal::Address);
    }
    let ported = open.protocol.is_some_and(has_ports);
    if (open.src_port.is_some() || open.dst_port.is_some()) && !ported {
        return Err(Refusal::Ports);
    }
    let mri = Mri::PathCoupled(PathCoupled {
        protocol: open.protocol,
        src_port: open.src_port,
        dst_port: open.dst_port,
        ..PathCoupled::between(src, open.dst)
    });
    options(&open.options, open.dst_port.is_some(), sid, RuleAction::ALLOW, mri, None)
}

/// The EXTERNAL for a receiver (§3.7.2): loose-end towards the edge, or against the path of the data.
fn external(expose: &ExposeRequest, own: Option<IpAddr>, sid: SessionId) -> Result<Request, Refusal> {
    let receiver = expose.address.or(own).ok_or(Refusal::NoRoute)?;
    let (towards, from) = (expose.towards, expose.from);
    let same = receiver.is_ipv4() == towards.is_ipv4()
        && from.is_none_or(|from| from.addr.is_ipv4() == receiver.is_ipv4());
    if !same || !is_host(receiver) || !is_host(towards) {
        return Err(Refusal::Address);
    }
    if !has_ports(expose.protocol) {
        return Err(Refusal::Ports);
    }
    let given = |port: u16| (port != 0).then_some(port);
    let ports = Ports { receiver: given(expose.port), sender: expose.from_port };
    // §3.7.2: no address if the sender is not known. The object has no IPv6 form; a path-coupled MRI has the sender then.
    if !expose.path_coupled && from.is_some_and(|from| from.addr.is_ipv6() && from.len > 0) {
        return Err(Refusal::Senders);
    }
    let sender = match from {
        Some(Prefix { addr: IpAddr::V4(v4), len }) => (v4, len),
        _ => (core::net::Ipv4Addr::UNSPECIFIED, 0),
    };
    let terminal =
        DataTerminal { transport: Some((expose.protocol, Some(TerminalPorts::Ports(ports)))), sender };
    let mri = if expose.path_coupled {
        let senders = from.unwrap_or(Prefix::all_like(receiver));
        Mri::PathCoupled(PathCoupled {
            src_prefix: senders.len,
            protocol: Some(expose.protocol),
            src_port: ports.sender,
            dst_port: ports.receiver,
            direction: Direction::Upstream,
            ..PathCoupled::between(senders.addr, receiver)
        })
    } else {
        Mri::LooseEnd(LooseEnd { src: receiver, dst: towards, direction: Direction::Downstream })
    };
    let action = if expose.block { RuleAction::DENY } else { RuleAction::ALLOW };
    let single = from.is_some_and(|from| from == Prefix::host(from.addr) && is_host(from.addr));
    if expose.options.proxy && !expose.block && !single {
        return Err(Refusal::ProxySender);
    }
    let request = options(&expose.options, ports.receiver.is_some(), sid, action, mri, Some(terminal))?;
    match &expose.publish {
        Some(publish) => published(publish, expose, receiver, request),
        None => Ok(request),
    }
}

/// The EXTERNAL that is open at once.
fn published(
    publish: &Publish,
    expose: &ExposeRequest,
    receiver: IpAddr,
    request: Request,
) -> Result<Request, Refusal> {
    let filters = &publish.filters;
    let fits = |filter: &crate::wire::Filter| filter.address.is_ipv4() == receiver.is_ipv4();
    let named = expose.from.is_some() || expose.from_port.is_some();
    let wrong = expose.block
        || expose.options.proxy
        || filters.len() > MAX_FILTERS
        || !filters.iter().all(fits)
        || !filters.is_empty() && (named || !expose.options.icmp_types.is_empty());
    if wrong {
        return Err(Refusal::Publication);
    }
    let wish = Wish {
        opens: true,
        exactly: publish.exactly,
        address: publish.address,
        port: publish.port.filter(|port| *port != 0),
        key: [0; 8],
        filters: filters.clone(),
    };
    let mut objects = request.objects.unwrap_or_default();
    objects.publication = wish.octets().into();
    Ok(Request { objects: Some(objects), ..request })
}
