//! A scripted GIST: it records the requests of Ping, and gives made-up indications.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{Interface, RouteQuery};
use signalbox_core::service::{
    AddressValidation, Indication, MessageHandle, MessageStatus, RecvMessage, Request, SendError,
    StateHandle, TransferAttributes,
};
use signalbox_core::{IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_ping::engine::{Command, Config, Input, Output, Ping, PingEvent, PingRequest};
use signalbox_ping::wire::{List, Message, Record};
use signalbox_wire::Writer;

pub(crate) const SRC: &str = "192.0.2.1";
pub(crate) const DST: &str = "203.0.113.9";
pub(crate) const SESSION: SessionId = SessionId([7; 16]);
pub(crate) const WALL_US: u64 = 1_700_000_000_000_000;

/// An output of Ping.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Out {
    Send(Sent),
    Peering,
    Lifetime(SessionId, Duration),
    Lookup(u64, RouteQuery),
    Event(u64, PingEvent),
}

/// A message that Ping sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    pub(crate) nslp: NslpId,
    pub(crate) data: Vec<u8>,
    pub(crate) handle: Option<MessageHandle>,
    pub(crate) session: SessionId,
    pub(crate) mri: Mri,
    pub(crate) state: Option<StateHandle>,
    pub(crate) hops: Option<u8>,
    pub(crate) attributes: TransferAttributes,
    pub(crate) timeout: Option<Duration>,
}

impl Sent {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(&self.data).unwrap()
    }
}

pub(crate) struct Rig {
    pub(crate) ping: Ping,
    pub(crate) now: Time,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let config = Config { wall_clock_us: WALL_US, ..config };
        let mut rig = Self { ping: Ping::new(config, [3; 32]), now: Time::from_secs(1) };
        let interface = |n, text: &str| Interface {
            ifindex: IfIndex(n),
            name: format!("eth{n}"),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: vec![addr(text)],
        };
        let interfaces = [interface(1, "10.0.1.2"), interface(2, "10.0.2.1")];
        assert_eq!(rig.input(Input::Interfaces(&interfaces)), []);
        rig
    }

    /// Gives an input and returns all outputs.
    pub(crate) fn input(&mut self, input: Input<'_>) -> Vec<Out> {
        self.ping.handle(self.now, input);
        let mut outputs = Vec::new();
        while let Some(output) = self.ping.poll() {
            outputs.push(match output {
                Output::RouteLookup { id, query } => Out::Lookup(id, query),
                Output::Event { id, event } => Out::Event(id, event),
                Output::Request(Request::SendMessage(m)) => {
                    assert_eq!(m.data.len() % 4, 0);
                    Out::Send(Sent {
                        nslp: m.nslp,
                        data: m.data.to_vec(),
                        handle: m.handle,
                        session: m.session,
                        mri: m.mri,
                        state: m.state,
                        hops: m.hops,
                        attributes: m.attributes,
                        timeout: m.timeout,
                    })
                }
                Output::Request(Request::Peering { .. }) => Out::Peering,
                Output::Request(Request::SetStateLifetime { session, lifetime, .. }) => {
                    Out::Lifetime(session.unwrap(), lifetime)
                }
                Output::Request(other) => panic!("unexpected {other:?}"),
            });
        }
        assert!(self.ping.poll().is_none(), "extra polls are no-ops");
        outputs
    }

    /// Lets time pass to `ms` milliseconds, where the timer must be due and nothing happens before.
    pub(crate) fn timer_at(&mut self, ms: u64) -> Vec<Out> {
        // The wheel may ask to be woken on the way, to move timers down a level.
        while let Some(next) = self.ping.next_deadline().filter(|next| *next < Time::from_millis(ms)) {
            self.now = next;
            assert_eq!(self.input(Input::Timer), [], "at {next}");
        }
        assert_eq!(self.ping.next_deadline(), Some(Time::from_millis(ms)));
        self.now = Time::from_millis(ms);
        self.input(Input::Timer)
    }

    pub(crate) fn start(&mut self, request: PingRequest) -> Vec<Out> {
        self.input(Input::Command { id: 5, command: Command::Start(request) })
    }

    pub(crate) fn receive(&mut self, message: RecvMessage<'_>) -> Vec<Out> {
        self.input(Input::Indication(Indication::RecvMessage(message)))
    }

    pub(crate) fn status(&mut self, sent: &Sent, status: MessageStatus) -> Vec<Out> {
        let handle = sent.handle.unwrap();
        let nslp = sent.nslp;
        self.input(Input::Indication(Indication::MessageStatus {
            nslp,
            handle,
            session: sent.session,
            status,
        }))
    }

    pub(crate) fn sent(&mut self, sent: &Sent) {
        assert_eq!(self.status(sent, MessageStatus::Sent(TransferAttributes::default())), []);
    }

    pub(crate) fn failed(&mut self, sent: &Sent, error: SendError) -> Vec<Out> {
        self.status(sent, MessageStatus::Failed(error))
    }
}

pub(crate) fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn flow() -> Mri {
    Mri::PathCoupled(PathCoupled::between(addr(SRC), addr(DST)))
}

pub(crate) fn request(count: u32) -> PingRequest {
    PingRequest { src: Some(addr(SRC)), count: Some(count), ..PingRequest::to(addr(DST)) }
}

/// A message that came in by interface 1, two IP hops from its sender.
pub(crate) fn received(data: &[u8], mri: Mri, session: SessionId) -> RecvMessage<'_> {
    RecvMessage {
        data,
        nslp: NslpId::PING,
        session,
        mri,
        check: None,
        state: Some(StateHandle(99)),
        sii: None,
        peer: None,
        peer_address: None,
        attributes: TransferAttributes::default(),
        validation: AddressValidation::default(),
        ip_ttl: 62,
        ip_distance: 2,
        hops: 60,
        ifindex: IfIndex(1),
        at_flow_end: false,
    }
}

pub(crate) fn octets(message: &Message<'_>, add: Option<(List, Record)>) -> Vec<u8> {
    let mut buf = Vec::new();
    message.encode(add, &mut Writer::new(&mut buf));
    buf
}

/// The only output, which must be a message.
pub(crate) fn only_message(outputs: Vec<Out>) -> Sent {
    match <[Out; 1]>::try_from(outputs) {
        Ok([Out::Send(sent)]) => sent,
        other => panic!("expected one message: {other:?}"),
    }
}
