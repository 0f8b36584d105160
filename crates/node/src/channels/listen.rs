//! The ports that peers connect to. The driver is asked for them at the start, and again after a pause if it could not
//! open one. The user of the channels is informed, so that it does not propose a transport whose port is not open.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::StreamKind;

use super::outbox::DriverRequest;
use super::{Channels, Report, Transport, Upper};

/// Pause before the second attempt. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// An attempt has succeeded if no failure was reported for this time: drivers report failures only.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No failure was reported since the last attempt.
    Up,
    /// The last attempt failed. The next one is at this time.
    Waits(Time),
    /// The driver was asked again. Without a failure until this time the port is open.
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
    /// Asks for the ports, once: the node has addresses that peers can connect to.
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
            self.out.push(DriverRequest::Listen(kind, port));
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
        tracing::warn!(?kind, port, retry = ?listener.pause, "peers cannot connect: the port is not open");
        listener.state = State::Waits(now + listener.pause);
        listener.pause = (listener.pause * 2).min(LONGEST_PAUSE);
        upper.take(now, Report::Listening { transport: listener.transport, on: false });
    }

    pub(super) fn listen_deadline(&self) -> Option<Time> {
        let deadlines = self.listeners.iter().filter_map(|listener| match listener.state {
            State::Up => None,
            State::Waits(at) | State::Tried(at) => Some(at),
        });
        deadlines.min()
    }

    /// Asks again for the ports whose pause is over, and reports those that did not fail as open.
    pub(super) fn listen_again(&mut self, now: Time, upper: &mut impl Upper) {
        for listener in &mut self.listeners {
            match listener.state {
                State::Waits(at) if at <= now => {
                    self.out.push(DriverRequest::Listen(listener.kind, listener.port));
                    listener.state = State::Tried(now + SILENCE);
                }
                State::Tried(at) if at <= now => {
                    (listener.state, listener.pause) = (State::Up, FIRST_PAUSE);
                    upper.take(now, Report::Listening { transport: listener.transport, on: true });
                }
                _ => {}
            }
        }
    }
}
