//! Requests of others: PATH, CREATE, RELEASE, QUERY and TRIGGER at a node of the path.

use core::time::Duration;

use signalbox_core::{Key, Time, invariant};
use signalbox_resources::Resources;
use signalbox_resources::config::Opening;

use super::listed::{is_foreign, with_list};
use super::output::NatfwEnd;
use super::record::{Answer, Asked, Asker, Last, Record, Reply};
use super::rules::{PolicyRequest, packets};
use super::{Failure, NatfwClient, seconds, whole};
use crate::engine::{Arrival, OwnedArrival};
use crate::wire::natfw::{
    NatfwFilter, NatfwMessage, NatfwObject, NatfwStatus, NatfwType, NatfwValue, REMOVED,
};

/// The farthest start time of a rule.
const LATEST: Duration = Duration::from_secs(3600);
/// How long a node waits for a RESPONSE: this, less a part for each node before, and at least so long.
const WAIT: Duration = Duration::from_secs(10);
const WAIT_PER_HOP: Duration = Duration::from_millis(250);
const LEAST_WAIT: Duration = Duration::from_secs(2);

/// The contents of a request.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) msg_id: u64,
    pub(super) age: u64,
    pub(super) lifetime: Option<u32>,
    pub(super) filters: Vec<NatfwFilter>,
    pub(super) next: Option<NatfwType>,
    pub(super) time: Option<u64>,
    logging: bool,
    application: bool,
    /// How far the request goes, if not to the other end.
    scope: Option<Scope>,
}

/// How far a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    /// To the border of the local network.
    Local,
    /// To the border of a domain.
    Domain(Vec<u8>),
    /// A kind that this node does not know.
    Unknown,
}

impl Contents {
    pub(super) fn of(message: &NatfwMessage<'_>) -> Self {
        let mut contents = Self::default();
        for value in message.values() {
            match value {
                NatfwValue::MsgId(id) => contents.msg_id = id,
                NatfwValue::Age(age) => contents.age = age,
                NatfwValue::Lifetime(seconds) => contents.lifetime = Some(seconds),
                NatfwValue::Filter(filter) => contents.filters.push(filter),
                NatfwValue::Next(next, _) => contents.next = Some(next),
                NatfwValue::Time(time) => contents.time = Some(time),
                NatfwValue::Logging(_) => contents.logging = true,
                NatfwValue::ApplicationId(_) => contents.application = true,
                NatfwValue::Scope(kind, domain) => {
                    contents.scope = match kind {
                        0 => None,
                        1 => Some(Scope::Local),
                        2 => Some(Scope::Domain(domain.to_vec())),
                        _ => Some(Scope::Unknown),
                    }
                }
                NatfwValue::Token(_)
                | NatfwValue::Cms(_)
                | NatfwValue::Status(_)
                | NatfwValue::Nat(_)
                | NatfwValue::Node(_)
                | NatfwValue::Challenge(_)
                | NatfwValue::Unknown(..) => {}
            }
        }
        contents
    }

    /// Whether a message has a NAT_OBJECT.
    pub(super) fn nat(octets: &[u8]) -> bool {
        let nat =
            |message: NatfwMessage<'_>| message.values().any(|value| value.kind() == NatfwObject::NAT_OBJECT);
        NatfwMessage::parse(octets).is_ok_and(nat)
    }

    /// Whether the request goes to the border of a scope at most.
    pub(super) const fn is_scoped(&self) -> bool {
        self.scope.is_some()
    }
}

impl NatfwClient {
    /// Takes a message of the client.
    pub(super) fn received(&mut self, arrival: &Arrival<'_>, resources: &mut Resources) {
        let mut job = arrival.own();
        if job.refresh {
            return self.refreshed(job);
        }
        if let Some(octets) = self.inward(&job) {
            job.data = octets.as_slice().into();
        }
        let message = match NatfwMessage::parse(job.data.as_slice()) {
            Ok(message) => message,
            Err(fault) => {
                if fault.msg_id.is_none() {
                    self.counters.unreadable += 1;
                    tracing::debug!(session = %job.session, peer = %job.peer, reason = "malformed", "message dropped");
                }
                return self.refuse(&job, fault.status);
            }
        };
        self.counters.foreign_objects += u64::from(is_foreign(&message.objects));
        let plain = !self.config.role.opens() && !job.last;
        match message.kind {
            _ if self.is_unbound(&job) => self.look_up_sender(job),
            NatfwType::RESPONSE => self.response(&job, &message, resources),
            // A node without rules only sends requests on.
            _ if plain => self.out.forward(job.id, None),
            NatfwType::PATH | NatfwType::CREATE | NatfwType::TRIGGER if self.config.role.opens() => {
                self.look_up_sender(job);
            }
            _ => self.request(job, false, resources),
        }
    }

