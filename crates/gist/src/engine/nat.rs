//! Peers behind a GIST-aware NAT (RFC 5971 §7.2.2, §7.2.3). The two sides of the NAT have different MRIs for one flow. The
//! NAT translates Query and Response. All later messages have the MRI of the Querying node, which the Responding node
//! translates when it receives and sends.
//!
//! For sessions without NAT the tables stay empty. Each direction of each session has at most one entry, so that the limit
//! of sessions also limits these tables.

use std::collections::BTreeMap;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, NslpId, SessionId, invariant};

use super::Gist;
use super::receive::{Arrival, Subject};
use super::routing::{NONE, side};
use crate::wire::{
    GistError, Info, Infos, Message, MessageType, NatTraversal, Nli, ObjectType, find_object, mri_parse,
    object_value_info,
};

/// The flow of a message on the other side of a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Foreign {
    /// The MRI on the other side of the NAT, in the direction of the message.
    pub(super) mri: Mri,
    /// UDP source port of the translated Query.
    pub(super) port: u16,
}

/// The MRI that the peer has for one direction of a session.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The MRI, in the direction of messages from the peer.
    mri: Mri,
    session: SessionId,
    nslp: NslpId,
    /// Messages have this MRI, since this node is the Responding node.
    sent_by_us: bool,
}

/// The sessions with a peer behind a NAT.
#[derive(Debug, Default)]
pub(super) struct Translations {
    /// By session and direction of the state.
    entries: BTreeMap<(u64, usize), Entry>,
    /// Records by the peer's MRI, session and application.
    sessions: BTreeMap<(Mri, SessionId, NslpId), Key>,
}

impl Translations {
    /// The MRI for messages to the peer of this direction: `own`, or the peer's MRI.
    pub(super) fn mri_for_peer(&self, key: Key, direction: Direction, own: Mri) -> Mri {
        let entry = self.entries.get(&(key.to_u64(), side(direction))).filter(|entry| entry.sent_by_us);
        entry.map_or(own, |entry| entry.mri.with_direction(direction))
    }

    fn entry(&self, key: Key, direction: Direction) -> Option<&Entry> {
        self.entries.get(&(key.to_u64(), side(direction)))
    }

    /// Whether there is a NAT between this node and the peer of one direction of a session.
    pub(super) fn has(&self, key: Key, direction: Direction) -> bool {
        self.entry(key, direction).is_some()
    }

    /// Removes the entry of one direction of a session.
    pub(super) fn remove(&mut self, key: Key, direction: Direction) {
        let Some(old) = self.entries.remove(&(key.to_u64(), side(direction))) else { return };
        let triple = (old.mri, old.session, old.nslp);
        if self.sessions.get(&triple) == Some(&key) {
            self.sessions.remove(&triple);
        }
    }
}

impl Gist {
    /// Stores the MRI that the peer of a direction has, if a handshake showed that it is behind a NAT. `sent_by_us`: this
    /// node is the Responding node, and its messages have that MRI. GIST-7.2.2-06, GIST-7.2.3-08.
    pub(super) fn note_translation(
        &mut self,
        key: Key,
        direction: Direction,
        foreign: Option<Foreign>,
        sent_by_us: bool,
    ) {
        self.nat.remove(key, direction);
        let record =
            invariant!(self.records.get(key), "the flow of a peer is noted in a session that stands");
        let (Some(record), Some(foreign)) = (record, foreign) else { return };
        let mri = foreign.mri.with_direction(direction.inverted());
        let entry = Entry { mri, session: record.session, nslp: record.nslp, sent_by_us };
        if sent_by_us {
            self.nat.sessions.insert((mri, record.session, record.nslp), key);
        }
        self.nat.entries.insert((key.to_u64(), side(direction)), entry);
    }

    /// The MRI that the peer of a direction has for the flow, if it is behind a NAT.
    pub(super) fn foreign_mri(&self, key: Key, direction: Direction) -> Option<Mri> {
        Some(self.nat.entry(key, direction)?.mri.with_direction(Direction::Downstream))
    }

    /// The record of a peer's MRI. `mri` has the direction of messages from the peer.
    fn record_of_foreign(&self, mri: &Mri, session: SessionId, nslp: NslpId) -> Option<Key> {
        let key = self.nat.sessions.get(&(*mri, session, nslp)).copied();
        key.filter(|key| invariant!(self.records.get(*key), "an MRI of a peer leads to a session").is_some())
    }

