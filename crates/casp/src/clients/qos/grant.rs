//! The reservations of a session. All of them share one reservation in the kernel: the larger one counts, and the flow gets
//! what was committed.

use signalbox_core::{IfIndex, Key, invariant};
use signalbox_resources::request::{Priority, Session as Share};
use signalbox_resources::{Cause, End, GrantRequest, Owner, Requester, Resources};

use super::amount::{Amount, Range};
use super::output::Told;
use super::period::Period;
use super::record::{Grants, Level};
use super::{PROTOCOL, QosClient};
use crate::clients::shared::Hop;
use crate::wire::FlowId;
use crate::wire::qos::{QosErrorCode, QosType};

/// Steps of the search for the largest amount that fits.
const STEPS: u32 = 12;

/// What a session asks admission control for, one request for each direction of its data.
type Requests = [Option<GrantRequest>; 2];

/// Who asks; `None`: a user of this node.
pub(super) type Asker = Option<Hop>;

impl QosClient {
    /// Reserves or commits as much of `range` as there is, under a new AGE. What the session has stays until the request
    /// with number `sequence` is answered.
    pub(super) fn admit(
        &mut self,
        key: Key,
        (kind, age, sequence): (QosType, u64, u32),
        range: &Range,
        resources: &mut Resources,
    ) -> Result<Amount, QosErrorCode> {
        let requests = self.grant_requests(key, kind).ok_or(QosErrorCode::NO_RESERVATION)?;
        let fitted = self.fit(&requests, range, resources);
        let (amount, grants) = fitted.inspect_err(|_| self.counters.refused += 1)?;
        self.counters.granted += 1;
        let Some(record) = invariant!(self.records.get_mut(key), "what is granted has a record") else {
            return Err(QosErrorCode::NO_RESERVATION);
        };
        let until = self.now + record.lifetime;
        let part = record.part(kind);
        let older = part.before.take();
        part.before = Some(Box::new((sequence, part.now.replace(Level { age, amount, grants, until }))));
        resources.because(End::Replaced);
        self.drop_level(older.and_then(|before| before.1), resources);
        Ok(amount)
    }

    /// The requests to admission control without their amount, one for each direction. `None` inside: the data end here, or
    /// are not reserved.
    fn grant_requests(&self, key: Key, kind: QosType) -> Option<Requests> {
        let record = self.records.get(key)?;
        let requester = match &record.asker {
            Some(hop) => hop.requester(record.flow.src()),
            None => Requester::local(record.flow.src(), record.own.as_ref().map(|own| own.id)),
        };
        let owner = Owner { protocol: PROTOCOL, key: key.to_u64() };
        let (traffic, _, _) = Amount::Rate(1.0).asked().ok()?;
        // Admission control has 16 bits for each. What is above counts as the highest.
        let level = u16::try_from(record.priority.unwrap_or(0)).unwrap_or(u16::MAX);
        let request = |flow: Option<FlowId>, place: IfIndex, share: Option<Share>, mark_dscp: Option<u8>| {
            let filter = flow.filter(|_| place != IfIndex::NONE)?.filter();
            Some(GrantRequest {
                session: share,
                session_id: record.session,
                lifetime: Some(record.lifetime),
                held: kind != QosType::COMMIT || record.is_early(),
                during: record.period.as_deref().map(Period::during),
                priority: Priority { setup: level, defending: level },
                mark_dscp,
                ..GrantRequest::new(owner, requester.clone(), place, filter, traffic)
            })
        };
        let ([there, back], [place, place_back]) = (record.data(), record.places);
        // Both directions may leave by one interface: they do not share what they need there.
        let share = Share::of(key);
        let [mark, mark_back] = record.marks;
        let back = request(back, place_back, share.map(Share::back), mark_back);
        Some([request(there, place, share, mark), back])
    }

    /// The request for an amount.
    fn of_amount(request: &GrantRequest, amount: &Amount) -> Result<GrantRequest, QosErrorCode> {
        let (traffic, service, guaranteed) = amount.asked().map_err(|_| QosErrorCode::MALFORMED)?;
        Ok(GrantRequest { traffic, service, guaranteed, ..request.clone() })
    }