    /// Handles a request, or a message whose side was looked up. `inside`: it came from the protected network.
    pub(super) fn request(&mut self, job: OwnedArrival, inside: bool, resources: &mut Resources) {
        if job.refresh {
            return self.refreshed_from(&job, inside);
        }
        // It was parsed before.
        let Ok(message) = NatfwMessage::parse(job.data.as_slice()) else { return self.out.consume(job.id) };
        let contents = Contents::of(&message);
        if self.end_unbound(&job, &message, &contents, inside) {
            return;
        }
        if message.kind == NatfwType::RESPONSE {
            return self.response(&job, &message, resources);
        }
        if self.is_repeated(&job, &contents) {
            return;
        }
        let result = self.acceptable(&job, &message, &contents, inside).and_then(|()| match message.kind {
            NatfwType::PATH => self.path(&job, &message, &contents, inside, resources),
            NatfwType::CREATE => self.create(&job, &message, &contents, inside, resources),
            NatfwType::RELEASE => self.release_asked(&job, &message, &contents, resources),
            NatfwType::QUERY => self.query_asked(&job, &message, &contents),
            _ if job.last || self.is_border(&contents, inside) => {
                self.trigger(&job, &message, &contents, inside, resources)
            }
            _ => {
                self.go_on(&job, None);
                Ok(())
            }
        });
        if let Err(status) = result {
            self.refuse(&job, status);
        }
    }

    /// A request with the number of the last one of its sender is not processed again: it is answered as before.
    fn is_repeated(&mut self, job: &OwnedArrival, contents: &Contents) -> bool {
        let Some(key) = self.find(job.session, &job.flow) else { return false };
        let Some(record) = invariant!(self.records.get(key), "the index names records that stand") else {
            return false;
        };
        let Some(Last { number, reverse, answer }) = record.last else { return false };
        if (number, reverse) != (contents.msg_id, job.reverse) || !record.is_of_asker(job) {
            return false;
        }
        self.counters.repeated += 1;
        match answer {
            Answer::Done => self.answer_done(key, job, 0),
            Answer::Refused(status) => self.refuse(job, status),
            Answer::Unsent => self.out.consume(job.id),
        }
        true
    }

    /// What every request must have.
    fn acceptable(
        &self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        inside: bool,
    ) -> Result<(), Failure> {
        let opens = matches!(message.kind, NatfwType::PATH | NatfwType::CREATE | NatfwType::TRIGGER);
        if opens && self.config.role.opens() {
            if self.config.require_authentication && job.identity.is_none() {
                return Err(NatfwStatus::AUTHENTICATION_REQUIRED);
            }
            if self.config.require_application_id && !contents.application {
                return Err(NatfwStatus::APPLICATION_ID_REQUIRED);
            }
            if contents.logging {
                return Err(NatfwStatus::LOGGING);
            }
        }
        let ends = contents.scope.is_none() || !job.last || !opens || self.is_border(contents, inside);
        if ends { Ok(()) } else { Err(NatfwStatus::SCOPE) }
    }

    /// Whether this node is the border of a request's scope.
    pub(super) fn is_border(&self, contents: &Contents, inside: bool) -> bool {
        let of_scope = match &contents.scope {
            Some(Scope::Local) => true,
            Some(Scope::Domain(name)) => {
                !name.is_empty() && name.eq_ignore_ascii_case(self.config.domain.as_bytes())
            }
            Some(Scope::Unknown) | None => false,
        };
        of_scope && inside && self.config.border && self.config.role.opens()
    }

