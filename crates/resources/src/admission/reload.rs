//! Other settings while reservations stand.

use signalbox_core::{Key, Time, invariant};

use super::Resources;
use super::group::{Grant, Group, Terms};
use crate::config::{Config, ConfigError};
use crate::policy::{AccountKey, Policy};
use crate::request::{GrantId, GrantRequest, LostWhy};
use crate::token::Keys;

impl Resources {
    /// Takes other settings; the same ones change nothing. The new rules judge each reservation again, the oldest first: one that they refuse, or that is
    /// beyond a limit of its rule, is lost. Then the weakest reservations are lost at links that have less to give.
    /// Standing reservations keep their queues and their treatment. Those who hold passages judge them again
    /// ([`Resources::judge_passage`](crate::Resources::judge_passage)). Reservations and passages beyond a lower number of places
    /// stay.
    ///
    /// The work grows with the number of reservations; only an administrator causes it.
    ///
    /// # Errors
    /// The first invalid setting; nothing has changed.
    pub fn reload(&mut self, now: Time, config: Config) -> Result<(), ConfigError> {
        if config == self.config {
            return Ok(());
        }
        config.validated()?;
        let keys = Keys::new(&config.keys)?;
        let mut groups: Vec<(u64, Key)> = self.groups.iter().map(|(key, group)| (group.age, key)).collect();
        groups.sort_unstable();
        // Accounts and the order of preemption belong to the settings: all leave the old ones before any enters the new.
        for (_, group) in &groups {
            self.unbook(*group, false);
        }
        self.policy = Policy::new(&config);
        self.reloads = self.reloads.wrapping_add(1);
        self.keys = keys;
        self.grants.set_limit(config.max_reservations);
        self.passages.1.set_limit(config.max_pinholes);
        self.config = config;
        let mut refused = Vec::new();
        for (_, group) in &groups {
            self.judge(now, *group, &mut refused);
        }
        for grant in refused {
            self.lose_grant(grant, LostWhy::Rules);
        }
        for link in self.links.values_mut() {
            let config = self.config.of_interface(&link.name, link.tunnel).cloned();
            link.configure(config);
        }
        let links: Vec<_> = self.links.keys().copied().collect();
        for ifindex in links {
            self.refit(ifindex);
        }
        tracing::debug!(rules = self.config.rules.len(), "settings of admission control changed");
        Ok(())
    }

    /// Books a reservation by the new rules, and adds its grants that they refuse to `refused`.
    fn judge(&mut self, now: Time, key: Key, refused: &mut Vec<Key>) {
        let wall_us = self.wall_us(now);
        let Some(group) = invariant!(self.groups.get(key), "a judged reservation stands") else { return };
        let link = invariant!(self.links.get(&group.ifindex), "a judged reservation has a link")
            .map_or("", |link| &link.name);
        let mut account = None;
        for member in group.members.iter() {
            let Some(grant) = invariant!(self.grants.get_mut(member), "a judged member is a grant") else {
                continue;
            };
            let request = request_of(grant, group);
            let verdict = self.policy.decide(&request, link, wall_us);
            if grant.terms.rule != verdict.rule {
                let terms = Terms { rule: verdict.rule, ..(*grant.terms).clone() };
                grant.terms = terms.shared(&mut self.terms);
            }
            if verdict.result.is_err() {
                refused.push(member);
            } else {
                account = self.policy.account(verdict.rule, &request.requester, request.ifindex);
            }
        }
        if account.as_ref().is_some_and(|account| !self.account_has_room(account, group)) {
            account = None;
            // One that is named already is lost once.
            refused.extend(group.members.iter());
        }
        self.book(key, account, None, false);
    }

    /// Whether the account of a rule can take a reservation besides those that entered it before.
    fn account_has_room(&self, account: &AccountKey, group: &Group) -> bool {
        let (used, reservations) = self.accounts.held(self.accounts.find(account));
        self.policy
            .totals(account.rule, used, group.parameters.charge.rate, reservations.saturating_add(1))
            .is_ok()
    }

    /// Ends one grant, and reports the loss to its owner. Other grants of its reservation stay. False: no such grant.
    pub(super) fn lose_grant(&mut self, key: Key, why: LostWhy) -> bool {
        let Some(protocol) = self
            .grants
            .get(key)
            .and_then(|grant| invariant!(self.groups.get(grant.group), "a grant has a reservation"))
            .map(|group| group.protocol)
        else {
            return false;
        };
        if self.has_other_parts(key) {
            self.decisions.unname(GrantId(key.to_u64()));
        } else {
            self.note_lost(key, why);
        }
        self.detach(key);
        let Some(lost) = invariant!(self.grants.remove(key), "a detached grant stays") else { return false };
        let owner = lost.owner(protocol);
        let grant = GrantId(key.to_u64());
        tracing::debug!(protocol = %owner.protocol, owner = owner.key, grant = grant.0, reason = %why, "reservation lost");
        self.count_lost(why, 1);
        self.changes.note(|| grant);
        self.outputs.lost(owner, grant, why);
        true
    }
}

/// The request that a grant answers.
fn request_of(grant: &Grant, group: &Group) -> GrantRequest {
    let filters = match grant.filters() {
        [] => group.filters.iter().collect(),
        own => own.to_vec(),
    };
    GrantRequest {
        service: group.parameters.service,
        guaranteed: grant.guaranteed().map(|(asked, _)| asked),
        priority: grant.terms.priority,
        reducible: grant.terms.reducible,
        session: group.session,
        lifetime: grant.terms.lifetime,
        mark_dscp: group.parameters.installed.mark_dscp,
        policing: grant.terms.policing,
        held: grant.terms.held,
        during: grant.terms.during,
        ..GrantRequest::of_all(
            grant.owner(group.protocol),
            (*grant.requester).clone(),
            group.ifindex,
            filters,
            grant.terms.traffic,
        )
    }
}
