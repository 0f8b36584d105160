//! Composing a message, its objects in the order of the grammar (RFC 5974 §5.1).

use signalbox_wire::Writer;

use super::code_points::{GenericFlags, MessageFlags, MessageType, ObjectType};
use super::message::{Message, allowed};
use super::object::{Extensibility, write_object};
use crate::error::EncodeError;

impl Message<'_> {
    /// Appends the message to `w` (RFC 5974 §5.1.2).
    ///
    /// # Errors
    /// [`EncodeError`] if its grammar forbids it or a length does not fit; nothing is appended then.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.check()?;
        let start = w.len();
        let result = self.write(w);
        if result.is_err() {
            w.truncate(start);
        }
        result
    }

    fn check(&self) -> Result<(), EncodeError> {
        if self.generic.contains(GenericFlags::ACK_REQ) {
            if self.rii.is_some() {
                return Err(EncodeError::AckWithRii);
            }
            if !matches!(self.kind, MessageType::RESERVE | MessageType::QUERY) {
                return Err(EncodeError::AckReq);
            }
        }
        let present = [
            (ObjectType::RII, self.rii.is_some()),
            (ObjectType::RSN, self.rsn.is_some()),
            (ObjectType::REFRESH_PERIOD, self.refresh_period.is_some()),
            (ObjectType::BOUND_SESSION_ID, !self.bound_sessions.is_empty()),
            (ObjectType::SESSION_ID_LIST, self.session_ids.is_some()),
            (ObjectType::RSN_LIST, self.rsns.is_some()),
            (ObjectType::MSG_ID, self.msg_id.is_some()),
            (ObjectType::BOUND_MSG_ID, self.bound_msg_id.is_some()),
            (ObjectType::INFO_SPEC, self.info.is_some()),
            (ObjectType::PACKET_CLASSIFIER, self.classifier.is_some()),
            (ObjectType::QSPEC, self.qspec.is_some()),
            (ObjectType::SESSION_AUTH, !self.auth.is_empty()),
        ];
        if let Some((object, _)) =
            present.into_iter().find(|(object, present)| *present && !allowed(self.kind, *object))
        {
            return Err(EncodeError::NotAllowed { object, message: self.kind });
        }
        if self.second_qspec.is_some() && (self.kind != MessageType::QUERY || self.qspec.is_none()) {
            return Err(EncodeError::NotAllowed { object: ObjectType::QSPEC, message: self.kind });
        }
        let missing = match self.kind {
            MessageType::RESERVE => self.rsn.is_none().then_some(ObjectType::RSN),
            MessageType::QUERY => self.qspec.is_none().then_some(ObjectType::QSPEC),
            _ => self.info.is_none().then_some(ObjectType::INFO_SPEC),
        };
        if let Some(object) = missing {
            return Err(EncodeError::Missing { object, message: self.kind });
        }
        if self.kind == MessageType::RESERVE && self.classifier.is_some() && self.qspec.is_none() {
            return Err(EncodeError::ClassifierAlone);
        }
        if self.msg_id.is_some() && self.bound_msg_id.is_some() {
            return Err(EncodeError::TwoMessageIds);
        }
        let sessions = self.session_ids.map_or(0, |list| list.len());
        let rsns = self.rsns.map_or(0, |list| list.len());
        let rsns_needed = self.kind == MessageType::RESERVE || self.rsns.is_some();
        if rsns_needed && sessions != rsns {
            return Err(EncodeError::ListLengths { sessions, rsns });
        }
        Ok(())
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.u8(self.kind.0);
        w.u8(self.flags.0 & MessageFlags::defined(self.kind).0);
        w.u16(self.generic.0 & GenericFlags::DEFINED.0);
        let rsn = |w: &mut Writer<'_>| match self.rsn {
            Some(rsn) => put(w, ObjectType::RSN, |w| rsn.write(w)),
            None => Ok(()),
        };
        // The RSN leads in a RESERVE; in a RESPONSE, where the grammar has one of both, it follows the RII.
        if self.kind == MessageType::RESERVE {
            rsn(w)?;
        }
        if let Some(rii) = self.rii {
            put(w, ObjectType::RII, |w| w.u32(rii))?;
        }
        if self.kind != MessageType::RESERVE {
            rsn(w)?;
        }
        if let Some(period) = self.refresh_period {
            put(w, ObjectType::REFRESH_PERIOD, |w| w.u32(period))?;
        }
        self.bound_sessions.write(w);
        let info = |w: &mut Writer<'_>| self.info.map_or(Ok(()), |info| info.write(w));
        if self.kind == MessageType::RESPONSE {
            info(w)?;
        }
        if let Some(sessions) = self.session_ids {
            put(w, ObjectType::SESSION_ID_LIST, |w| w.bytes(sessions.octets()))?;
        }
        if let Some(rsns) = self.rsns {
            put(w, ObjectType::RSN_LIST, |w| {
                w.u32(rsns.epoch);
                w.bytes(rsns.octets());
            })?;
        }
        for (kind, id) in [(ObjectType::MSG_ID, self.msg_id), (ObjectType::BOUND_MSG_ID, self.bound_msg_id)] {
            if let Some(id) = id {
                put(w, kind, |w| id.write(w))?;
            }
        }
        let classifier = |w: &mut Writer<'_>| match self.classifier {
            Some(classifier) => put(w, ObjectType::PACKET_CLASSIFIER, |w| w.bytes(&[classifier.0, 0, 0, 0])),
            None => Ok(()),
        };
        // A QUERY has its PACKET-CLASSIFIER before the INFO-SPEC, a RESERVE after it.
        if self.kind == MessageType::QUERY {
            classifier(w)?;
        }
        if self.kind != MessageType::RESPONSE {
            info(w)?;
        }
        if self.kind != MessageType::QUERY {
            classifier(w)?;
        }
        for qspec in [self.qspec, self.second_qspec].into_iter().flatten() {
            put(w, ObjectType::QSPEC, |w| w.bytes(qspec))?;
        }
        self.auth.write(w);
        if let Some(hops) = self.hops {
            write_object(w, ObjectType::HOPS, Extensibility::Forward, |w| w.bytes(hops.octets()))?;
        }
        if let Some(note) = self.note {
            write_object(w, ObjectType::NOTE, Extensibility::Forward, |w| w.bytes(note.as_bytes()))?;
        }
        if let Some(available) = self.available {
            write_object(w, ObjectType::AVAILABLE, Extensibility::Forward, |w| w.u64(available))?;
        }
        self.forwarded.write(w);
        self.refreshed.write(w);
        Ok(())
    }
}

/// Appends an object of RFC 5974: all of them have AB=00 (§5.1.3).
fn put(w: &mut Writer<'_>, kind: ObjectType, value: impl FnOnce(&mut Writer<'_>)) -> Result<(), EncodeError> {
    write_object(w, kind, Extensibility::Mandatory, value)
}
