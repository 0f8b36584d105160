//! A protocol of another crate beside the suite: here a signaling application of GIST, which uses nothing but what is public.
//! `examples/trail` is a protocol with packets of its own.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::handover::Entries;
use signalbox_core::metrics::Gauge;
use signalbox_core::mri::{Mri, PathCoupled};
use signalbox_core::node::{Input as NodeInput, NodeEngine, Output};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::PinholeId;
use signalbox_core::service::{Indication, Request, SendMessage};
use signalbox_core::{Changes, Counter, Entry, NslpId, SessionChange, SessionId, Time};
use signalbox_node::protocol::{
    Composed, Context, Input, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};
use signalbox_node::{Config, ConfigError, Extended, ExtendedCommand, ExtendedEvent, Node};
use signalbox_sim::{Boot, Family, LinkConfig, Sim, topology};

const NSLP: NslpId = NslpId(32_721);
const DATA: [u8; 4] = *b"word";

/// An input that the protocol was given, other than a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Given {
    /// GIST gave the octets of a message, at the end of its flow or not.
    Message(Vec<u8>, bool),
    Rules,
    WallClock(u64),
    LinkSpeeds(usize),
    Stop(bool),
    Handover(Vec<u8>),
}

/// It sends a word along a path, and reports each input that is not about packets.
#[derive(Debug)]
struct Whisper {
    waiting: VecDeque<Mri>,
    given: VecDeque<Given>,
}

impl Protocol for Whisper {
    fn handle(&mut self, _: &mut Context<'_>, input: Input<'_>) {
        let given = match input {
            Input::Indication(Indication::RecvMessage(message)) => {
                Given::Message(message.data.to_vec(), message.at_flow_end)
            }
            Input::Rules => Given::Rules,
            Input::WallClock(wall_clock_us) => Given::WallClock(wall_clock_us),
            Input::LinkSpeeds(speeds) => Given::LinkSpeeds(speeds.len()),
            Input::Stop { handed_over } => Given::Stop(handed_over),
            Input::Handover(mut entries) => Given::Handover(entries.take().unwrap_or_default().to_vec()),
            Input::Indication(Indication::MessageStatus { .. } | Indication::NetworkNotification { .. })
            | Input::Timer
            | Input::Interfaces(_)
            | Input::Packet(_)
            | Input::TransmitFailed { .. }
            | Input::Undeliverable { .. }
            | Input::Route { .. }
            | Input::RouteChanged(_)
            | Input::NeighborMoved { .. }
            | Input::Multicast(_)
            | Input::Stream(_)
            | Input::Grant(_)
            | Input::PinholeOpened { .. }
            | Input::FlowFound { .. }
            | Input::Request(_)
            | Input::HostRequest { .. }
            | Input::HostEvent { .. } => return,
        };
        self.given.push_back(given);
    }

    fn takes(&self, _: Time, _: &Received<'_>) -> bool {
        true
    }

    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners::NEITHER
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        if self.waiting.is_empty() { self.given.front().map(|_| Next::Driver) } else { Some(Next::Gist) }
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        let Some(mri) = self.waiting.pop_front() else { return };
        let message = SendMessage {
            data: &DATA,
            handle: None,
            nslp: NSLP,
            session: SessionId([7; 16]),
            mri,
            state: None,
            sii: None,
            attributes: Default::default(),
            timeout: None,
            ip_ttl: None,
            hops: None,
        };
        to.handle(cx, Input::Request(Request::SendMessage(message)));
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn size(&self) -> Size {
        Size::default()
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    fn counters(&self, _: &mut Vec<Counter>) {}

    fn gauges(&self, _: &mut Vec<Gauge>) {}
}

impl Restart for Whisper {
    fn hand_over(&self, _: Time, to: &mut Entries) {
        to.push(&DATA);
    }

    fn leaves(&self, _: PinholeId) -> bool {
        false
    }

    fn record_stop(&self, _: &mut Context<'_>, _: u32, _: bool) -> Option<u32> {
        None
    }
}

impl Composed for Whisper {
    const NAME: &'static str = "whisper";