    /// Grants the largest amount of a range that there is, to all requests or to none of them.
    fn fit(
        &mut self,
        requests: &Requests,
        range: &Range,
        resources: &mut Resources,
    ) -> Result<(Amount, Grants), QosErrorCode> {
        let amount = match self.largest_of_all(requests, range, resources) {
            Ok(amount) => amount,
            Err(code) => {
                self.note_refused(requests, range, resources);
                return Err(code);
            }
        };
        let mut grants = Grants::default();
        for (request, grant) in requests.iter().zip(&mut grants) {
            let Some(request) = request else { continue };
            let admitted = Self::of_amount(request, &amount).and_then(|request| {
                resources.admit(self.now, &request).map_err(|_| QosErrorCode::BELOW_MINIMUM)
            });
            match admitted {
                Ok(admitted) => *grant = Some(admitted.grant),
                Err(code) => {
                    grants.into_iter().flatten().for_each(|grant| resources.release(grant));
                    return Err(code);
                }
            }
        }
        Ok((amount, grants))
    }

    /// Records which rule or limit refuses even the least amount, and what who asked gets of it.
    fn note_refused(&mut self, requests: &Requests, range: &Range, resources: &mut Resources) {
        for request in requests.iter().flatten() {
            let Ok(request) = Self::of_amount(request, &range.least) else { continue };
            if let Err(refusal) = resources.dry_run(self.now, &request).result {
                let own = request.requester.requested_by.is_local();
                let note = if own { Some(refusal.to_string()) } else { resources.told(&refusal) };
                let lacks = !matches!(refusal.cause(), Cause::Policy | Cause::Token);
                self.told = Told { available: lacks.then_some(refusal.available), note };
                return resources.decide_refused(&request, &refusal);
            }
        }
    }

    /// The largest amount of a range that each of the requests would get.
    fn largest_of_all(
        &self,
        requests: &Requests,
        range: &Range,
        resources: &Resources,
    ) -> Result<Amount, QosErrorCode> {
        requests
            .iter()
            .flatten()
            .try_fold(range.most, |most, request| self.largest(request, &Range { most, ..*range }, resources))
    }

    /// The largest amount of a range that would be granted.
    fn largest(
        &self,
        request: &GrantRequest,
        range: &Range,
        resources: &Resources,
    ) -> Result<Amount, QosErrorCode> {
        let fits = |amount: &Amount| -> Result<bool, QosErrorCode> {
            let request = Self::of_amount(request, amount)?;
            match resources.dry_run(self.now, &request).result {
                Ok(_) => Ok(true),
                Err(refusal) => match refusal.cause() {
                    Cause::Policy | Cause::Token => Err(QosErrorCode::POLICY),
                    _ => Ok(false),
                },
            }
        };
        // The rules may allow less than the upper bound.
        if matches!(fits(&range.most), Ok(true)) {
            return Ok(range.most);
        }
        if !fits(&range.least)? {
            return Err(QosErrorCode::BELOW_MINIMUM);
        }
        let (mut low, mut high) = (range.least.rate(), range.most.rate());
        let mut best = range.least;
        for _ in 0..STEPS {
            let middle = low + (high - low) / 2.0;
            let amount = range.most.lowered(&range.least, middle);
            if matches!(fits(&amount), Ok(true)) {
                (low, best) = (middle, amount);
            } else {
                high = middle;
            }
        }
        Ok(best)
    }

    /// The largest amount of a range that the node could reserve now; nothing changes.
    pub(super) fn could(
        &self,
        key: Key,
        range: &Range,
        resources: &Resources,
    ) -> Result<Amount, QosErrorCode> {
        let requests = self.grant_requests(key, QosType::RESERVE).ok_or(QosErrorCode::NO_RESERVATION)?;
        self.largest_of_all(&requests, range, resources)
    }

    /// Gives back what the session holds beyond the minimum of the path.
    pub(super) fn trim(&mut self, key: Key, amount: &Amount, resources: &mut Resources) {
        for kind in [QosType::RESERVE, QosType::COMMIT] {
            let Some(record) = invariant!(self.records.get_mut(key), "trims have a record") else { return };
            let Some(level) = record.part(kind).now else { continue };
            if amount.version() != level.amount.version() || amount.rate() >= level.amount.rate() {
                continue;
            }
            let Some(requests) =
                invariant!(self.grant_requests(key, kind), "what is trimmed was asked for once")
            else {
                return;
            };
            let trimmed = level.grants.iter().zip(&requests).all(|(grant, request)| {
                let (Some(grant), Some(request)) = (grant, request) else { return true };
                Self::of_amount(request, amount)
                    .is_ok_and(|request| resources.modify(self.now, *grant, &request).is_ok())
            });
            if !trimmed {
                continue;
            }
            if let Some(now) = self.records.get_mut(key).and_then(|record| record.part(kind).now.as_mut()) {
                now.amount = *amount;
            }
        }
    }