    /// The lifetime that this node grants: never longer than that of the messaging layer.
    pub(super) fn lifetime(job: &OwnedArrival, contents: &Contents) -> Duration {
        let most = job.timeout.max(1);
        seconds(contents.lifetime.map_or(most, |wished| wished.clamp(1, most)))
    }

    /// Handles a PATH: what it asks for waits for the CREATE that answers it.
    fn path(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        inside: bool,
        resources: &mut Resources,
    ) -> Result<(), Failure> {
        if job.reverse {
            return Err(NatfwStatus::MALFORMED);
        }
        let wanted = packets(&contents.filters, &job.flow)?;
        let key = self.record_of(job).ok_or(NatfwStatus::RESOURCES)?;
        if self.translates(job, inside) {
            self.reserve(key, job, message, &wanted, resources)?;
        }
        let (now, lifetime, sender) = (self.now, Self::lifetime(job, contents), self.way.sender);
        let Some(record) = invariant!(self.records.get_mut(key), "a PATH has a record") else {
            return Err(NatfwStatus::RESOURCES);
        };
        record.wanted = Some(contents.filters.clone());
        let number = contents.msg_id;
        // Who opened rules stays their owner, unless another node proves who it is.
        let replaces = record.opened.rules().is_empty() || job.identity.is_some() || record.is_of_asker(job);
        match record.asked(false) {
            Some(asked) if !replaces => asked.number = number,
            None if !replaces => {}
            asked => *asked = Some(Asked { asker: Asker::of(job, inside, sender), number }),
        }
        record.until = record.until.max(now + lifetime);
        record.last = Some(Last { number, reverse: job.reverse, answer: Answer::Unsent });
        let rest = self.with_nat_object(key, job, message, None);
        let sent = lowered(message, contents, rest, job.timeout, lifetime);
        self.pass_on(key, job, message, contents, (inside, sent), resources);
        Ok(())
    }

    /// Handles a CREATE.
    fn create(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        inside: bool,
        resources: &mut Resources,
    ) -> Result<(), Failure> {
        if let Some(result) = self.create_back(job, message, contents, resources) {
            return result;
        }
        let wanted = packets(&contents.filters, &job.flow)?;
        packets(&Self::wanted_back(message, contents), &job.flow.reversed())?;
        let found = if job.reverse { self.find(job.session, &job.flow) } else { self.record_of(job) };
        let missing = if job.reverse { NatfwStatus::NO_STATE } else { NatfwStatus::RESOURCES };
        let key = found.ok_or(missing)?;
        let (now, lifetime, sender) = (self.now, Self::lifetime(job, contents), self.way.sender);
        let start = match contents.time.and_then(|stamp| self.at(stamp)) {
            Some(start) if start > now + LATEST => return Err(NatfwStatus::TIME),
            start => start,
        };
        let ends_here = job.last && self.local.has(if job.reverse { job.flow.src() } else { job.flow.dst() });
        let source = self.present(key);
        let Some(record) = invariant!(self.records.get_mut(key), "a CREATE has a record") else {
            return Err(missing);
        };
        if job.reverse {
            let Some(of_path) = &record.wanted else { return Err(NatfwStatus::NO_STATE) };
            if packets(of_path, &job.flow).as_ref() != Ok(&wanted) {
                return Err(NatfwStatus::POLICY);
            }
        }
        if ends_here || !self.config.role.opens() {
            let asker = Asker::of(job, inside, sender);
            *record.asked(job.reverse) = Some(Asked { asker, number: contents.msg_id });
            (record.lifetime, record.rules_until) = (lifetime, now + lifetime);
            record.until = record.until.max(now + lifetime);
            self.created(key, job, resources);
            return Ok(());
        }
        if record.change.is_some() {
            return Err(NatfwStatus::RESOURCES);
        }
        let rules = record.opened.rules();
        let current = record.opened.age() == Some(contents.age)
            && rules.iter().all(|rule| rule.source == source)
            && !rules.is_empty()
            && record.is_of_asker(job)
            && !rules.iter().flat_map(|rule| &rule.passages).any(|one| resources.is_outdated(one));
        if current {
            if let Some(asked) = record.asked(job.reverse) {
                asked.number = contents.msg_id;
            }
            // Rules may be for a time that is over.
            if !self.judge(key, resources) {
                return Err(NatfwStatus::POLICY);
            }
            self.prolong(key, lifetime);
            self.created(key, job, resources);
            return Ok(());
        }
        let of_job = Asker::of(job, inside, sender);
        // Data towards the inside are the affair of a receiver there. Data from the inside are that of their source,
        // whose PATH this node has.
        let along = record.asker(false).cloned();
        let end = if job.reverse { job.flow.dst() } else { job.flow.src() };
        let (opening, asker, claimed) = match along.filter(|along| job.reverse && along.inside && !inside) {
            Some(source) => (Opening::Outward, source, job.flow.src()),
            None if job.reverse && inside => (Opening::Reserve, of_job, end),
            None if inside => (Opening::Outward, of_job, end),
            None => (Opening::Inward, of_job, end),
        };
        let token = self.token(job, message, &wanted, resources)?;
        if token.is_none() && self.config.require_token && opening == Opening::Inward {
            return Err(NatfwStatus::TOKEN_REQUIRED);
        }
        self.install(
            key,
            (job, contents),
            wanted,
            &PolicyRequest { asker: &asker, claimed, token, opening, lifetime },
            start,
            resources,
        )
    }

