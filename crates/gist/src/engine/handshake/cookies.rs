//! Query-Cookies and Responder-Cookies (RFC 5971 §8.5). Both are verified without stored state.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::rng::Random;
use signalbox_core::secret::{RotatingSecret, same};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_wire::Writer;

use crate::engine::Gist;
use crate::engine::association::{Associations, Stacks};
use crate::engine::nat::{Foreign, PLAIN_COOKIE as RESPONDER_COOKIE};
use crate::wire::{Nli, mri_encode};

/// Octets of a Query-Cookie: the number of the Query, then a 96-bit tag.
const QUERY_COOKIE: usize = 16;

/// The values that a Responder-Cookie is bound to, in addition to the interface (RFC 5971 §8.5).
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Bound<'a> {
    pub(in crate::engine) nli: &'a Nli<'a>,
    /// The MRI of the Query, which the Confirm repeats.
    pub(in crate::engine) mri: &'a Mri,
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) nslp: NslpId,
    /// The MRI of the Confirm and its port, if a NAT translated the Query. The cookie then contains the translated values.
    pub(in crate::engine) foreign: Option<&'a Foreign>,
}

/// The secrets of a node's cookies.
#[derive(Debug)]
pub(super) struct Cookies {
    /// Secret of Query-Cookies. It never rotates, since each Query has its own number.
    queries: RotatingSecret,
    /// Secret of Responder-Cookies.
    responder: RotatingSecret,
    /// Buffer for the octets of an MRI.
    scratch: Vec<u8>,
}

impl Gist {
    /// The Responder-Cookie of a Response. `offered`: the Response has a Stack-Proposal, which the cookie is then bound to.
    pub(super) fn responder_cookie(
        &mut self,
        bound: &Bound<'_>,
        ifindex: IfIndex,
        offered: bool,
    ) -> [u8; RESPONDER_COOKIE] {
        let offer = fingerprint(&self.associations, offered);
        self.handshakes.cookies.of_response(self.now, bound, ifindex, offer)
    }

    /// The same for a peer behind a NAT.
    pub(super) fn translated_cookie(
        &mut self,
        bound: &Bound<'_>,
        foreign: &Foreign,
        ifindex: IfIndex,
        offered: bool,
    ) -> Vec<u8> {
        let offer = fingerprint(&self.associations, offered);
        self.handshakes.cookies.of_translated(self.now, bound, foreign, ifindex, offer)
    }

    /// Verifies the Responder-Cookie of a Confirm. Returns the interface by which the Query was received.
    pub(super) fn check_responder_cookie(
        &mut self,
        bound: &Bound<'_>,
        cookie: &[u8],
        offered: bool,
    ) -> Option<IfIndex> {
        let Self { handshakes, associations, now, .. } = self;
        handshakes.cookies.check(*now, bound, cookie, || fingerprint(associations, offered))
    }
}

/// What a Responder-Cookie has of the Stack-Proposal, if one is offered.
fn fingerprint(associations: &Associations, offered: bool) -> [u8; 3] {
    if offered { Stacks::offered(associations).fingerprint() } else { [0; 3] }
}

impl Cookies {
    /// New secrets; that of Responder-Cookies changes after each `period`.
    pub(super) fn new(period: Duration, rng: &mut Random) -> Self {
        Self {
            queries: RotatingSecret::new(Duration::MAX, rng),
            responder: RotatingSecret::new(period, rng),
            scratch: Vec::new(),
        }
    }

    /// The cookie of Query number `query` of a record: unguessable by the tag, different for every Query by
    /// the number, and of no use to a later record by its generation. GIST-8.5-01, GIST-8.5-02.
    pub(super) fn of_query(
        &self,
        key: Key,
        direction: Direction,
        session: SessionId,
        query: u32,
    ) -> [u8; QUERY_COOKIE] {
        let number = query.to_be_bytes();
        let upstream = [u8::from(direction == Direction::Upstream)];
        // All have a fixed length, so they are one part.
        let mut bound = [0; 29];
        bound[..4].copy_from_slice(&number);
        bound[4..12].copy_from_slice(&key.to_u64().to_be_bytes());
        bound[12..28].copy_from_slice(&session.0);
        bound[28..].copy_from_slice(&upstream);
        let tag = self.queries.tag(0, &[&bound]);
        let mut cookie = [0; QUERY_COOKIE];
        let (head, tail) = cookie.split_at_mut(4);
        head.copy_from_slice(&number);
        tail.copy_from_slice(tag.first_chunk::<12>().unwrap_or(&[0; 12]));
        cookie
    }

    /// Whether `cookie` is that of one of the last `attempts` Queries up to number `last`: any of a
    /// handshake's Queries may be answered (RFC 5971 §5.3.3). GIST-5.3.3-13, GIST-5.3.3-18: strangers fail at
    /// the number, before any hashing.
    pub(super) fn is_of_query(
        &self,
        key: Key,
        direction: Direction,
        session: SessionId,
        last: u32,
        attempts: u8,
        cookie: &[u8],
    ) -> bool {
        let Some(number) = cookie.first_chunk::<4>() else { return false };
        let number = u32::from_be_bytes(*number);
        last.wrapping_sub(number) < u32::from(attempts)
            && same(&self.of_query(key, direction, session, number), cookie)
    }

