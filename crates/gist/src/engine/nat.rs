//! Peers across a NAT that knows GIST (RFC 5971 §7.2.2, §7.2.3): the two sides of the NAT have different MRIs for
//! one flow. Query and Response are translated by the NAT; in everything after them the Querying node's MRI stands,
//! and the Responding node translates it, as it came and as it leaves.
//!
//! A session whose peer is not across a NAT pays for none of this: the tables stay empty. What is in them hangs on
//! routing state, whose number is limited: each direction of each session has one entry at most.

use std::collections::BTreeMap;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, NslpId, SessionId};

use super::Gist;
use super::receive::{Arrival, Subject};
use super::record::{NONE, side};
use crate::wire::{
    GistError, Info, Infos, Message, MessageType, NatTraversal, Nli, ObjectType, find_object, mri_parse,
    object_value_info,
};

/// What a message from across a NAT, or one that will be answered across it, says beside its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Foreign {
    /// The flow as the other side of the NAT has it, in the direction of the message.
    pub(super) mri: Mri,
    /// UDP port by which the Query came out of the NAT.
    pub(super) port: u16,
}

/// What the other side calls the flow of one direction of a session.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// In the direction of messages that come from there.
    mri: Mri,
    session: SessionId,
    nslp: NslpId,
    /// It stands in the messages, since this node was the Responding one.
    sent_by_us: bool,
}

/// The sessions with a peer across a NAT.
#[derive(Debug, Default)]
pub(super) struct Translations {
    /// By session and direction of the state.
    entries: BTreeMap<(u64, usize), Entry>,
    /// To whom messages with a foreign MRI belong.
    sessions: BTreeMap<(Mri, SessionId, NslpId), Key>,
}

impl Translations {
    /// The MRI for messages that go to the peer of this direction: `own`, unless the peer has another.
    pub(super) fn mri_for_peer(&self, key: Key, direction: Direction, own: Mri) -> Mri {
        let entry = self.entries.get(&(key.to_u64(), side(direction))).filter(|entry| entry.sent_by_us);
        entry.map_or(own, |entry| entry.mri.with_direction(direction))
    }

    fn entry(&self, key: Key, direction: Direction) -> Option<&Entry> {
        self.entries.get(&(key.to_u64(), side(direction)))
    }

    /// Forgets one direction of a session.
    pub(super) fn forget(&mut self, key: Key, direction: Direction) {
        let Some(old) = self.entries.remove(&(key.to_u64(), side(direction))) else { return };
        let name = (old.mri, old.session, old.nslp);
        if self.sessions.get(&name) == Some(&key) {
            self.sessions.remove(&name);
        }
    }
}

impl Gist {
    /// Notes that the peer of a direction is across a NAT, or (`None`) that it is not, as a handshake showed.
    /// `sent_by_us`: this node responds, so messages carry the foreign MRI. GIST-7.2.2-06, GIST-7.2.3-08.
    pub(super) fn note_translation(
        &mut self,
        key: Key,
        direction: Direction,
        foreign: Option<Foreign>,
        sent_by_us: bool,
    ) {
        self.nat.forget(key, direction);
        let (Some(record), Some(foreign)) = (self.records.get(key), foreign) else { return };
        let mri = foreign.mri.with_direction(direction.inverted());
        let entry = Entry { mri, session: record.session, nslp: record.nslp, sent_by_us };
        if sent_by_us {
            self.nat.sessions.insert((mri, record.session, record.nslp), key);
        }
        self.nat.entries.insert((key.to_u64(), side(direction)), entry);
    }

    /// What the peer of a direction calls the flow, if it is across a NAT.
    pub(super) fn foreign_mri(&self, key: Key, direction: Direction) -> Option<Mri> {
        Some(self.nat.entry(key, direction)?.mri.with_direction(Direction::Downstream))
    }

    /// The record that a message or an Error means by an MRI that is not ours: `mri` has the direction of
    /// messages that come from the peer.
    fn record_of_foreign(&self, mri: &Mri, session: SessionId, nslp: NslpId) -> Option<Key> {
        self.nat.sessions.get(&(*mri, session, nslp)).copied().filter(|key| self.records.get(*key).is_some())
    }

