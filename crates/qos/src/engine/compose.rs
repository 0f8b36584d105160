//! Composing the messages of a session and giving them to GIST.

use signalbox_core::service::{Security, SiiHandle, StateHandle, TransferAttributes};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, SessionId, invariant};
use signalbox_wire::Writer;

use super::Qos;
use super::outbox::{Parcel, Purpose};
use super::session::{Marks, RequestKind, Session};
use super::waiting::Arrival;
use crate::wire::{
    Carried, GenericFlags, Hops, Info, InfoSpec, Message, MessageFlags, MessageId, MessageType, Rsn, RsnList,
    SessionIds, Source,
};

/// The form of a RESERVE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A new or changed reservation, or a refresh with all objects.
    Full,
    /// A refresh without QSPEC (reduced refresh).
    Reduced,
    /// A tear.
    Tear,
}

/// Contents of a RESERVE or QUERY that do not come from the record of its session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extra<'a> {
    pub(super) rii: Option<u32>,
    pub(super) ack: bool,
    pub(super) scoping: bool,
    pub(super) hops: Option<Hops<'a>>,
    pub(super) msg_id: Option<MessageId>,
    pub(super) bound_msg_id: Option<MessageId>,
    /// Unknown objects with AB=10 of the message that is forwarded.
    pub(super) forwarded: Option<Carried<'a>>,
    /// Remaining GIST hop count.
    pub(super) gist_hops: Option<u8>,
    /// RSN, if it is not that of the session.
    pub(super) rsn: Option<u32>,
    /// The peer, for explicit routing.
    pub(super) sii: Option<SiiHandle>,
    pub(super) lists: Option<(SessionIds<'a>, RsnList<'a>)>,
    /// The caller keeps the composed octets.
    pub(super) keep: bool,
}

/// The destination of a RESPONSE or NOTIFY.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) session: SessionId,
    /// The flow, in the direction of the message.
    pub(super) mri: Mri,
    pub(super) nslp: NslpId,
    pub(super) state: Option<StateHandle>,
    pub(super) sii: Option<SiiHandle>,
    /// Remaining GIST hop count of a message that is forwarded.
    pub(super) gist_hops: Option<u8>,
}

impl Target {
    /// The sender of a received message.
    pub(super) const fn back_to(arrival: &Arrival) -> Self {
        Self {
            session: arrival.session,
            mri: arrival.mri.inverted(),
            nslp: arrival.nslp,
            state: arrival.state,
            sii: None,
            gist_hops: None,
        }
    }

    /// The previous peer of a session, towards the QNI.
    pub(super) fn towards_initiator(session: &Session) -> Self {
        Self {
            session: session.id,
            mri: session.mri().inverted(),
            nslp: session.nslp_previous,
            state: session.state.get(),
            sii: session.explicit_previous(),
            gist_hops: None,
        }
    }

    /// The next peer of a session, towards the QNR.
    pub(super) fn towards_responder(session: &Session) -> Self {
        Self {
            session: session.id,
            mri: session.mri(),
            nslp: session.nslp_next,
            state: session.state.get(),
            sii: None,
            gist_hops: None,
        }
    }
}

impl Qos {
    pub(super) fn attributes(&self) -> TransferAttributes {
        let security = if self.config.secure { Security::Channel } else { Security::None };
        TransferAttributes {
            reliable: self.config.reliable || self.config.secure,
            stateless: false,
            security,
        }
    }

    /// Gives a composed message to GIST. False: the table of messages is full.
    pub(super) fn post(&mut self, parcel: Parcel) -> bool {
        self.send(parcel).is_some()
    }

