//! The CREATE that an edge sends for an EXTERNAL in proxy mode (RFC 5973 §3.7.6.1).

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, PathCoupled, invariant};
use signalbox_resources::Resources;

use super::Natfw;
use super::plan::Plan;
use super::session::{Kind, Local, Objects, Origin, Request, Session, State};
use super::table::Opening;
use crate::wire::Info;

impl Natfw {
    /// An EXTERNAL was accepted and answered here. In proxy mode the edge sends a CREATE towards the receiver; each refresh
    /// of the EXTERNAL refreshes the CREATE, and nothing else does.
    pub(super) fn proxy_for(&mut self, primary: Key) {
        let Some(session) = invariant!(self.sessions.get(primary), "an answer has a session") else { return };
        if session.kind != Kind::External || !session.request.proxy || !session.plan.answers {
            return;
        }
        let (secondary, lifetime) = (session.secondary, session.accepted);
        let Some(session) = self.sessions.get_mut(secondary) else {
            return self.pending_proxies.push(primary);
        };
        if let Some(local) = invariant!(session.local.as_mut(), "a secondary session begins here") {
            local.lifetime = lifetime;
        }
        self.request_again(secondary);
        self.rearm(secondary);
    }

    /// Makes the CREATE sessions that [`Natfw::proxy_for`] asked for.
    pub(super) fn step_proxies(&mut self, resources: &mut Resources) {
        while let Some(primary) = self.pending_proxies.pop() {
            let Some(opening) = self.sessions.get(primary).and_then(|session| secondary(session, primary))
            else {
                continue;
            };
            let external = self.sessions.get(primary).map(|session| session.id);
            let former = external.and_then(|external| self.former_creates.remove(&external));
            let (id, msn) = match former.filter(|(id, _)| self.find(*id).is_none()) {
                Some((id, msn)) => (id, msn.wrapping_add(1)),
                None => (self.rng.session_id(), self.rng.u32()),
            };
            let mut opening = Opening { id, msn, ..opening };
            if let Some(lease) = opening.plan.lease {
                self.ports.hold(lease);
            }
            opening.plan.forwards = true;
            let Some(key) = self.open(opening, resources) else { continue };
            if let Some(session) =
                invariant!(self.sessions.get_mut(primary), "a primary session outlives this")
            {
                session.secondary = key;
            }
            self.first_request(key);
            self.rearm(key);
        }
    }

    /// The CREATE of an edge failed. Both sessions share their fate, so the initiator of the EXTERNAL is informed.
    pub(super) fn secondary_failed(&mut self, primary: Key, resources: &mut Resources) {
        let Some(session) =
            invariant!(self.sessions.get_mut(primary), "a secondary session has a primary one")
        else {
            return;
        };
        // The caller closes it.
        session.secondary = Key::default();
        self.notify(primary, Info::TERMINATED, false);
        self.close(primary, resources);
    }

    /// Ends the CREATE session of an EXTERNAL that ended.
    pub(super) fn delete_secondary(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return }; // there is perhaps none
        session.msn = session.msn.wrapping_add(1);
        self.send_on(key, 0, None);
        self.close(key, resources);
    }
}

/// The CREATE session for an EXTERNAL: from the sender to the receiver, with the nonce of the EXTERNAL.
fn secondary(session: &Session, primary: Key) -> Option<Opening> {
    let reserved = session.plan.reserved()?;
    let outside = PathCoupled {
        src_prefix: reserved.senders.len,
        protocol: reserved.protocol,
        spi: reserved.spi,
        src_port: reserved.sender_port,
        dst_port: reserved.port,
        direction: Direction::Downstream,
        ..PathCoupled::between(reserved.senders.addr, reserved.address)
    };
    let inside = PathCoupled { dst: reserved.inside.address, dst_port: reserved.inside.port, ..outside };
    let objects = Objects {
        icmp_types: session.request.icmp_types().into(),
        nonce: session.request.nonce(),
        ..Objects::default()
    };
    // The EXTERNAL-PROXY triggers a CREATE, not a CREATE-PROXY.
    let request = Request::new(&Mri::PathCoupled(outside), session.request.efi, objects);
    let lifetime = session.accepted;
    let plan = Plan {
        installs: !reserved.blocks,
        lease: session.plan.lease,
        ..Plan::plain(&Mri::PathCoupled(inside), None, false)
    };
    Some(Opening {
        id: signalbox_core::SessionId::default(),
        kind: Kind::Create,
        request,
        plan,
        source: session.source,
        msn: 0,
        lifetime,
        local: Some(Box::new(Local::new(Origin::Proxy(primary), lifetime))),
    })
    .filter(|_| session.state != State::Transitory)
}