    /// Makes a message from across a NAT speak of the flow and of its sender as this side does, before anything
    /// is looked up by them.
    ///
    /// * Query: the MRI is ours already; what the sender calls it is in the NAT-Traversal object.
    /// * Response: the MRI in the object is ours (GIST-7.2.3-07).
    /// * Confirm: neither MRI nor NLI were translated, but the cookie of our Response has both (GIST-7.2.3-09).
    /// * Data: the MRI is that of the Querying node (GIST-7.2.2-06), the address in the NLI means nothing here.
    pub(super) fn translate<'a>(
        &self,
        a: &mut Arrival<'_>,
        message: &Message<'a>,
        subject: &mut Subject<'a>,
    ) {
        let direction = subject.mri.direction();
        let original = message.nat_traversal.and_then(|nat| nat.mri());
        match message.header.kind {
            MessageType::QUERY => {
                let port = a.src.port();
                subject.foreign = original.map(|mri| Foreign { mri: mri.with_direction(direction), port });
            }
            MessageType::RESPONSE => {
                if let Some(mri) = original {
                    subject.foreign = Some(Foreign { mri: subject.mri, port: a.src.port() });
                    subject.mri = mri.with_direction(direction);
                }
            }
            _ => match carried(message.responder_cookie) {
                Some(carried) => {
                    subject.foreign = Some(Foreign { mri: subject.mri, port: carried.port });
                    subject.mri = carried.mri;
                    subject.nli = carried.nli;
                    a.src.set_port(carried.port);
                }
                None => self.translate_data(a, subject),
            },
        }
    }

    fn translate_data(&self, a: &Arrival<'_>, subject: &mut Subject<'_>) {
        if self.nat.entries.is_empty() {
            return;
        }
        let direction = subject.mri.direction();
        let (session, nslp) = (subject.session, subject.nslp);
        let mut found = self.find(&subject.mri, session, nslp);
        if found.is_none() {
            found = self.record_of_foreign(&subject.mri, session, nslp);
            if let Some(record) = found.and_then(|key| self.records.get(key)) {
                subject.mri = record.flow.mri(direction);
            }
        }
        let crossed = found.is_some_and(|key| self.nat.entry(key, direction.inverted()).is_some());
        if crossed && a.association == NONE {
            subject.nli.interface = a.src.ip();
        }
    }

    /// Whom an Error means that carries `mri`, perhaps with the NAT-Traversal object of our own message, whose
    /// MRI counts then. The MRI that it has here comes back as well, in the direction of our message.
    /// GIST-7.2.3-07.
    pub(super) fn find_in_error(
        &self,
        nat: Option<&NatTraversal<'_>>,
        mri: &Mri,
        session: SessionId,
        nslp: NslpId,
    ) -> Option<(Key, Mri)> {
        let direction = mri.direction();
        let mri = nat.and_then(NatTraversal::mri).map_or(*mri, |mri| mri.with_direction(direction));
        if let Some(key) = self.find(&mri, session, nslp) {
            return Some((key, mri));
        }
        let key = self.record_of_foreign(&mri.inverted(), session, nslp)?;
        Some((key, self.records.get(key)?.flow.mri(direction)))
    }

    /// Whether a Q-mode message came through NATs that did their work: they name every object with addresses
    /// that is in it, and an MRI that can be understood. GIST-7.2.3-02, GIST-A.4.4.9-06.
    pub(super) fn is_translated(&mut self, a: &Arrival<'_>, message: &Message<'_>) -> bool {
        let Some(nat) = &message.nat_traversal else { return true };
        let there = [
            (ObjectType::NLI, message.nli.is_some()),
            (ObjectType::STACK_CONFIGURATION, message.stack_configuration.is_some()),
        ];
        let missing = there.into_iter().find(|(kind, there)| {
            *there && nat.translated.iter().all(|translated| translated.kind() != *kind)
        });
        if let Some((kind, _)) = missing {
            self.counters.untranslated += 1;
            dropped!(a, "object not translated by the NAT");
            let infos = Infos::one(Info::ObjectType(kind));
            // The address in an NLI that was not translated leads nowhere; where S=1 the packet's does.
            if message.header.s {
                self.refuse_to_source(a, GistError::UNTRANSLATED_OBJECT, infos);
            } else {
                self.refuse(a, GistError::UNTRANSLATED_OBJECT, infos);
            }
            return false;
        }
        if nat.mri().is_none() {
            self.counters.mri_rejected += 1;
            dropped!(a, "MRI in the NAT-Traversal object");
            let info = object_value_info(a.octets, ObjectType::NAT_TRAVERSAL, 8);
            self.refuse_with(a, GistError::VALUE_NOT_SUPPORTED, info);
            return false;
        }
        true
    }

    /// Whether [`Gist::translate`] has something to do.
    pub(super) fn may_be_foreign(&self, message: &Message<'_>) -> bool {
        message.nat_traversal.is_some()
            || !self.nat.entries.is_empty()
            || message.header.kind == MessageType::CONFIRM
                && message.responder_cookie.is_some_and(|cookie| cookie.len() > PLAIN_COOKIE)
    }
}

/// The NAT-Traversal object of a message, for the Error about it: it comes first there as well.
/// GIST-7.2.3-03.
pub(super) fn nat_traversal_of(message: &[u8]) -> Option<NatTraversal<'_>> {
    NatTraversal::parse(&find_object(message, ObjectType::NAT_TRAVERSAL)?).ok()
}

/// Octets of a Responder-Cookie that every one of ours has.
pub(super) const PLAIN_COOKIE: usize = 24;

/// What a Responder-Cookie carries across a NAT, so that nothing has to be remembered meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried<'a> {
    pub(super) port: u16,
    pub(super) mri: Mri,
    pub(super) nli: Nli<'a>,
}

/// Reads it: after the plain cookie the port, the lengths of MRI and NLI in words, then both. Whether it is ours
/// the tag in the plain cookie tells, later. GIST-7.2.3-09.
pub(super) fn carried(cookie: Option<&[u8]>) -> Option<Carried<'_>> {
    let (port, rest) = cookie?.get(PLAIN_COOKIE..)?.split_first_chunk::<2>()?;
    let ([mri, nli], rest) = rest.split_first_chunk::<2>()?;
    let (mri, rest) = rest.split_at_checked(usize::from(*mri) * 4)?;
    let nli = rest.get(..usize::from(*nli) * 4).filter(|nli| nli.len() == rest.len())?;
    Some(Carried {
        port: u16::from_be_bytes(*port),
        mri: mri_parse(mri).ok()?,
        nli: Nli::of_value(nli).ok()?,
    })
}