    /// A CREATE was carried out here.
    pub(super) fn created(&mut self, key: Key, job: &OwnedArrival, resources: &mut Resources) {
        let Ok(message) = NatfwMessage::parse(job.data.as_slice()) else { return self.out.consume(job.id) };
        let contents = Contents::of(&message);
        let Some(record) =
            invariant!(self.records.get_mut(key), "a CREATE that was carried out has a record")
        else {
            return self.out.consume(job.id);
        };
        if record.flow != job.flow {
            return self.opened_back(key, job, &message, &contents);
        }
        record.opened.accept(contents.age);
        record.filters.clone_from(&contents.filters);
        record.next_filters = Self::wanted_back(&message, &contents);
        record.last = Some(Last { number: contents.msg_id, reverse: job.reverse, answer: Answer::Unsent });
        let lifetime = record.lifetime;
        let inside = record.asker(job.reverse).is_some_and(|asker| asker.inside);
        let rest = self.without_own_tokens(&message, resources);
        let rest = self.with_nat_object(key, job, &message, rest);
        let list = self.list_with_own(key, job, &message, false);
        let rest = with_list(&message, rest, list.as_deref());
        let sent = lowered(&message, &contents, rest, job.timeout, lifetime);
        self.pass_on(key, job, &message, &contents, (inside, sent), resources);
    }

    /// Sends a request on, as it stands or as `sent` has it, or answers it where it ends. `inside`: it came from the protected
    /// network.
    fn pass_on(
        &mut self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        (inside, sent): (bool, Option<Vec<u8>>),
        resources: &mut Resources,
    ) {
        if job.last || self.is_border(contents, inside) {
            self.at_the_end(key, job, message, contents, resources);
        } else {
            if contents.next == Some(NatfwType::RESPONSE) {
                self.expect(key, job, message.kind, contents.msg_id);
            }
            self.go_on(job, sent);
        }
        self.arm(key);
    }

    /// A RESPONSE to a request must pass.
    fn expect(&mut self, key: Key, job: &OwnedArrival, kind: NatfwType, msg_id: u64) {
        let due = self.now + WAIT.saturating_sub(WAIT_PER_HOP * u32::from(job.hops)).max(LEAST_WAIT);
        if let Some(record) = self.records.get_mut(key) {
            record.reply = Some(Reply { msg_id, kind, reverse: job.reverse, due });
            record.until = record.until.max(due);
        }
    }

    /// Whether all records of a session have the sender of a message as the one who asked in its direction.
    fn check_owner(&mut self, keys: &[Key], job: &OwnedArrival) -> Result<(), Failure> {
        let owned = |key: &Key| self.records.get(*key).is_some_and(|record: &Record| record.is_of_owner(job));
        if keys.iter().all(owned) {
            return Ok(());
        }
        self.counters.strangers += 1;
        tracing::debug!(session = %job.session, peer = %job.peer, reason = "it did not ask for the rules", "request refused");
        Err(NatfwStatus::NOT_OWNER)
    }