    /// Composes `message` and gives it to GIST. A message that breaks the grammar is never sent. That would be a
    /// defect of this node; it is counted as overload.
    fn dispatch(
        &mut self,
        message: &Message<'_>,
        keep: bool,
        parcel: impl FnOnce(Vec<u8>) -> Parcel,
    ) -> Option<Vec<u8>> {
        let mut octets = self.out.buffer();
        if message.encode(&mut Writer::new(&mut octets)).is_err() {
            self.counters.overload += 1;
            tracing::debug!(reason = "not encodable", "message dropped");
            self.out.reuse(octets);
            return None;
        }
        let copy = if keep { octets.clone() } else { Vec::new() };
        self.post(parcel(octets)).then_some(copy)
    }

    /// Sends a RESERVE of a session to the next peer (RFC 5974 §5.1.2.1). Returns its octets if the caller keeps them,
    /// else an empty vector; `None` if it could not be sent.
    pub(super) fn send_reserve(&mut self, key: Key, form: Form, extra: Extra<'_>) -> Option<Vec<u8>> {
        let session = invariant!(self.sessions.get(key), "a RESERVE has a session")?;
        let gist_hops = extra.gist_hops.or(session.hops);
        if gist_hops == Some(0) {
            let id = session.id;
            return self.out_of_hops(id);
        }
        let mut octets = self.out.buffer();
        let rsn = Rsn { number: extra.rsn.or(session.rsn_out).unwrap_or(0), epoch: self.epoch };
        let full = form == Form::Full;
        let message = Message {
            flags: MessageFlags(0)
                .with_if(MessageFlags::REPLACE, !session.marks.has(Marks::NO_REPLACE))
                .with_if(MessageFlags::TEAR, form == Form::Tear),
            generic: generic(session)
                .with_if(GenericFlags::ACK_REQ, extra.ack && extra.rii.is_none())
                .with_if(GenericFlags::SCOPING, extra.scoping),
            rsn: Some(rsn),
            rii: extra.rii,
            refresh_period: (form != Form::Tear && session.period_out != DEFAULT_PERIOD_MS)
                .then_some(session.period_out),
            bound_sessions: Carried::bound_sessions(&session.rare.bound),
            session_ids: extra.lists.map(|(sessions, _)| sessions),
            rsns: extra.lists.map(|(_, rsns)| rsns),
            msg_id: extra.msg_id,
            bound_msg_id: extra.bound_msg_id,
            classifier: session.classifier.filter(|_| full),
            qspec: full.then_some(&*session.qspec),
            auth: Carried::auth(if full { &session.rare.auth } else { &[] }),
            hops: extra.hops.filter(|_| full),
            forwarded: extra.forwarded.unwrap_or(Carried::forwarded(&[])),
            refreshed: Carried::refreshed(&session.rare.refreshed),
            ..Message::new(MessageType::RESERVE)
        };
        let encoded = message.encode(&mut Writer::new(&mut octets));
        let copy = if extra.keep { octets.clone() } else { Vec::new() };
        // A tear needs no report of GIST: state at the next node ends in any case. One with explicit routing goes to a
        // peer that is known.
        let purpose = if form == Form::Tear || extra.sii.is_some() {
            Purpose::Unwatched
        } else {
            // No user waits for the answer to a refresh.
            let rii = extra.rii.filter(|rii| session.rare.circling != Some(*rii));
            Purpose::Request { session: key, rii, query: false }
        };
        let parcel = Parcel {
            octets,
            session: session.id,
            nslp: session.nslp_next,
            mri: session.mri(),
            state: if extra.sii.is_some() { None } else { session.state.get() },
            sii: extra.sii,
            hops: gist_hops,
            attributes: self.attributes(),
            timeout: Some(self.config.relay_timeout),
            source: None,
            purpose,
        };
        self.post_checked(key, parcel, encoded.is_ok(), copy)
    }

