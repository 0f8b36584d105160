//! NOTIFYs (RFC 5974 §5.4.4).

use signalbox_core::slab::Key;
use signalbox_resources::Resources;

use super::Qos;
use super::compose::{Target, generic};
use super::parked::Meta;
use super::response::failure;
use super::session::{Marks, Stage};
use crate::wire::{Info, InfoSpec, Message, MessageType};

impl Qos {
    pub(super) fn on_notify(&mut self, message: &Message<'_>, meta: &Meta, resources: &mut Resources) {
        let (Some(info), Some(key)) = (message.info, self.find(meta.session)) else {
            self.counters.stray_notifies += 1;
            return;
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let towards_initiator = meta.mri.direction() != session.mri.direction();
        // Errors count only from the peer that the session has there.
        let stranger = towards_initiator && session.onward.is_some() && session.onward != meta.sii;
        if stranger && info.info.is_error() {
            self.counters.stray_notifies += 1;
            return;
        }
        if info.info == Info::ROUTE_CHANGE && towards_initiator {
            if stranger {
                return; // of a branch that this node left: it is the one that was looked for (§3.2.12)
            }
            session.marks.set(Marks::DOUBTED, true);
            if session.marks.has(Marks::QNI) {
                return self.verify_route(key);
            }
        }
        if !towards_initiator {
            if session.stage == Stage::Reserved && !session.is_end() {
                self.pass_notify(key, message, true);
            }
            return;
        }
        if !session.marks.has(Marks::QNI) {
            if session.back.is_some() {
                self.pass_notify(key, message, false);
            }
            return;
        }
        // What to do is the QNI's business: a reservation that is not whole is none (§5.4.4).
        if info.info.is_error() {
            let failure = failure(message, &info);
            self.fail(key, failure, resources);
        }
    }

    /// A NOTIFY goes on, up to the QNI or QNR. §5.4.4 says that none causes another message and §5.2.5.3 that they are
    /// propagated: without the latter the QNI would not hear of a preemption.
    fn pass_notify(&mut self, key: Key, message: &Message<'_>, onward: bool) {
        let Some(session) = self.sessions.get(key) else { return };
        let notify = Message {
            generic: generic(session),
            info: message.info,
            qspec: message.qspec,
            note: message.note,
            forwarded: message.forwarded,
            refreshed: message.refreshed,
            ..Message::new(MessageType::NOTIFY)
        };
        let to = if onward { Target::towards_responder(session) } else { Target::towards_initiator(session) };
        self.send_notify(to, &notify);
    }

    /// Tells the QNI of a reservation that ends here, and that a user here wanted, that it may go (§5.4.4).
    /// Gives the octets, to be sent again.
    pub(super) fn notify_receiver(&mut self, key: Key) -> Option<Vec<u8>> {
        self.notify_back(key, Info::RESERVATION_FAILURE, Some("released by the sender"), true)
    }

    /// Tells the QNI of a session something.
    pub(super) fn notify_initiator(&mut self, key: Key, info: Info, note: Option<&str>) {
        self.notify_back(key, info, note, false);
    }

    /// The same; gives the octets if they are to be kept, else none.
    fn notify_back(&mut self, key: Key, info: Info, note: Option<&str>, keep: bool) -> Option<Vec<u8>> {
        let session = self.sessions.get(key)?;
        session.back?;
        let notify = Message {
            generic: generic(session),
            info: Some(InfoSpec { source: self.own_source(session), ..InfoSpec::from(info) }),
            note: note.filter(|_| self.config.tell_rule),
            ..Message::new(MessageType::NOTIFY)
        };
        let to = Target::towards_initiator(session);
        self.post_notify(to, &notify, keep)
    }
}
