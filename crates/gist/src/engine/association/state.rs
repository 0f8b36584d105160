//! What is stored of an association in each state of RFC 5971 §6.4, and by the node that opened it.

use signalbox_core::Time;

use super::machine::End;
use super::{AssociationState, PeerKey};

/// The states of RFC 5971 §6.4, each with the timers that run in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// Awaiting Connection: this node opened it, and its protocols are not all established.
    AwaitingConnection {
        /// The end of the time to set it up.
        setup: Time,
    },
    /// Connected for the RFC: a peer opened it, and has not sent the Confirm that names it.
    AwaitingConfirm {
        /// The end of the time to set it up.
        setup: Time,
        hellos: Hellos,
    },
    /// Connected: this node uses it.
    Connected(Hellos),
    /// Idle: only the peer may use it.
    Idle {
        /// `NoHello`.
        no_hello: Time,
    },
    /// Its channel ended. It is found no more, and stays until all sessions that used it are informed.
    Ended(Ended),
}

/// The end of an association.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) end: End,
    /// Messages of this node may not have arrived.
    pub(super) lost: bool,
}

/// MA-Hellos of an association that this node may send messages over (RFC 5971 §4.4.5).
#[derive(Debug, Clone, Copy)]
pub(super) struct Hellos {
    /// `SendHello`; `None`: this node has sent nothing, and the peer has asked for nothing.
    pub(super) send: Option<Time>,
    pub(super) silence: Silence,
}

/// What this node does when it receives no message of the peer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Silence {
    /// Nothing: diagnostic MA-Hellos are off, or no message was received yet.
    Allowed,
    /// It sends a diagnostic MA-Hello at this time.
    Until(Time),
    /// It has sent one, and the association fails at this time without a reply.
    Asked { hello_id: u32, until: Time },
}

impl State {
    /// As operators see it; `None`: it has ended.
    pub(super) const fn shown(&self) -> Option<AssociationState> {
        Some(match self {
            Self::AwaitingConnection { .. } => AssociationState::AwaitingConnection,
            Self::AwaitingConfirm { .. } | Self::Connected(_) => AssociationState::Connected,
            Self::Idle { .. } => AssociationState::Idle,
            Self::Ended(_) => return None,
        })
    }

    /// For the log.
    pub(super) const fn logged(&self) -> &'static str {
        match self {
            Self::AwaitingConnection { .. } => "AwaitingConnection",
            Self::AwaitingConfirm { .. } | Self::Connected(_) => "Connected",
            Self::Idle { .. } => "Idle",
            Self::Ended(_) => "Ended",
        }
    }

    /// How it ended, if it has ended.
    pub(super) const fn ended(&self) -> Option<Ended> {
        match self {
            Self::Ended(ended) => Some(*ended),
            _ => None,
        }
    }

    /// The timers of MA-Hellos, if they run.
    pub(super) const fn hellos(&self) -> Option<&Hellos> {
        match self {
            Self::AwaitingConfirm { hellos, .. } | Self::Connected(hellos) => Some(hellos),
            Self::AwaitingConnection { .. } | Self::Idle { .. } | Self::Ended(_) => None,
        }
    }

    /// The same to change them.
    pub(super) const fn hellos_mut(&mut self) -> Option<&mut Hellos> {
        match self {
            Self::AwaitingConfirm { hellos, .. } | Self::Connected(hellos) => Some(hellos),
            Self::AwaitingConnection { .. } | Self::Idle { .. } | Self::Ended(_) => None,
        }
    }

    /// The end of the time to set it up, while it is not set up.
    pub(super) const fn setup(&self) -> Option<Time> {
        match self {
            Self::AwaitingConnection { setup } | Self::AwaitingConfirm { setup, .. } => Some(*setup),
            Self::Connected(_) | Self::Idle { .. } | Self::Ended(_) => None,
        }
    }

    /// When a message of the peer must have come: `NoHello`, or the time of [`Silence`].
    pub(super) fn watched_until(&self) -> Option<Time> {
        match self {
            Self::Idle { no_hello } => Some(*no_hello),
            _ => self.hellos().and_then(|hellos| hellos.silence.until()),
        }
    }

    /// Defers that time.
    pub(super) fn watch_until(&mut self, later: Time) {
        match self {
            Self::Idle { no_hello } => *no_hello = later,
            _ => {
                if let Some(Silence::Until(at) | Silence::Asked { until: at, .. }) =
                    self.hellos_mut().map(|hellos| &mut hellos.silence)
                {
                    *at = later;
                }
            }
        }
    }

    /// The first of its timers.
    pub(super) fn deadline(&self) -> Option<Time> {
        let hello = self.hellos().and_then(|hellos| hellos.send);
        [self.setup(), hello, self.watched_until()].into_iter().flatten().min()
    }
}

impl Silence {
    const fn until(self) -> Option<Time> {
        match self {
            Self::Allowed => None,
            Self::Until(at) | Self::Asked { until: at, .. } => Some(at),
        }
    }

    /// A message of the peer was received. An MA-Hello without reply still needs one.
    pub(super) const fn defer(&mut self, next: Self) {
        match (&mut *self, next) {
            (Self::Asked { until, .. }, Self::Until(at)) => *until = at,
            (Self::Asked { .. }, _) => {}
            (this, next) => *this = next,
        }
    }

    /// Takes a reply; false: it answers no MA-Hello of this node, or an earlier one.
    pub(super) fn take_reply(&mut self, id: u32) -> bool {
        match *self {
            Self::Asked { hello_id, until } if hello_id == id => {
                *self = Self::Until(until);
                true
            }
            _ => false,
        }
    }
}

/// The node that opened an association.
#[derive(Debug)]
pub(super) enum Origin {
    /// This node, as the Querying node.
    Opened(Opened),
    /// The peer.
    Accepted {
        /// `None`: it has not sent a Confirm.
        peer: Option<PeerKey>,
    },
}

/// What is known of an association that this node opened.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) peer: PeerKey,
    /// The peer offered another transport that could be used as well.
    pub(super) alternative: bool,
    /// The first Confirm was sent over it.
    pub(super) confirmed: bool,
    pub(super) reached: Reached,
}

/// Whether the peer of an association that this node opened was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// No message of the peer was received over it.
    NotYet,
    /// The same, and the security protocol of its channel failed.
    Unproved,
    /// A message of the peer was received over it.
    Yes,
}

impl Origin {
    /// Opened by this node to reach a peer.
    pub(super) const fn opened(peer: PeerKey, alternative: bool) -> Self {
        Self::Opened(Opened { peer, alternative, confirmed: false, reached: Reached::NotYet })
    }

    /// The peer, if it is known.
    pub(super) const fn peer(&self) -> Option<&PeerKey> {
        match self {
            Self::Opened(opened) => Some(&opened.peer),
            Self::Accepted { peer } => peer.as_ref(),
        }
    }
}
