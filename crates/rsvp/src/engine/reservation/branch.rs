//! The record of a reservation at one outgoing interface: the requests of its next hops (RSBs of RFC 2209) and the
//! grant of traffic control (TCSB).

use std::sync::Arc;

use signalbox_core::stamp::{Since, Stamp};
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Key, Time};
use signalbox_resources::GrantId;
use signalbox_resources::intserv::RSpec;

use crate::engine::carried::Carried;
use crate::engine::interfaces::Iface;
use crate::engine::merging;
use crate::engine::session::{NONE, is_application};
use crate::wire::FlowSpec;

/// A reservation of a session (with FF of one sender) at one interface. It has at least one request.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) link: Link,
    pub(crate) session: u32,
    /// With FF the sender that it is for, else [`NONE`].
    pub(crate) sender: u32,
    /// Next reservation in the list of the sender or the session.
    pub(crate) next: u32,
    /// Outgoing interface of the data; [`Iface::LOCAL`]: they go to an application of this node.
    pub(crate) oif: Iface,
    /// Admission control refused the last change. It is asked again with the next request.
    pub(crate) retry_install: bool,
    grant: [u32; 2],
    pub(crate) first: Request,
    pub(crate) extra: Option<Box<BranchExtra>>,
}

/// Fields that few reservations need.
#[derive(Debug, Default)]
pub(crate) struct BranchExtra {
    /// Requests of the other next hops.
    pub(crate) more: Vec<Request>,
    /// Rate and slack that traffic control has forwarded instead of those requested (Fwd_Flowspec of RFC 2205
    /// §3.11.2).
    pub(crate) forward: Option<RSpec>,
    /// The rate that is left after a reduction, octets a second (RFC 4495).
    pub(crate) reduced: Option<u64>,
}

/// The request of one next hop.
#[derive(Debug)]
pub(crate) struct Request {
    /// The next hop, shared, or an application of this node ([`is_application`]).
    pub(crate) hop: u32,
    /// Time when the request ends without a refresh. With SE the times in the list of senders count instead.
    pub(crate) expires: Stamp,
    /// Requests with equal flowspecs share it.
    pub(crate) flowspec: Arc<FlowSpec>,
    pub(crate) extra: Option<Box<RequestExtra>>,
}

/// Fields that few requests need.
#[derive(Debug, Default)]
pub(crate) struct RequestExtra {
    /// With SE the senders, in rising order of their keys, and the time when each ends.
    pub(crate) senders: Vec<(Key, Stamp)>,
    /// With WF the senders of the SCOPE, packed and ascending, each once; `None`: there was no SCOPE.
    pub(crate) scope: Option<Vec<u32>>,
    /// POLICY_DATA and unknown objects of its Resvs.
    pub(crate) carried: Carried,
    /// The application that made the request.
    pub(crate) application: Option<u64>,
    /// Time when an application made it. The time of all others is that of the grant.
    pub(crate) since: Since,
}

impl Timed for Branch {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Request {
    pub(crate) fn senders(&self) -> &[(Key, Stamp)] {
        self.extra.as_ref().map_or(&[], |extra| &extra.senders)
    }

    /// Whether an SE request names this sender.
    pub(crate) fn names(&self, sender: Key) -> bool {
        self.senders().binary_search_by_key(&sender, |(key, _)| *key).is_ok()
    }

    pub(crate) fn scope(&self) -> Option<&[u32]> {
        self.extra.as_ref()?.scope.as_deref()
    }

    pub(crate) fn carried(&self) -> &[u8] {
        self.extra.as_ref().map_or(&[], |extra| extra.carried.octets())
    }

    pub(crate) fn extra(&mut self) -> &mut RequestExtra {
        self.extra.get_or_insert_default()
    }

    /// Time when an application of this node made the request.
    pub(crate) fn since(&self) -> Option<Since> {
        self.extra.as_ref().filter(|extra| extra.application.is_some()).map(|extra| extra.since)
    }

    /// The first time when the request or a part of it ends.
    pub(crate) fn deadline(&self) -> Option<Stamp> {
        if is_application(self.hop) {
            return None;
        }
        let Some(extra) = &self.extra else { return Some(self.expires) };
        let ends = extra.senders.iter().map(|(_, at)| *at).reduce(Stamp::min).unwrap_or(self.expires);
        Some(extra.carried.deadline().map_or(ends, |at| at.min(ends)))
    }

    /// Whether the whole request expired. The senders of an SE request expire one by one.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        !is_application(self.hop) && self.senders().is_empty() && self.expires.is_due(now)
    }
}

impl Branch {
    pub(crate) fn new(session: u32, sender: u32, oif: Iface, first: Request) -> Self {
        Self {
            link: Link::default(),
            session,
            sender,
            next: NONE,
            oif,
            retry_install: false,
            grant: [0; 2],
            first,
            extra: None,
        }
    }

    pub(crate) fn grant(&self) -> Option<GrantId> {
        let grant = u64::from(self.grant[0]) << 32 | u64::from(self.grant[1]);
        (grant != 0).then_some(GrantId(grant))
    }

