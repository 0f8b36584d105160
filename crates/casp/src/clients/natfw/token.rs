//! Authorization tokens: requests of strangers that an entity of this network has allowed (section 9.4).

use core::time::Duration;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::Prefix;
use signalbox_core::shares::Shares;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{SessionId, Time, invariant};
use signalbox_resources::Resources;
use signalbox_resources::token::{Mac, Token, TokenError};

use super::{Failure, NatfwClient};
use crate::clients::shared::ntp;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{
    IdentityKind, NatfwFilter, NatfwIdentity, NatfwMessage, NatfwStatus, NatfwToken, NatfwValue,
    TokenAlgorithm,
};

/// How long a token is valid after its stamp, and how far its stamp may lie in the future.
const WINDOW: Duration = Duration::from_secs(300);
/// Most tokens of one request that are looked at.
const MOST_TOKENS: usize = 4;
/// Most tokens of which the node remembers that they were used. Each creator finds 64 while another one issues any number.
const MOST_USED: u32 = 16_384;
/// Tokens whose time is over that one request removes: more than it adds.
const REMOVED_AT_ONCE: usize = 4;

/// A token: its creator, its stamp and its name.
type TokenName = (String, u64, u32);

/// The tokens that were used, with the session of each.
///
/// A creator can sign as many as it wants, so a quarter of the places is for creators with few.
#[derive(Debug)]
pub(super) struct Used {
    sessions: BTreeMap<TokenName, SessionId>,
    /// When they are removed; that is the order in which they came.
    order: VecDeque<(Time, TokenName)>,
    by_creator: Shares<String>,
}

impl Used {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { sessions: BTreeMap::new(), order: VecDeque::new(), by_creator: Shares::new(MOST_USED, hasher) }
    }

    /// Takes note of a token. A token is of one session only.
    fn take(&mut self, now: Time, token: TokenName, session: SessionId) -> Result<(), Failure> {
        for _ in 0..REMOVED_AT_ONCE {
            if self.order.front().is_none_or(|(until, _)| *until > now) {
                break;
            }
            let Some((_, over)) = invariant!(self.order.pop_front(), "the first was seen") else { break };
            self.by_creator.release(over.0.clone());
            self.sessions.remove(&over);
        }
        if let Some(known) = self.sessions.get(&token) {
            return if *known == session { Ok(()) } else { Err(NatfwStatus::TOKEN) };
        }
        if self.by_creator.take(token.0.clone()).is_err() {
            return Err(NatfwStatus::RESOURCES);
        }
        // A stamp may lie in the future by one window.
        self.order.push_back((now + WINDOW * 2, token.clone()));
        self.sessions.insert(token, session);
        Ok(())
    }
}

/// The name of an entity, as keys of the configuration have it.
fn name<'a>(identity: &NatfwIdentity<'a>) -> Option<Cow<'a, str>> {
    match identity.kind {
        IdentityKind::OMITTED => None,
        IdentityKind::IPV4 | IdentityKind::IPV6 => Some(address(identity)?.to_string().into()),
        _ => core::str::from_utf8(identity.value).ok().map(Cow::Borrowed),
    }
}

fn address(identity: &NatfwIdentity<'_>) -> Option<IpAddr> {
    match identity.kind {
        IdentityKind::IPV4 => <[u8; 4]>::try_from(identity.value).ok().map(IpAddr::from),
        IdentityKind::IPV6 => <[u8; 16]>::try_from(identity.value).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Whether packets lie within a filter.
fn covers(filter: &NatfwFilter, packets: &FlowFilter) -> bool {
    let net = |outer: &Prefix, inner: &Prefix| outer.len <= inner.len && outer.contains(inner.addr);
    let port = |ranges: &[(u16, u16)], port: Option<u16>| {
        ranges.is_empty()
            || port.is_some_and(|port| ranges.iter().any(|(low, high)| (*low..=*high).contains(&port)))
    };
    net(&filter.src, &packets.src)
        && net(&filter.dst, &packets.dst)
        && (filter.protocols.is_empty()
            || packets.protocol.is_some_and(|protocol| filter.protocols.contains(&protocol)))
        && port(&filter.src_ports, packets.src_port)
        && port(&filter.dst_ports, packets.dst_port)
        && (filter.spis.is_empty() || packets.spi.is_some_and(|spi| filter.spis.contains(&spi)))
        && (filter.flow_label.is_none() || filter.flow_label == packets.flow_label)
}

/// The tokens of a request that are looked at.
fn tokens<'a>(message: &NatfwMessage<'a>) -> Vec<NatfwToken<'a>> {
    let token = |value| if let NatfwValue::Token(token) = value { Some(token) } else { None };
    message.values().filter_map(token).take(MOST_TOKENS).collect()
}