    /// Sends a QUERY of a session in the direction of `mri` (RFC 5974 §5.1.2.2).
    pub(super) fn send_query(
        &mut self,
        key: Key,
        mri: Mri,
        reserve_init: bool,
        extra: Extra<'_>,
    ) -> Option<Vec<u8>> {
        let session = invariant!(self.sessions.get(key), "a QUERY has a session")?;
        let gist_hops = extra.gist_hops.or(session.query_hops);
        if gist_hops == Some(0) {
            let id = session.id;
            return self.out_of_hops(id);
        }
        let mut octets = self.out.buffer();
        let message = Message {
            flags: MessageFlags(0).with_if(MessageFlags::RESERVE_INIT, reserve_init),
            generic: broken(session, if reserve_init { Marks::BREAK_BEHIND } else { Marks::BREAK })
                .with_if(GenericFlags::SCOPING, extra.scoping),
            rii: extra.rii,
            bound_sessions: Carried::bound_sessions(&session.rare.bound),
            classifier: session.classifier,
            qspec: Some(session.init_qspec()),
            auth: Carried::auth(&session.rare.auth),
            hops: extra.hops,
            forwarded: extra.forwarded.unwrap_or(Carried::forwarded(&[])),
            refreshed: Carried::refreshed(&session.rare.refreshed),
            ..Message::new(MessageType::QUERY)
        };
        let encoded = message.encode(&mut Writer::new(&mut octets));
        let copy = if extra.keep { octets.clone() } else { Vec::new() };
        // A QUERY with RESERVE-INIT goes in the direction opposite to the RESERVEs of its session.
        let nslp =
            if mri.direction() == session.direction { session.nslp_next } else { session.nslp_previous };
        let parcel = Parcel {
            octets,
            session: session.id,
            nslp,
            mri,
            state: session.state.get(),
            sii: None,
            hops: gist_hops,
            attributes: self.attributes(),
            timeout: Some(self.config.relay_timeout),
            source: None,
            purpose: Purpose::Request { session: key, rii: extra.rii, query: true },
        };
        let sent = self.post_checked(key, parcel, encoded.is_ok(), copy)?;
        self.counters.queries_sent += 1;
        Some(sent)
    }

    /// Counts a message that is not sent, because it may pass no further node.
    fn out_of_hops<T>(&mut self, session: SessionId) -> Option<T> {
        self.counters.hop_limit += 1;
        tracing::debug!(%session, reason = "GIST hop count is used up", "message dropped");
        None
    }

    fn post_checked(
        &mut self,
        key: Key,
        mut parcel: Parcel,
        encoded: bool,
        copy: Vec<u8>,
    ) -> Option<Vec<u8>> {
        if !encoded {
            self.counters.overload += 1;
            tracing::debug!(session = %parcel.session, reason = "not encodable", "message dropped");
            self.out.reuse(parcel.octets);
            return None;
        }
        parcel.source = self.sessions.get(key).and_then(|session| session.source.holder);
        // Without a report of GIST a request is repeated as if GIST had sent it, also one that found the table full: its user
        // gets an answer in any case.
        let Some(watched) = self.send(parcel) else {
            return (!copy.is_empty()).then_some(copy);
        };
        if watched
            && let Some(session) = invariant!(self.sessions.get_mut(key), "a sent message has a session")
        {
            session.marks.set(Marks::IN_GIST, true);
        }
        Some(copy)
    }

