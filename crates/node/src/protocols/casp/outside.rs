//! Clients of CASP in other processes. The driver carries their requests as commands and their indications as events.

use std::collections::{BTreeSet, VecDeque};

use signalbox_casp::engine::{Casp, Indication, Input, OwnedIndication, OwnedRequest, RequestOf};
use signalbox_casp::wire::{ClientType, FlowId};
use signalbox_core::{SessionId, Time};

/// Most clients of other processes at one time.
const MAX: usize = 64;
/// Sessions of a client that left of which one call gives up the hold.
const PORTION: usize = 256;

/// Why a client is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RegisterError {
    /// The number is in use.
    #[error("client {0} is in use on this node: stop the one that has it, or take another number")]
    InUse(u8),
    /// The number cannot be used.
    #[error("client {0} is reserved: take one from 1 to 253")]
    Reserved(u8),
    /// The limit is reached.
    #[error("this node has {MAX} clients of other processes already: stop one")]
    TooMany,
    /// The node does not run CASP.
    #[error("this node does not run CASP")]
    NotRunning,
}

/// What a client in another process is informed of.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ClientEvent {
    /// It is registered.
    Registered,
    /// It is not registered; the last event.
    Refused(RegisterError),
    /// An indication of the messaging layer.
    Indication(OwnedIndication),
}

#[derive(Debug)]
struct Client {
    id: u64,
    client: ClientType,
    /// Sessions that it holds.
    held: BTreeSet<(SessionId, FlowId)>,
    /// The flows of sessions that it asked to open and hold, by their tags, until they have an identifier.
    opening: VecDeque<(u64, FlowId)>,
}

/// All clients of other processes. They are few: a list is enough.
#[derive(Debug, Default)]
pub(super) struct Outside {
    all: Vec<Client>,
    /// Sessions that clients held when they left.
    left: VecDeque<(ClientType, SessionId, FlowId)>,
    events: VecDeque<(u64, ClientEvent)>,
}

impl Outside {
    fn find(&mut self, id: u64) -> Option<&mut Client> {
        self.all.iter_mut().find(|one| one.id == id)
    }

    pub(super) fn register(&mut self, id: u64, number: u8, engine: &mut Casp) {
        let client = ClientType(number);
        let refusal = if engine.config().clients.contains(&number) {
            Some(RegisterError::InUse(number))
        } else if !(1..=253).contains(&number) {
            Some(RegisterError::Reserved(number))
        } else if self.all.len() >= MAX || self.find(id).is_some() {
            Some(RegisterError::TooMany)
        } else {
            None
        };
        self.events.push_back((id, refusal.map_or(ClientEvent::Registered, ClientEvent::Refused)));
        if refusal.is_none() {
            tracing::info!(client = number, "client registered");
            engine.register(client);
            self.all.push(Client { id, client, held: BTreeSet::new(), opening: VecDeque::new() });
        }
    }

    pub(super) fn request(&mut self, now: Time, id: u64, request: &OwnedRequest, engine: &mut Casp) {
        let Some(one) = self.find(id) else {
            return tracing::debug!(id, reason = "no such client", "request discarded");
        };
        match request {
            RequestOf::Send(send) if send.hold => match send.session {
                Some(session) => drop(one.held.insert((session, send.flow))),
                None => one.opening.push_back((send.tag, send.flow)),
            },
            RequestOf::Hold { session, flow, on: true } => drop(one.held.insert((*session, *flow))),
            RequestOf::Hold { session, flow, on: false } => drop(one.held.remove(&(*session, *flow))),
            RequestOf::Move { session, from, to } => {
                if one.held.remove(&(*session, *from)) {
                    one.held.insert((*session, *to));
                }
            }
            RequestOf::Send(_) | RequestOf::Verdict { .. } | RequestOf::KeepBranches { .. } => {}
        }
        engine.handle(now, Input::Request { client: one.client, request: request.lend() });
    }

    /// A client ends. Its number is free at once; its sessions are given up in portions.
    pub(super) fn leave(&mut self, id: u64, engine: &mut Casp) {
        let Some(at) = self.all.iter().position(|one| one.id == id) else { return };
        let one = self.all.swap_remove(at);
        tracing::info!(client = one.client.0, "client left");
        engine.unregister(one.client);
        self.left.extend(one.held.into_iter().map(|(session, flow)| (one.client, session, flow)));
    }

    /// Gives up some sessions of clients that left. False if there were none.
    pub(super) fn give_up(&mut self, now: Time, engine: &mut Casp) -> bool {
        let some = self.left.len().min(PORTION);
        for (client, session, flow) in self.left.drain(..some) {
            let request = RequestOf::Hold { session, flow, on: false };
            engine.handle(now, Input::Request { client, request });
        }
        some > 0
    }

    /// Takes an indication for a client of another process, if one has the number.
    pub(super) fn indication(&mut self, client: ClientType, indication: &Indication<'_>) {
        let Some(one) = self.all.iter_mut().find(|one| one.client == client) else { return };
        match indication {
            Indication::Opened { tag, session } => {
                if let Some(at) = one.opening.iter().position(|(own, _)| own == tag)
                    && let Some((_, flow)) = one.opening.remove(at)
                {
                    one.held.insert((*session, flow));
                }
            }
            Indication::Refused { tag, .. } => one.opening.retain(|(own, _)| own != tag),
            Indication::Ended { session, flow, .. } => drop(one.held.remove(&(*session, *flow))),
            Indication::Received(_)
            | Indication::Error { .. }
            | Indication::Branch { .. }
            | Indication::Undelivered { .. } => {}
        }
        let id = one.id;
        self.events.push_back((id, ClientEvent::Indication(indication.own())));
    }

    pub(super) fn take_event(&mut self) -> Option<(u64, ClientEvent)> {
        self.events.pop_front()
    }

    pub(super) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }
}