    /// Whether the current requests are granted.
    pub(crate) fn is_installed(&self) -> bool {
        self.grant().is_some() && !self.retry_install || !self.oif.is_real()
    }

    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub(crate) fn set_grant(&mut self, grant: Option<GrantId>) {
        let grant = grant.map_or(0, |grant| grant.0);
        self.grant = [(grant >> 32) as u32, grant as u32];
    }

    /// The requests of all next hops, at least one.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        core::iter::once(&self.first).chain(self.extra.iter().flat_map(|extra| &extra.more))
    }

    pub(crate) fn requests_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        core::iter::once(&mut self.first).chain(self.extra.iter_mut().flat_map(|extra| &mut extra.more))
    }

    /// Whether any request carries POLICY_DATA or unknown objects.
    pub(crate) fn carries(&self) -> bool {
        if self.extra.is_none() {
            return !self.first.carried().is_empty();
        }
        self.requests().any(|request| !request.carried().is_empty())
    }

    /// Drops POLICY_DATA that expired; whether there was any.
    pub(crate) fn expire_policy(&mut self, now: Time) -> bool {
        let requests = self.requests_mut().filter(|one| !is_application(one.hop));
        requests
            .filter_map(|one| one.extra.as_mut())
            .fold(false, |any, extra| extra.carried.expire(now) | any)
    }

    /// The rate that is left after a reduction, octets a second (RFC 4495).
    pub(crate) fn reduced(&self) -> Option<u64> {
        self.extra.as_ref().and_then(|extra| extra.reduced)
    }

    /// Number of next hops.
    pub(crate) fn len(&self) -> usize {
        1 + self.extra.as_ref().map_or(0, |extra| extra.more.len())
    }

    pub(crate) fn request(&self, hop: u32) -> Option<&Request> {
        if self.first.hop == hop { Some(&self.first) } else { self.requests().find(|one| one.hop == hop) }
    }

    pub(crate) fn request_mut(&mut self, hop: u32) -> Option<&mut Request> {
        if self.first.hop == hop {
            return Some(&mut self.first);
        }
        self.requests_mut().find(|one| one.hop == hop)
    }

    /// Adds a next hop.
    pub(crate) fn add(&mut self, request: Request) {
        self.extra.get_or_insert_default().more.push(request);
    }

    /// Removes the request of a next hop, unless it is the only one.
    pub(crate) fn remove(&mut self, hop: u32) -> Option<Request> {
        let more = &mut self.extra.as_mut()?.more;
        if self.first.hop == hop {
            let last = more.pop()?;
            return Some(core::mem::replace(&mut self.first, last));
        }
        let at = more.iter().position(|one| one.hop == hop)?;
        Some(more.swap_remove(at))
    }

    /// Whether any SE request names this sender.
    pub(crate) fn names(&self, sender: Key) -> bool {
        self.requests().any(|request| request.names(sender))
    }

    /// Whether the SCOPE of any WF request has this source, packed.
    pub(crate) fn is_for(&self, src: u32) -> bool {
        self.requests().any(|request| request.scope().is_none_or(|scope| scope.binary_search(&src).is_ok()))
    }

    /// The merged flowspec of all requests, which is installed (TC_Flowspec of RFC 2205 §3.11.2).
    pub(crate) fn flowspec(&self) -> FlowSpec {
        if self.extra.is_none() {
            return *self.first.flowspec;
        }
        let mut all = self.requests().map(|request| *request.flowspec);
        let first = all.next().unwrap_or(*self.first.flowspec);
        all.fold(first, |so_far, next| merging::merged(&so_far, &next))
    }

    /// The flowspec that is forwarded upstream: the merged one with the rate and slack of traffic control.
    pub(crate) fn forwarded(&self) -> FlowSpec {
        let merged = self.flowspec();
        let Some(extra) = &self.extra else { return merged };
        let forward = extra.forward.filter(|_| merged.rspec.is_some());
        FlowSpec { rspec: forward.or(merged.rspec), ..merged }
    }

    /// Stores the rate and slack that traffic control returned.
    pub(crate) fn set_forward(&mut self, forward: Option<RSpec>) {
        if forward.is_some() || self.extra.is_some() {
            let extra = self.extra.get_or_insert_default();
            extra.forward = forward;
            // A new grant covers everything that is requested: the reduction is over.
            extra.reduced = None;
        }
        let idle =
            |extra: &BranchExtra| extra.more.is_empty() && extra.forward.is_none() && extra.reduced.is_none();
        if self.extra.as_deref().is_some_and(idle) {
            self.extra = None;
        }
    }

    /// Reads a field of each part of the record that a refresh needs.
    pub(crate) fn is_read(&self, now: Time) -> bool {
        self.link.is_armed() ^ self.first.expires.is_due(now)
    }

    /// The first time when a request or a part of one ends.
    pub(crate) fn deadline(&self) -> Option<Stamp> {
        if self.extra.is_none() {
            return self.first.deadline();
        }
        self.requests().filter_map(Request::deadline).reduce(Stamp::min)
    }
}
