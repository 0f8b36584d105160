//! Clients of CASP in other processes. The driver carries their requests as commands and their indications as events.

use std::collections::{BTreeSet, VecDeque};

use signalbox_casp::engine::{
    Casp, Indication, Input, OwnedIndication, OwnedRequest, RequestOf, SendRequestOf,
};
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
    /// Sessions that it holds. The engine has each of them, so they are not more than its table has.
    held: BTreeSet<(SessionId, FlowId)>,
}

/// All clients of other processes. They are few: a list is enough.
#[derive(Debug, Default)]
pub(super) struct ExternalClients {
    all: Vec<Client>,
    /// Sessions that clients held until they left, or that they need no longer.
    left: VecDeque<(ClientType, SessionId, FlowId)>,
    events: VecDeque<(u64, ClientEvent)>,
}

impl ExternalClients {
    fn find(&mut self, id: u64) -> Option<&mut Client> {
        self.all.iter_mut().find(|one| one.id == id)
    }

    pub(super) fn register(&mut self, id: u64, number: u8, stateless: bool, engine: &mut Casp) {
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
            engine.register(client, stateless);
            self.all.push(Client { id, client, held: BTreeSet::new() });
        }
    }

    pub(super) fn request(&mut self, now: Time, id: u64, request: &OwnedRequest, engine: &mut Casp) {
        let Some(one) = self.find(id) else {
            return tracing::debug!(id, reason = "no such client", "request discarded");
        };
        if let RequestOf::Hold { session, flow, on: false } = request {
            let (client, held) = (one.client, one.held.remove(&(*session, *flow)));
            if held {
                self.left.push_back((client, *session, *flow));
            }
            return;
        }
        engine.handle(now, Input::Request { client: one.client, request: request.lend() });
        // What the engine refused is not held.
        match request {
            RequestOf::Send(SendRequestOf { session: Some(session), flow, hold: true, .. })
            | RequestOf::Hold { session, flow, on: true }
                if engine.holds(one.client, *session, flow) =>
            {
                one.held.insert((*session, *flow));
            }
            RequestOf::Move { session, from, to }
                if !engine.holds(one.client, *session, from) && one.held.remove(&(*session, *from)) =>
            {
                one.held.insert((*session, *to));
            }
            RequestOf::Send(_)
            | RequestOf::Hold { .. }
            | RequestOf::Move { .. }
            | RequestOf::Verdict { .. }
            | RequestOf::Translate { .. }
            | RequestOf::KeepBranches { .. } => {}
        }
    }

    /// A client ends. Its number is free at once; its sessions are given up in portions.
    pub(super) fn leave(&mut self, id: u64, engine: &mut Casp) {
        let Some(at) = self.all.iter().position(|one| one.id == id) else { return };
        let client = self.all.swap_remove(at);
        tracing::info!(client = client.client.0, "client left");
        engine.unregister(client.client);
        self.left.extend(client.held.into_iter().map(|(session, flow)| (client.client, session, flow)));
    }

    /// Gives up some sessions that clients held. One that another client holds goes on. False if there were none.
    pub(super) fn give_up(&mut self, now: Time, engine: &mut Casp) -> bool {
        let portion = self.left.len().min(PORTION);
        for (client, session, flow) in self.left.drain(..portion) {
            if self.all.iter().any(|one| one.held.contains(&(session, flow))) {
                continue;
            }
            let request = RequestOf::Hold { session, flow, on: false };
            engine.handle(now, Input::Request { client, request });
        }
        portion > 0
    }

    /// Takes an indication for a client of another process, if one has the number.
    pub(super) fn indication(&mut self, client: ClientType, indication: &Indication<'_>) {
        let Some(one) = self.all.iter_mut().find(|one| one.client == client) else { return };
        match indication {
            Indication::Opened { session, flow, hold: true, .. } => drop(one.held.insert((*session, *flow))),
            Indication::Ended { session, flow, .. } => drop(one.held.remove(&(*session, *flow))),
            Indication::Opened { .. }
            | Indication::Refused { .. }
            | Indication::Received(_)
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
