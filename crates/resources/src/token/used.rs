//! Tokens that name their session (SESSION_ID, RFC 5981 §3.2.2). Such a token is good for one session of signaling and the opposite
//! direction of its flow: who reads it on the way, or keeps it, gets nothing for it in another session (§7).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::Shares;
use signalbox_core::{SessionId, Time, invariant};

use super::{Token, TokenError};

/// Most tokens that are remembered. A quarter of the places is for entities with few.
const MOST: u32 = 16_384;
/// How long a token without END_TIME is remembered after its last request.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Tokens whose time is over that one request removes: more than it adds.
const AT_ONCE: usize = 4;

/// The authorizing entity, and its identifier of the session.
type Name = (String, Vec<u8>);

/// Where a token was used.
#[derive(Debug)]
struct Bound {
    session: SessionId,
    /// The session of the opposite direction, if it was asked for.
    back: Option<SessionId>,
    /// Source and destination of the flow.
    ends: (IpAddr, IpAddr),
    until: Time,
}

/// The tokens that were used.
#[derive(Debug)]
pub(crate) struct UsedTokens {
    bound: HashMap<Name, Bound, KeyedHasher>,
    /// When they are looked at again.
    order: VecDeque<(Time, Name)>,
    shares: Shares<String>,
}

/// The name of a token; `None`: it names no session.
fn name(token: &Token) -> Option<Name> {
    (!token.session.is_empty()).then(|| (token.entity.clone(), token.session.clone()))
}

impl UsedTokens {
    pub(crate) fn new(hasher: KeyedHasher) -> Self {
        Self {
            bound: HashMap::with_hasher(hasher),
            order: VecDeque::new(),
            shares: Shares::new(MOST, hasher),
        }
    }

    /// Whether a session may use a token for a flow.
    pub(crate) fn check(
        &self,
        now: Time,
        token: &Token,
        session: SessionId,
        (src, dst): (IpAddr, IpAddr),
    ) -> Result<(), TokenError> {
        let Some(name) = name(token) else { return Ok(()) };
        match self.bound.get(&name).filter(|bound| now < bound.until) {
            None => self.shares.check(&name.0, 1).map_err(|_| TokenError::Full),
            Some(bound) if bound.session == session => Ok(()),
            Some(bound) if bound.ends == (dst, src) && bound.back.is_none_or(|back| back == session) => {
                Ok(())
            }
            Some(_) => Err(TokenError::Used),
        }
    }

    /// A session got something for a token, which is valid until a time.
    pub(crate) fn bind(
        &mut self,
        now: Time,
        token: &Token,
        until: Option<Time>,
        session: SessionId,
        ends: (IpAddr, IpAddr),
    ) {
        let Some(name) = name(token) else { return };
        self.forget(now);
        let until = until.unwrap_or(now + KEPT);
        if let Some(bound) = self.bound.get_mut(&name).filter(|bound| now < bound.until) {
            if bound.session != session {
                bound.back = Some(session);
            }
            bound.until = bound.until.max(until);
            return;
        }
        if self.bound.insert(name.clone(), Bound { session, back: None, ends, until }).is_none() {
            self.shares.hold(name.0.clone());
            self.order.push_back((until, name));
        }
    }

    /// Removes some of the tokens whose time is over.
    fn forget(&mut self, now: Time) {
        for _ in 0..AT_ONCE {
            if self.order.front().is_none_or(|(at, _)| *at > now) {
                return;
            }
            let Some((_, name)) = self.order.pop_front() else { return };
            match invariant!(self.bound.get(&name), "what is kept in order is bound")
                .map(|bound| bound.until)
                .filter(|until| *until > now)
            {
                Some(until) => self.order.push_back((until, name)),
                None => {
                    self.bound.remove(&name);
                    self.shares.release(name.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(session: &[u8]) -> Token {
        Token { entity: "auth.example".to_owned(), session: session.to_vec(), ..Token::default() }
    }

    fn ends(src: u8, dst: u8) -> (IpAddr, IpAddr) {
        (IpAddr::from([10, 0, 0, src]), IpAddr::from([10, 0, 0, dst]))
    }

    const ONE: SessionId = SessionId([1; 16]);
    const TWO: SessionId = SessionId([2; 16]);
    const THREE: SessionId = SessionId([3; 16]);

    #[test]
    fn a_token_is_of_one_session_and_its_opposite_direction() {
        let (now, call) = (Time::from_secs(9), token(b"call 7"));
        let mut used = UsedTokens::new(KeyedHasher::with_key([1; 16]));
        assert_eq!(used.check(now, &call, ONE, ends(1, 2)), Ok(()));
        used.bind(now, &call, None, ONE, ends(1, 2));
        assert_eq!(used.check(now, &call, ONE, ends(3, 2)), Ok(()), "a change of the same session");
        assert_eq!(used.check(now, &call, TWO, ends(1, 2)), Err(TokenError::Used));
        assert_eq!(used.check(now, &token(b"call 8"), TWO, ends(1, 2)), Ok(()));
        assert_eq!(used.check(now, &call, TWO, ends(2, 1)), Ok(()));
        used.bind(now, &call, None, TWO, ends(2, 1));
        assert_eq!(used.check(now, &call, THREE, ends(2, 1)), Err(TokenError::Used));
        assert_eq!((used.bound.len(), used.order.len()), (1, 1));
        // It names no session.
        used.bind(now, &token(b""), None, ONE, ends(1, 2));
        assert_eq!(used.check(now, &token(b""), TWO, ends(1, 2)), Ok(()));
    }

    #[test]
    fn what_is_remembered_has_an_end_and_a_limit() {
        let mut used = UsedTokens::new(KeyedHasher::with_key([1; 16]));
        let (now, end) = (Time::from_secs(9), Time::from_secs(100));
        let numbered = |n: u32| token(&n.to_be_bytes());
        let take = |used: &mut UsedTokens, now, n| {
            let free = used.check(now, &numbered(n), ONE, ends(1, 2)).is_ok();
            if free {
                used.bind(now, &numbered(n), Some(now + end.since(Time::from_secs(9))), ONE, ends(1, 2));
            }
            free
        };
        let taken = (0..20_000).filter(|n| take(&mut used, now, *n)).count();
        assert_eq!(taken, 12_288, "three quarters");
        let other = Token { entity: "other.example".to_owned(), ..numbered(1) };
        assert_eq!(used.check(now, &other, TWO, ends(1, 2)), Ok(()));
        assert_eq!(used.check(end, &numbered(1), TWO, ends(1, 2)), Err(TokenError::Full));
        used.bind(end, &other, None, TWO, ends(1, 2));
        assert_eq!(used.bound.len(), 12_288 - AT_ONCE + 1);
        assert_eq!(used.check(end, &numbered(1), TWO, ends(1, 2)), Ok(()));
    }
}
