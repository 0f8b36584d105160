//! The resources of each requester under the rules that limit it.

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::security::Fingerprint;
use signalbox_core::{IfIndex, Index, Key, KeyedHasher, Slab, invariant};

use super::requester::JudgedRequester;
use crate::request::Requester;

/// One requester under one rule at one interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AccountKey {
    pub(crate) rule: u32,
    ifindex: IfIndex,
    name: Name,
}

/// Who has an account: the party that a trusted neighbor speaks for, or the strongest that is proved of the neighbor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Key(Fingerprint),
    Token(Arc<str>),
    Address(IpAddr),
}

impl AccountKey {
    pub(super) fn new(rule: u32, ifindex: IfIndex, judged: &JudgedRequester<'_>) -> Self {
        let Requester { peer, token, .. } = judged.requester;
        // The key of a neighbor that speaks for others is not theirs.
        let name = match (peer, token, judged.party()) {
            (Some(peer), _, None) => Name::Key(peer.key),
            (_, Some(token), _) => Name::Token(Arc::from(token.entity.as_str())),
            (_, None, Some(party)) => Name::Address(party),
            (None, None, None) => Name::Address(judged.requester.holder()),
        };
        Self { rule, ifindex, name }
    }
}

/// Identifies an account while it holds reservations.
pub(crate) type AccountId = Key;

#[derive(Debug)]
struct Account {
    key: AccountKey,
    rate: u64,
    reservations: u32,
}

/// All accounts with reservations: never more than there are reservations.
#[derive(Debug)]
pub(crate) struct Accounts {
    accounts: Slab<Account>,
    index: Index,
    hasher: KeyedHasher,
}

impl Accounts {
    /// No accounts. Their number has no limit of its own: that of the reservations may become lower than what stands.
    pub(crate) const fn new(hasher: KeyedHasher) -> Self {
        Self { accounts: Slab::new(u32::MAX), index: Index::new(), hasher }
    }

    pub(crate) fn find(&self, key: &AccountKey) -> Option<AccountId> {
        let is = |index| {
            invariant!(self.accounts.get_index(index), "an index entry is an account")
                .is_some_and(|account| account.key == *key)
        };
        self.accounts.key_of(self.index.find(self.hasher.hash_one(key), is)?)
    }

    /// Sum of rates and number of reservations.
    pub(crate) fn held(&self, id: Option<AccountId>) -> (u64, u32) {
        let account = id.and_then(|id| invariant!(self.accounts.get(id), "a found account exists"));
        account.map_or((0, 0), |account| (account.rate, account.reservations))
    }

    /// Books one reservation. `None` would mean more accounts than reservations, which cannot happen.
    pub(crate) fn open(&mut self, key: AccountKey, rate: u64) -> Option<AccountId> {
        let id = match self.find(&key) {
            Some(id) => id,
            None => {
                let hash = self.hasher.hash_one(&key);
                let id = invariant!(
                    self.accounts.insert(Account { key, rate: 0, reservations: 0 }).ok(),
                    "each account finds a place"
                )?;
                let Self { accounts, index, hasher } = self;
                index.insert(hash, id.index(), |at| {
                    invariant!(accounts.get_index(at), "a rehashed entry is an account")
                        .map_or(0, |account| hasher.hash_one(&account.key))
                });
                id
            }
        };
        if let Some(account) = invariant!(self.accounts.get_mut(id), "an opened account exists") {
            account.rate = account.rate.saturating_add(rate);
            account.reservations = account.reservations.saturating_add(1);
        }
        Some(id)
    }

    /// Removes one reservation from an account.
    pub(crate) fn close(&mut self, id: AccountId, rate: u64) {
        let Some(account) = self.accounts.get_mut(id) else { return }; // most reservations have none
        account.rate = account.rate.saturating_sub(rate);
        account.reservations = account.reservations.saturating_sub(1);
        if account.reservations == 0 {
            let hash = self.hasher.hash_one(&account.key);
            self.index.remove(hash, |at| at == id.index());
            self.accounts.remove(id);
        }
    }
}