    /// Sends a request again, octet for octet (RFC 5974 §5.2.4).
    pub(super) fn send_again(&mut self, key: Key, octets: &[u8], kind: RequestKind, rii: Option<u32>) {
        let mut copy = self.out.buffer();
        copy.extend_from_slice(octets);
        let Some(session) = invariant!(self.sessions.get(key), "a repetition has a session") else { return };
        if kind == RequestKind::ReleaseNotice {
            let parcel = whatever(copy, Target::towards_initiator(session), self.attributes());
            self.counters.retransmissions += 1;
            tracing::trace!(session = %parcel.session, request = ?kind, "request sent again");
            self.post(parcel);
            return;
        }
        // A QUERY with RESERVE-INIT goes in the direction opposite to the RESERVEs of its session.
        let session_mri =
            if kind == RequestKind::ReserveInit { session.mri().inverted() } else { session.mri() };
        let query = matches!(kind, RequestKind::Query | RequestKind::ReserveInit);
        let sii = session.explicit_next().filter(|_| kind == RequestKind::Tear);
        let hops = if query { session.query_hops } else { session.hops };
        if hops == Some(0) {
            let id = session.id;
            self.out.reuse(copy);
            return self.out_of_hops(id).unwrap_or_default();
        }
        let parcel = Parcel {
            octets: copy,
            session: session.id,
            nslp: session.nslp_next,
            mri: session_mri,
            state: if sii.is_some() { None } else { session.state.get() },
            sii,
            hops,
            attributes: self.attributes(),
            timeout: Some(self.config.relay_timeout),
            source: None,
            purpose: Purpose::Request { session: key, rii, query },
        };
        self.counters.retransmissions += 1;
        tracing::trace!(session = %parcel.session, request = ?kind, "request sent again");
        self.post_checked(key, parcel, true, Vec::new());
    }

    /// Sends a RESPONSE (RFC 5974 §5.1.2.3).
    pub(super) fn send_response(&mut self, to: Target, message: &Message<'_>) {
        let attributes = self.attributes();
        if self.dispatch(message, false, |octets| whatever(octets, to, attributes)).is_some() {
            self.counters.responses_sent += 1;
        }
    }

    /// Sends a NOTIFY (RFC 5974 §5.1.2.4).
    pub(super) fn send_notify(&mut self, to: Target, message: &Message<'_>) {
        self.post_notify(to, message, false);
    }

    /// Sends a NOTIFY. Returns its octets if the caller keeps them, else an empty vector.
    pub(super) fn post_notify(&mut self, to: Target, message: &Message<'_>, keep: bool) -> Option<Vec<u8>> {
        let attributes = self.attributes();
        let sent = self.dispatch(message, keep, |octets| whatever(octets, to, attributes))?;
        self.counters.notifies_sent += 1;
        Some(sent)
    }

    /// An INFO-SPEC of this node (RFC 5974 §5.1.3.6). The source is the address of the interface by which the message
    /// arrived.
    pub(super) fn info(&self, arrival: &Arrival, info: Info) -> InfoSpec<'static> {
        let address = self.interfaces.on(arrival.ifindex, arrival.mri.dst());
        InfoSpec { info, source: address.map_or(Source::None, Source::Address), specific: &[] }
    }
}

/// Refresh period R without a REFRESH-PERIOD object (RFC 5974 §5.1.2.1).
pub(super) const DEFAULT_PERIOD_MS: u32 = 30_000;

/// The generic flags of messages towards the QNR: BREAK is about the path before this node (RFC 5974 §5.4.1).
pub(super) const fn generic(session: &Session) -> GenericFlags {
    broken(session, Marks::BREAK)
}

/// The generic flags of messages towards the QNI: BREAK is about the whole path.
pub(super) const fn generic_back(session: &Session) -> GenericFlags {
    broken(session, Marks::BREAK).with_if(GenericFlags::BREAK, session.has_gaps())
}

/// The generic flags that a session stores, with BREAK by this mark.
const fn broken(session: &Session, by: Marks) -> GenericFlags {
    GenericFlags(0)
        .with_if(GenericFlags::PROXY, session.marks.has(Marks::PROXY))
        .with_if(GenericFlags::BREAK, session.marks.has(by))
}

fn whatever(octets: Vec<u8>, to: Target, attributes: TransferAttributes) -> Parcel {
    Parcel {
        octets,
        session: to.session,
        nslp: to.nslp,
        mri: to.mri,
        state: if to.sii.is_some() { None } else { to.state },
        sii: to.sii,
        hops: to.gist_hops,
        attributes,
        timeout: None,
        source: None,
        purpose: Purpose::Unwatched,
    }
}