    type Config = NslpId;
    /// Source and destination of the flow.
    type Command = (IpAddr, IpAddr);
    type Event = Given;

    fn validate(_: &NslpId) -> Result<(), ConfigError> {
        Ok(())
    }

    fn needs(nslp: &NslpId) -> Needs {
        Needs::of_applications(vec![*nslp])
    }

    fn new(_: NslpId, _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self { waiting: VecDeque::new(), given: VecDeque::new() })
    }

    fn reload(&mut self, _: Time, _: NslpId) {}

    fn command(&mut self, _: &mut Context<'_>, _: u64, (src, dst): (IpAddr, IpAddr)) {
        self.waiting.push_back(Mri::PathCoupled(PathCoupled::between(src, dst)));
    }

    fn poll<E>(
        &mut self,
        _: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Given) -> E,
    ) -> Option<Output<'_, E>> {
        Some(Output::Event(event(0, self.given.pop_front()?)))
    }

    fn not_running(_: &Self::Command) -> Option<Given> {
        None
    }
}

type WhisperNode = Node<Extended<Whisper>>;

fn node(seed: [u8; 32]) -> WhisperNode {
    Node::extended(Config::default(), NSLP, seed).unwrap()
}

/// Its requests go to GIST, and GIST's indications for its number come to it. Ping, beside it, gets none of them.
#[test]
fn an_application_of_another_crate_talks_through_gist() {
    let mut sim: Sim<WhisperNode> = Sim::new(3);
    let nodes: Vec<_> =
        (0..2).map(|n| sim.add_engine(format!("n{n}"), |boot: Boot| node(boot.seed))).collect();
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    sim.run_for(Duration::ZERO);
    let command = (sim.address(nodes[0], Family::V4), sim.address(nodes[1], Family::V4));
    sim.command(nodes[0], ExtendedCommand::Extension { id: 0, command });
    sim.expect("the word", Duration::from_secs(5), |sim| !sim.events().is_empty());
    let event = ExtendedEvent::Extension { id: 0, event: Given::Message(DATA.to_vec(), true) };
    assert!(sim.events().iter().any(|one| one.node == nodes[1] && one.event == event));
}

/// Each protocol gets what the driver gives to the whole node, also that of the other crate.
#[test]
fn what_concerns_each_protocol_comes_to_it_too() {
    let mut before = node([7; 32]);
    let command = |command| NodeInput::Command(ExtendedCommand::Suite(command));
    let reload = signalbox_node::Command::Reload(Box::new(Config::empty()));
    let speeds = signalbox_node::Command::LinkSpeeds(vec![(signalbox_core::IfIndex(2), 1000)]);
    let mut given = Vec::new();
    let mut give = |node: &mut WhisperNode, input: NodeInput<'_, _>| {
        node.handle(Time::ZERO, input);
        while let Some(output) = node.poll() {
            if let Output::Event(ExtendedEvent::Extension { event, .. }) = output {
                given.push(event);
            }
        }
    };
    give(&mut before, command(reload));
    give(&mut before, command(signalbox_node::Command::WallClock(9)));
    give(&mut before, command(speeds));
    give(&mut before, command(signalbox_node::Command::Stop { handed_over: true }));
    let left = before.hand_over(Time::ZERO);
    give(&mut node([8; 32]), NodeInput::Handover(&left));
    let all = [
        Given::Rules,
        Given::WallClock(9),
        Given::LinkSpeeds(1),
        Given::Stop(true),
        Given::Handover(DATA.to_vec()),
    ];
    assert_eq!(given, all);
}

/// The number of an application of the suite is not free, and an application needs GIST.
#[test]
fn an_application_that_gist_cannot_serve_is_refused() {
    let error = |suite, nslp| WhisperNode::extended(suite, nslp, [7; 32]).unwrap_err().to_string();
    let taken = error(Config::default(), NslpId::PING);
    assert_eq!(taken, "NSLPID 32704 is that of ping and of whisper: take another for one of them");
    let alone = error(Config::empty(), NSLP);
    assert_eq!(alone, "whisper is a signaling application of GIST: configure gist, or leave whisper out");
}