    /// The flows of the session, the interfaces by which they leave, or their time changed: what is reserved changes its
    /// packets, its place, and whether the flow gets it. False: there is no room at the new place, and a part of what is
    /// reserved is still at the old one.
    pub(super) fn replace(&mut self, key: Key, resources: &mut Resources) -> bool {
        let mut placed = true;
        for kind in [QosType::RESERVE, QosType::COMMIT] {
            let Some(requests) =
                invariant!(self.grant_requests(key, kind), "what gets another place was asked for once")
            else {
                return false;
            };
            let now = self.now;
            let Some(record) = invariant!(self.records.get_mut(key), "what gets another place has a record")
            else {
                return false;
            };
            for level in record.part(kind).levels_mut() {
                for (grant, request) in level.grants.iter_mut().zip(&requests) {
                    let Some(request) = request else {
                        grant.take().into_iter().for_each(|grant| resources.release(grant));
                        continue;
                    };
                    let result = Self::of_amount(request, &level.amount).ok().and_then(|request| {
                        match *grant {
                            Some(grant) => resources.modify(now, grant, &request),
                            None => resources.admit(now, &request),
                        }
                        .ok()
                    });
                    match result {
                        Some(admitted) => *grant = Some(admitted.grant),
                        None => placed = false,
                    }
                }
            }
        }
        placed
    }

    /// The request with this number was answered: what it replaced goes if it succeeded ([`End::Replaced`]), else comes back.
    pub(super) fn settle(&mut self, key: Key, sequence: u32, end: End, resources: &mut Resources) {
        for kind in [QosType::RESERVE, QosType::COMMIT] {
            // The answer may have ended the session of both records.
            let Some(record) = self.records.get_mut(key) else { return };
            let part = record.part(kind);
            if part.before.as_ref().is_none_or(|before| before.0 != sequence) {
                continue;
            }
            let before = part.before.take().and_then(|before| before.1);
            let succeeded = end == End::Replaced;
            let gone = if succeeded { before } else { core::mem::replace(&mut part.now, before) };
            resources.because(end);
            self.drop_level(gone, resources);
        }
    }

    /// A Commit shows that the Reserve was answered: what it replaced goes.
    pub(super) fn confirm_reserve(&mut self, key: Key, resources: &mut Resources) {
        let Some(record) = invariant!(self.records.get_mut(key), "a Commit has a record") else { return };
        let before = record.reserve.before.take();
        resources.because(End::Replaced);
        self.drop_level(before.and_then(|before| before.1), resources);
    }

    /// Removes the Reserve state of a session.
    pub(super) fn drop_reserve(&mut self, key: Key, resources: &mut Resources) {
        // An Error ends both records of a session with the first one.
        let Some(record) = self.records.get_mut(key) else { return };
        let part = core::mem::take(&mut record.reserve);
        part.levels().for_each(|level| self.drop_level(Some(*level), resources));
    }

    /// Removes both states of a session.
    pub(super) fn release_all(&mut self, key: Key, resources: &mut Resources) {
        self.drop_reserve(key, resources);
        // As above.
        let Some(record) = self.records.get_mut(key) else { return };
        let part = core::mem::take(&mut record.commit);
        part.levels().for_each(|level| self.drop_level(Some(*level), resources));
    }

    /// Removes what no message refreshed.
    pub(super) fn expire(&mut self, key: Key, resources: &mut Resources) {
        for kind in [QosType::RESERVE, QosType::COMMIT] {
            let Some(record) = invariant!(self.records.get_mut(key), "an end has a record") else { return };
            let (now, part) = (self.now, record.part(kind));
            let old = part.before.as_ref().and_then(|before| before.1).filter(|level| level.until <= now);
            let over = part.now.filter(|level| level.until <= now);
            if old.is_some() {
                part.before = None;
            }
            if over.is_some() {
                part.now = None;
                self.counters.expired += 1;
            }
            resources.because(End::Expired);
            self.drop_level(old, resources);
            self.drop_level(over, resources);
        }
    }

    fn drop_level(&mut self, level: Option<Level>, resources: &mut Resources) {
        let grants = level.into_iter().flat_map(|level| level.grants).flatten();
        grants.for_each(|grant| resources.release(grant));
    }
}