    /// Handles a RELEASE: all rules of the session go. Rules for packets against its flow that another node asked for stay: that
    /// node releases them.
    fn release_asked(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        resources: &mut Resources,
    ) -> Result<(), Failure> {
        let opposite = job.flow.reversed();
        let mut keys = self.of_session(job.session);
        keys.retain(|key| {
            let of_other = |record: &Record| !record.turn.is_back() && !record.is_of_owner(job);
            !self.records.get(*key).is_some_and(|record| record.flow == opposite && of_other(record))
        });
        self.check_owner(&keys, job)?;
        // A request that waits for a route ends, too. Without a record it is not known whose the session is: then only those that came
        // as the RELEASE did.
        let any = !keys.is_empty();
        self.end_waiting(job.session, |one| any || (one.reverse, one.peer) == (job.reverse, job.peer));
        let Some(last) = keys.last().copied() else {
            if job.last {
                return Err(NatfwStatus::NO_STATE);
            }
            self.go_on(job, None);
            return Ok(());
        };
        let asker = |key: &Key| self.records.get(*key).and_then(|record| record.asker(false));
        let inside = keys.iter().filter_map(asker).any(|asker| asker.inside);
        let ends = job.last || self.is_border(contents, inside);
        self.counters.released += 1;
        for key in &keys {
            self.release_triggered(*key);
            self.accepted_ends(*key, NatfwEnd::Closed);
            self.close_rules(*key, resources);
        }
        let wants_answer = contents.next == Some(NatfwType::RESPONSE);
        if ends {
            if wants_answer {
                self.answer_done(last, job, REMOVED);
            } else {
                self.out.consume(job.id);
            }
            keys.iter().for_each(|key| self.released(*key, resources));
            return Ok(());
        }
        self.go_on(job, None);
        for key in keys {
            // A record stays as long as the RESPONSE is missing.
            if wants_answer && self.find(job.session, &job.flow) == Some(key) {
                let now = self.now;
                if let Some(record) = self.records.get_mut(key) {
                    (record.wanted, record.until) = (None, now);
                }
                self.expect(key, job, message.kind, contents.msg_id);
                self.arm(key);
            } else {
                self.end(key, None, resources);
            }
        }
        Ok(())
    }

    /// Handles a QUERY. The RESPONSE collects what the nodes have on its way back.
    fn query_asked(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
    ) -> Result<(), Failure> {
        let found = self.find(job.session, &job.flow);
        let keys: Vec<Key> = found.into_iter().collect();
        self.check_owner(&keys, job)?;
        match found {
            Some(key) if job.last => self.answer_done(key, job, 0),
            Some(key) => {
                self.expect(key, job, message.kind, contents.msg_id);
                self.arm(key);
                self.go_on(job, None);
            }
            None if job.last => return Err(NatfwStatus::NO_STATE),
            None => self.go_on(job, None),
        }
        Ok(())
    }
}

/// A request with the lifetime that a node granted, if that is less than what the request says, and with the objects that
/// are left of it, if some were taken out.
fn lowered(
    message: &NatfwMessage<'_>,
    contents: &Contents,
    rest: Option<Vec<NatfwValue<'_>>>,
    timeout: u32,
    granted: Duration,
) -> Option<Vec<u8>> {
    let granted = whole(granted);
    let mut octets = Vec::new();
    if granted >= contents.lifetime.unwrap_or(timeout) {
        NatfwMessage::compose(message.kind, &rest?, &mut octets).ok()?;
        return Some(octets);
    }
    let mut values = rest.unwrap_or_else(|| message.values().collect());
    values.retain(|value| value.kind() != NatfwObject::LIFETIME);
    let behind = values.iter().position(|value| value.kind() == NatfwObject::AGE).map_or(0, |at| at + 1);
    values.insert(behind, NatfwValue::Lifetime(granted));
    NatfwMessage::compose(message.kind, &values, &mut octets).ok()?;
    Some(octets)
}

/// When the rules of a record end, seconds from now.
pub(super) fn left(record: &Record, now: Time) -> u32 {
    whole(record.rules_until.since(now))
}