    /// A Responder-Cookie as RFC 5971 §8.5 suggests: liveness (from the secret's generation), the reception interface, and
    /// a 128-bit keyed hash over the contents of the routing state. GIST-8.5-03, GIST-8.5-04.
    fn of_response(
        &mut self,
        now: Time,
        bound: &Bound<'_>,
        ifindex: IfIndex,
        offer: [u8; 3],
    ) -> [u8; RESPONDER_COOKIE] {
        let generation = self.responder.current(now);
        let mut cookie = [0; RESPONDER_COOKIE];
        let (head, tag) = cookie.split_at_mut(8);
        let (first, second) = head.split_at_mut(4);
        first.copy_from_slice(&self.liveness(generation));
        second.copy_from_slice(&ifindex.0.to_be_bytes());
        tag.copy_from_slice(&self.responder_tag(generation, bound, ifindex, offer));
        cookie
    }

    /// A Responder-Cookie for a peer behind a NAT. The Confirm has another MRI and NLI than the translated Query, so the
    /// cookie contains those of the Query (RFC 5971 §7.2.3). GIST-7.2.3-09.
    fn of_translated(
        &mut self,
        now: Time,
        bound: &Bound<'_>,
        foreign: &Foreign,
        ifindex: IfIndex,
        offer: [u8; 3],
    ) -> Vec<u8> {
        let mut cookie = self.of_response(now, bound, ifindex, offer).to_vec();
        cookie.extend(encode_translation(bound, foreign));
        cookie
    }

    /// Verifies a Responder-Cookie (RFC 5971 §8.5): it is of this node, not expired, and bound to the values of the
    /// Confirm. Returns the interface by which the Query was received. GIST-8.5-05, GIST-8.5-06.
    fn check(
        &mut self,
        now: Time,
        bound: &Bound<'_>,
        cookie: &[u8],
        offer: impl FnOnce() -> [u8; 3],
    ) -> Option<IfIndex> {
        let (plain, translation) = match bound.foreign {
            Some(foreign) => (cookie.get(..RESPONDER_COOKIE)?, encode_translation(bound, foreign)),
            None => (cookie, Vec::new()),
        };
        // Octet by octet, so that bits that a parser ignores cannot differ.
        if cookie.get(plain.len()..)? != translation {
            return None;
        }
        let cookie: &[u8; RESPONDER_COOKIE] = plain.try_into().ok()?;
        let (liveness, rest) = cookie.split_first_chunk::<4>()?;
        let (ifindex, tag) = rest.split_first_chunk::<4>()?;
        let current = self.responder.current(now);
        let generation = [current, current.wrapping_sub(1)]
            .into_iter()
            .find(|generation| self.liveness(*generation) == *liveness)?;
        let ifindex = IfIndex(u32::from_be_bytes(*ifindex));
        same(&self.responder_tag(generation, bound, ifindex, offer()), tag).then_some(ifindex)
    }

    /// The liveness field of a generation. It is not guessable, so that floods of forged cookies fail before the message is
    /// hashed (RFC 5971 §8.5).
    fn liveness(&self, generation: u32) -> [u8; 4] {
        self.responder.mark(generation)
    }

    fn responder_tag(
        &mut self,
        generation: u32,
        bound: &Bound<'_>,
        ifindex: IfIndex,
        offer: [u8; 3],
    ) -> [u8; 16] {
        self.scratch.clear();
        let mut writer = Writer::new(&mut self.scratch);
        // An MRI that was parsed can be encoded. If it could not, the cookie would be bound to an empty MRI, and verified with
        // the same.
        let _ = mri_encode(bound.mri, &mut writer);
        if let Some(foreign) = bound.foreign {
            let _ = mri_encode(&foreign.mri, &mut writer);
            writer.bytes(&encode_translation(bound, foreign));
        }
        // These have a fixed length, so that one part can hold them and the MRIs.
        writer.u16(bound.nslp.0);
        writer.bytes(&bound.session.0);
        writer.u32(ifindex.0);
        writer.bytes(&offer);
        let v4;
        let v6;
        let address: &[u8] = match bound.nli.interface {
            IpAddr::V4(a) => {
                v4 = a.octets();
                &v4
            }
            IpAddr::V6(a) => {
                v6 = a.octets();
                &v6
            }
        };
        self.responder.tag(generation, &[bound.nli.peer_identity, address, &self.scratch])
    }
}

/// The values in a cookie for a peer behind a NAT: the port, MRI and NLI of the translated Query.
/// [`translation`](crate::engine::nat::parse_translation) parses them.
fn encode_translation(bound: &Bound<'_>, foreign: &Foreign) -> Vec<u8> {
    let (mut mri, mut nli) = (Vec::new(), Vec::new());
    // Both were parsed, so both can be encoded.
    let _ = mri_encode(bound.mri, &mut Writer::new(&mut mri));
    let _ = bound.nli.write(&mut Writer::new(&mut nli));
    let words = |octets: &[u8]| u8::try_from(octets.len() / 4).unwrap_or(0);
    let [high, low] = foreign.port.to_be_bytes();
    [&[high, low, words(&mri), words(&nli)][..], &mri, &nli].concat()
}