    /// Translates MRI and NLI of a message from behind a NAT to those of this side (RFC 5971 §7.2.2, §7.2.3), before
    /// routing state is looked up.
    ///
    /// * Query: the NAT has translated the MRI; the sender's MRI is in the NAT-Traversal object.
    /// * Response: the MRI of this side is in the NAT-Traversal object (GIST-7.2.3-07).
    /// * Confirm: neither MRI nor NLI are translated, but the Responder-Cookie contains both (GIST-7.2.3-09).
    /// * Data: the MRI is that of the Querying node (GIST-7.2.2-06), and the address in its NLI is not usable here.
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
            _ => match parse_translation(message.responder_cookie) {
                Some(translation) => {
                    subject.foreign = Some(Foreign { mri: subject.mri, port: translation.port });
                    subject.mri = translation.mri;
                    subject.nli = translation.nli;
                    a.src.set_port(translation.port);
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
        let mut found = self.records.find(&subject.mri, session, nslp);
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

    /// The record that an Error with `mri` is about, and its MRI on this side, in the direction of this node's message. If
    /// the Error has a NAT-Traversal object, the MRI in it is used (RFC 5971 §7.2.3). GIST-7.2.3-07.
    pub(super) fn find_in_error(
        &self,
        nat: Option<&NatTraversal<'_>>,
        mri: &Mri,
        session: SessionId,
        nslp: NslpId,
    ) -> Option<(Key, Mri)> {
        let direction = mri.direction();
        let mri = nat.and_then(NatTraversal::mri).map_or(*mri, |mri| mri.with_direction(direction));
        if let Some(key) = self.records.find(&mri, session, nslp) {
            return Some((key, mri));
        }
        let key = self.record_of_foreign(&mri.inverted(), session, nslp)?;
        Some((key, self.records.get(key)?.flow.mri(direction)))
    }

    /// Checks that the NATs on the path translated a Q-mode message completely: the NAT-Traversal object lists every object
    /// with addresses and has a valid MRI (RFC 5971 §7.2.3). GIST-7.2.3-02, GIST-A.4.4.9-06.
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
            // An address in an NLI that was not translated is not reachable; with S=1 the source address of the packet is.
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

    /// Whether [`Gist::translate`] is needed for a message.
    pub(super) fn may_be_foreign(&self, message: &Message<'_>) -> bool {
        message.nat_traversal.is_some()
            || !self.nat.entries.is_empty()
            || message.header.kind == MessageType::CONFIRM
                && message.responder_cookie.is_some_and(|cookie| cookie.len() > PLAIN_COOKIE)
    }
}

/// The NAT-Traversal object of a message, which is also the first object of an Error about it (RFC 5971 §7.2.3).
/// GIST-7.2.3-03.
pub(super) fn nat_traversal_of(message: &[u8]) -> Option<NatTraversal<'_>> {
    NatTraversal::parse(&find_object(message, ObjectType::NAT_TRAVERSAL)?).ok()
}

/// Octets of a Responder-Cookie without translated values.
pub(super) const PLAIN_COOKIE: usize = 24;

/// The translated values in a Responder-Cookie. With them this node needs no state until the Confirm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Translation<'a> {
    pub(super) port: u16,
    pub(super) mri: Mri,
    pub(super) nli: Nli<'a>,
}

/// Parses the translated values of a Responder-Cookie: after the plain cookie the port, the lengths of MRI and NLI in
/// words, then both. The tag in the plain cookie is verified later. GIST-7.2.3-09.
pub(super) fn parse_translation(cookie: Option<&[u8]>) -> Option<Translation<'_>> {
    let (port, rest) = cookie?.get(PLAIN_COOKIE..)?.split_first_chunk::<2>()?;
    let ([mri, nli], rest) = rest.split_first_chunk::<2>()?;
    let (mri, rest) = rest.split_at_checked(usize::from(*mri) * 4)?;
    let nli = rest.get(..usize::from(*nli) * 4).filter(|nli| nli.len() == rest.len())?;
    Some(Translation {
        port: u16::from_be_bytes(*port),
        mri: mri_parse(mri).ok()?,
        nli: Nli::of_value(nli).ok()?,
    })
}