/// Whether a token binds other ends than those of a flow. A name cannot be compared with an address.
fn is_of_other_ends(token: &NatfwToken<'_>, flow: &FlowId) -> bool {
    let other = |identity: &NatfwIdentity<'_>, end| {
        identity.kind != IdentityKind::OMITTED && address(identity) != Some(end)
    };
    other(&token.src, flow.src()) || other(&token.dst, flow.dst())
}

impl NatfwClient {
    /// Whether a token is signed by a key that this node has.
    fn is_signed(&self, token: &NatfwToken<'_>, name: &str, resources: &Resources) -> Result<(), TokenError> {
        let mac = match token.algorithm {
            TokenAlgorithm::SHA1 => Mac::Sha1,
            TokenAlgorithm::SHA256 => Mac::Sha256,
            _ => return Err(TokenError::Signature),
        };
        resources.verify_mac(self.now, name, mac, &token.authenticated(), &token.hmac)
    }

    /// The token of a request that this node verifies, if it has one. Tokens of other entities have no effect here.
    pub(super) fn token(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        packets: &[FlowFilter],
        resources: &Resources,
    ) -> Result<Option<Arc<Token>>, Failure> {
        for token in tokens(message) {
            let Some(entity) = name(&token.creator) else { continue };
            match self.is_signed(&token, &entity, resources) {
                Ok(()) => {}
                Err(TokenError::UnknownKey) => continue,
                Err(_) => return Err(NatfwStatus::TOKEN),
            }
            let wall_us = self.clock.wall_us(self.now);
            let made_us = ntp::micros(token.stamp);
            let fresh = made_us.is_some_and(|made| Duration::from_micros(wall_us.abs_diff(made)) <= WINDOW);
            let within = |filter: &NatfwFilter| packets.iter().all(|one| covers(filter, one));
            if !fresh || is_of_other_ends(&token, &job.flow) || !token.filter.as_ref().is_none_or(within) {
                return Err(NatfwStatus::TOKEN);
            }
            self.used.take(self.now, (entity.to_string(), token.stamp, token.id), job.session)?;
            let session = token.id.to_be_bytes().to_vec();
            return Ok(Some(Arc::new(Token { entity: entity.into_owned(), session, ..Token::default() })));
        }
        Ok(None)
    }

    /// Takes out of the objects of a request the tokens that this node verifies: they have served.
    pub(super) fn without_own_tokens<'a>(
        &self,
        message: &NatfwMessage<'a>,
        resources: &Resources,
    ) -> Option<Vec<NatfwValue<'a>>> {
        let is_own = |token: &NatfwToken<'_>| {
            name(&token.creator).is_some_and(|entity| self.is_signed(token, &entity, resources).is_ok())
        };
        let tokens = tokens(message);
        let own: Vec<&NatfwToken<'_>> = tokens.iter().filter(|token| is_own(token)).collect();
        let stays = |value: &NatfwValue<'_>| match value {
            NatfwValue::Token(token) => !own.contains(&token),
            _ => true,
        };
        (!own.is_empty()).then(|| message.values().filter(stays).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId([1; 16]);

    fn token(creator: &str, id: u32) -> TokenName {
        (creator.to_owned(), 7, id)
    }

    #[test]
    fn a_creator_with_many_tokens_leaves_places_to_others() {
        let mut used = Used::new(KeyedHasher::with_key([5; 16]));
        let at = Time::from_secs(1000);
        let taken = (0..20_000).filter(|id| used.take(at, token("one", *id), SESSION).is_ok()).count();
        assert_eq!(taken, 12_288);
        assert_eq!((0..100).filter(|id| used.take(at, token("two", *id), SESSION).is_ok()).count(), 64);
        // A token of another creator with the same stamp and name is another token.
        assert_eq!(used.take(at, token("one", 3), SessionId([2; 16])), Err(NatfwStatus::TOKEN));
        assert_eq!(used.take(at, token("three", 3), SessionId([2; 16])), Ok(()));
        // Requests remove a few at a time.
        let later = at + WINDOW * 2;
        for id in 0..4000 {
            assert_eq!(used.take(later, token("four", id), SESSION), Ok(()), "{id}");
        }
        assert_eq!((used.sessions.len(), used.order.len(), used.by_creator.total()), (4000, 4000, 4000));
    }
}
