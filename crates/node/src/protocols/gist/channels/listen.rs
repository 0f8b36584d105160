//! The ports that peers connect to: asked for at the start, and again after a while if they could not be had. GIST
//! does not propose a transport that nobody can connect to.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::StreamKind;
use signalbox_gist::engine::{Input as Told, Transport};

use super::outbox::Down;
use super::{Channels, Upper};

/// Time to the second attempt; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// An attempt of which nothing bad was heard for so long has succeeded: drivers only tell failures.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is listened at, as far as is known.
    Up,
    /// It failed; the next attempt is then.
    Waits(Time),
    /// It was tried again; then it will have succeeded.
    Tried(Time),
}

#[derive(Debug)]
pub(super) struct Listener {
    transport: Transport,
    kind: StreamKind,
    port: u16,
    state: State,
    pause: Duration,
}

impl Channels {
    /// The node has addresses: it can be connected to.
    pub(crate) fn listen(&mut self) {
        if !self.listeners.is_empty() {
            return;
        }
        let ports = [
            (Transport::Tcp, StreamKind::Tcp, self.tcp_port),
            (Transport::TlsTcp, StreamKind::Tcp, self.tls_port),
            (Transport::Sctp, StreamKind::Sctp, self.kernel_sctp_port),
        ];
        for (transport, kind, port) in ports {
            let Some(port) = port else { continue };
            self.out.push(Down::Listen(kind, port));
            self.listeners.push(Listener { transport, kind, port, state: State::Up, pause: FIRST_PAUSE });
        }
    }

    pub(crate) fn listen_failed(
        &mut self,
        now: Time,
        (kind, port): (StreamKind, u16),
        upper: &mut impl Upper,
    ) {
        let failed = |listener: &&mut Listener| (listener.kind, listener.port) == (kind, port);
        let Some(listener) = self.listeners.iter_mut().find(failed) else { return };
        self.counters.listen_failed += 1;
        listener.state = State::Waits(now + listener.pause);
        listener.pause = (listener.pause * 2).min(LONGEST_PAUSE);
        upper.tell(now, Told::Listening { transport: listener.transport, on: false });
    }

    pub(super) fn listen_deadline(&self) -> Option<Time> {
        let deadlines = self.listeners.iter().filter_map(|listener| match listener.state {
            State::Up => None,
            State::Waits(at) | State::Tried(at) => Some(at),
        });
        deadlines.min()
    }

    /// Tries again where it is time to, and believes in what did not fail.
    pub(super) fn listen_again(&mut self, now: Time, upper: &mut impl Upper) {
        for listener in &mut self.listeners {
            match listener.state {
                State::Waits(at) if at <= now => {
                    self.out.push(Down::Listen(listener.kind, listener.port));
                    listener.state = State::Tried(now + SILENCE);
                }
                State::Tried(at) if at <= now => {
                    (listener.state, listener.pause) = (State::Up, FIRST_PAUSE);
                    upper.tell(now, Told::Listening { transport: listener.transport, on: true });
                }
                _ => {}
            }
        }
    }
}
