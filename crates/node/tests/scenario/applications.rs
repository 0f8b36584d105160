//! Applications outside of the node: their requests, their events, and the state that is left when they end.

use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::octets::Octets;
use signalbox_core::service::{
    CheckId, IndicationOf, MessageHandle, MessageStatus, NetworkEvent, OwnedIndication, PeeringOf,
    RecvMessageOf, RequestOf, SendError, SendMessageOf, SiiHandle, TransferAttributes,
};
use signalbox_core::{Direction, Mri, NslpId, SessionId};
use signalbox_node::gist::{AssociationConfig, PeeringPolicy, Registration};
use signalbox_node::{ApplicationCommand, ApplicationEvent, Command, Event, Node, RegisterError};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim, topology};

use crate::net::{config, gist, make, sessions, total};

const NSLP: NslpId = NslpId(32_710);
const SESSION: SessionId = SessionId([7; 16]);
const SOON: Duration = Duration::from_secs(5);

/// Nodes in a row with GIST over datagrams and TCP, and the events that their applications received so far.
struct Row {
    sim: Sim<Node>,
    nodes: Vec<NodeId>,
    seen: usize,
}

impl Row {
    fn new(seed: u64, length: usize) -> Self {
        let mut sim = Sim::new(seed);
        let engine = |boot: Boot| {
            let mut config = config();
            gist(&mut config).associations =
                AssociationConfig { tcp_port: Some(270), ..AssociationConfig::default() };
            make(boot, config)
        };
        let nodes: Vec<_> = (0..length).map(|n| sim.add_engine(format!("n{n}"), engine)).collect();
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        Self { sim, nodes, seen: 0 }
    }

    /// A row with an application on the first node, which decides about peering, and one on the last.
    fn with_ends(seed: u64, length: usize) -> Self {
        let mut row = Self::new(seed, length);
        for at in [0, length - 1] {
            row.register(at, 1, NSLP, PeeringPolicy::Always);
            assert_eq!(row.next_event(at), ApplicationEvent::Registered);
        }
        row
    }

    fn command(&mut self, at: usize, id: u64, command: ApplicationCommand) {
        self.sim.command(self.nodes[at], Command::Gist { id, command });
    }

    fn register(&mut self, at: usize, id: u64, nslp: NslpId, policy: PeeringPolicy) {
        let registration = Registration { policy, ..Registration::default() };
        self.command(at, id, ApplicationCommand::Register { nslp, registration });
    }

    fn request(&mut self, at: usize, request: RequestOf<Octets>) {
        self.command(at, 1, ApplicationCommand::Request(request));
    }

    fn flow(&self) -> Mri {
        let ends = [self.nodes[0], self.nodes[self.nodes.len() - 1]];
        let [src, dst] = ends.map(|node| self.sim.address(node, Family::V4));
        Mri::PathCoupled(PathCoupled::between(src, dst))
    }

    fn message(&self, number: u64, data: &[u8]) -> SendMessageOf<Octets> {
        SendMessageOf {
            data: data.into(),
            handle: Some(MessageHandle(number)),
            nslp: NSLP,
            session: SESSION,
            mri: self.flow(),
            state: None,
            sii: None,
            attributes: TransferAttributes::default(),
            timeout: None,
            ip_ttl: None,
            hops: None,
        }
    }

    fn send(&mut self, at: usize, number: u64, data: &[u8]) {
        let message = self.message(number, data);
        self.request(at, RequestOf::SendMessage(message));
    }

    /// The next event of an application, which must belong to this node.
    fn next_event(&mut self, at: usize) -> ApplicationEvent {
        let seen = self.seen;
        self.sim.expect("an application has an event", SOON, |sim| sim.events().len() > seen);
        self.seen += 1;
        let happened = &self.sim.events()[seen];
        let Event::Gist { id: 1, event } = &happened.event else { panic!("{happened:?}") };
        assert_eq!(happened.node, self.nodes[at], "{event:?}");
        event.clone()
    }

    fn indication(&mut self, at: usize) -> OwnedIndication {
        match self.next_event(at) {
            ApplicationEvent::Indication(indication) => indication,
            other => panic!("an indication was expected, not {other:?}"),
        }
    }

    /// The next event, which must be a received message.
    fn receive(&mut self, at: usize) -> RecvMessageOf<Octets> {
        match self.indication(at) {
            IndicationOf::RecvMessage(message) => message,
            other => panic!("a message was expected, not {other:?}"),
        }
    }

    fn status(&mut self, at: usize) -> (u64, MessageStatus) {
        match self.indication(at) {
            IndicationOf::MessageStatus { nslp: NSLP, handle, session: SESSION, status } => {
                (handle.0, status)
            }
            other => panic!("a status was expected, not {other:?}"),
        }
    }

    fn notified(&mut self, at: usize) -> (Direction, NetworkEvent) {
        match self.indication(at) {
            IndicationOf::NetworkNotification { nslp: NSLP, mri, session: SESSION, event } => {
                (mri.direction(), event)
            }
            other => panic!("a notification was expected, not {other:?}"),
        }
    }

    fn quiet(&mut self) {
        self.sim.run_for(SOON);
        assert_eq!(self.sim.events()[self.seen..], []);
    }

    /// Sends a message from the first node to the last, and returns the SII handle of the last node's upstream peer.
    fn exchange(&mut self) -> SiiHandle {
        let last = self.nodes.len() - 1;
        self.send(0, 9, b"good day");
        let mut seen = [None, None];
        for _ in 0..4 {
            self.sim.run_for(Duration::ZERO);
            let before = self.seen;
            self.sim.expect("the handshake and the message", SOON, |sim| sim.events().len() > before);
            let happened = &self.sim.events()[before];
            let at = usize::from(happened.node == self.nodes[last]);
            let Event::Gist { event: ApplicationEvent::Indication(indication), .. } = &happened.event else {
                panic!("{happened:?}")
            };
            match indication {
                IndicationOf::NetworkNotification { event: NetworkEvent::Good(sii), .. } => {
                    seen[at] = Some(*sii);
                }
                IndicationOf::MessageStatus { status, .. } => {
                    assert_eq!((at, *status), (0, MessageStatus::Sent(TransferAttributes::default())));
                }
                IndicationOf::RecvMessage(message) => {
                    assert_eq!((at, message.data.as_slice()), (1, &b"good day"[..]));
                }
                other => panic!("{other:?}"),
            }
            self.seen += 1;
        }
        seen[0].unwrap();
        seen[1].unwrap()
    }
}

/// The applications at the ends exchange messages across nodes without the application, in both directions.
#[test]
fn two_applications_exchange_data_along_the_path() {
    let mut row = Row::with_ends(1, 4);
    let up = row.exchange();
    let last = row.nodes[3];
    let state: Vec<_> = row.nodes.iter().map(|node| sessions(&row.sim, *node)).collect();
    assert_eq!(state, [1, 0, 0, 1]);
    assert_eq!(row.sim.engine(last).unwrap().applications().map(|a| a.nslp).collect::<Vec<_>>(), [NSLP]);

    let answer = row.message(3, b"and back");
    let mri = answer.mri.inverted();
    row.request(3, RequestOf::SendMessage(SendMessageOf { mri, ..answer }));
    assert_eq!(row.status(3), (3, MessageStatus::Sent(TransferAttributes::default())));
    let received = row.receive(0);
    assert_eq!((received.data.as_slice(), received.session, received.mri), (&b"and back"[..], SESSION, mri));
    assert!(received.at_flow_end && received.check.is_none() && received.validation.return_routable);
    assert_eq!(received.ip_distance, 2);

    // The message is routed explicitly by the SII handle of the peer (RFC 5971 §7.1.4).
    let message = row.message(4, b"by name.");
    row.request(3, RequestOf::SendMessage(SendMessageOf { mri, sii: Some(up), ..message }));
    assert!(matches!(row.status(3), (4, MessageStatus::Sent(_))));
    assert!(row.receive(0).validation.unchecked_route);
    assert_eq!(total(&row.sim, "applications", "requests"), 3);
}

/// A node in the middle asks its application about each Query, with the payload, and follows the decision.
#[test]
fn an_application_between_decides_about_peering() {
    for accept in [true, false] {
        let mut row = Row::with_ends(2, 3);
        row.register(1, 1, NSLP, PeeringPolicy::Ask);
        assert_eq!(row.next_event(1), ApplicationEvent::Registered);
        row.send(0, 9, b"good day");
        let asked = row.receive(1);
        let check = asked.check.expect("it is asked");
        let decision = if accept { PeeringOf::Accept(None) } else { PeeringOf::Decline(None) };
        row.request(1, RequestOf::Peering { check, decision });
        row.sim.run_for(SOON);
        let receiver = if accept { 1 } else { 2 };
        let seen = row.sim.events()[row.seen..].iter().find_map(|h| match &h.event {
            Event::Gist {
                event: ApplicationEvent::Indication(IndicationOf::RecvMessage(message)), ..
            } => Some((h.node, message.data.clone())),
            _ => None,
        });
        assert_eq!(seen, Some((row.nodes[receiver], b"good day"[..].into())));
        // An answer to a check that does not exist has no effect.
        let check = CheckId(check.0 + 1);
        row.request(1, RequestOf::Peering { check, decision: PeeringOf::Accept(None) });
        assert_eq!(row.sim.engine(row.nodes[1]).unwrap().counter("gist", "checks_stale"), 1);
    }
}

/// GIST-9-02: 0 and the upper half of the identifiers have no owner; every other identifier has one owner.
#[test]
fn numbers_in_use_and_reserved_ones_are_refused() {
    let mut row = Row::new(3, 1);
    for (id, nslp, error) in [
        (1, NslpId(0), RegisterError::Reserved(NslpId(0))),
        (1, NslpId(32_768), RegisterError::Reserved(NslpId(32_768))),
        (1, NslpId::PING, RegisterError::InUse(NslpId::PING)),
    ] {
        row.register(0, id, nslp, PeeringPolicy::Always);
        assert_eq!(row.next_event(0), ApplicationEvent::Refused(error));
        assert!(error.to_string().contains("32704 to 32767"), "{error}");
    }
    row.register(0, 1, NSLP, PeeringPolicy::Always);
    assert_eq!(row.next_event(0), ApplicationEvent::Registered);
    row.register(0, 1, NslpId(32_711), PeeringPolicy::Always);
    assert_eq!(row.next_event(0), ApplicationEvent::Refused(RegisterError::NameInUse));
    row.register(0, 1, NSLP, PeeringPolicy::Always);
    assert_eq!(row.next_event(0), ApplicationEvent::Refused(RegisterError::InUse(NSLP)));
    for id in 2..=64 {
        row.register(0, id, NslpId(40 + u16::try_from(id).unwrap()), PeeringPolicy::Always);
    }
    row.seen = row.sim.events().len();
    row.command(0, 1, ApplicationCommand::Leave);
    row.register(0, 1, NslpId::QOS, PeeringPolicy::Always);
    assert_eq!(row.next_event(0), ApplicationEvent::Registered);
    row.register(0, 65, NslpId(200), PeeringPolicy::Always);
    let last = row.sim.events().last().map(|h| &h.event);
    let refused = ApplicationEvent::Refused(RegisterError::TooMany(64));
    assert_eq!(last, Some(&Event::Gist { id: 65, event: refused }));
    assert_eq!(total(&row.sim, "applications", "refused"), 6);
}

/// A command with the identifier of another application, or before registration, has no effect.
#[test]
fn a_command_in_the_name_of_another_application_has_no_effect() {
    let mut row = Row::with_ends(4, 2);
    let message = row.message(1, b"data");
    row.request(0, RequestOf::SendMessage(SendMessageOf { nslp: NslpId::PING, ..message }));
    let (mri, lifetime) = (row.flow(), Duration::ZERO);
    let foreign = RequestOf::SetStateLifetime { nslp: NslpId::PING, mri, session: None, lifetime };
    row.request(0, foreign.clone());
    row.command(0, 2, ApplicationCommand::Request(foreign));
    row.command(0, 2, ApplicationCommand::Blocked(true));
    row.command(0, 2, ApplicationCommand::Leave);
    row.quiet();
    assert_eq!(total(&row.sim, "applications", "requests_refused"), 3);
    assert_eq!(total(&row.sim, "applications", "left"), 0);
}

/// The state of an application ends with the application. Its peer is informed that the application is missing, and
/// finds an application that registers again.
#[test]
fn an_application_that_ends_is_gone_at_once() {
    let mut row = Row::with_ends(5, 3);
    row.exchange();
    row.command(2, 1, ApplicationCommand::Leave);
    assert_eq!(sessions(&row.sim, row.nodes[2]), 0);
    assert_eq!(row.sim.engine(row.nodes[2]).unwrap().applications().count(), 0);
    row.send(0, 5, b"anybody?");
    assert!(matches!(row.status(0), (5, MessageStatus::Sent(_))), "no node has the session yet");
    assert_eq!(row.notified(0), (Direction::Downstream, NetworkEvent::CommunicationFailure));
    row.quiet();
    row.request(
        0,
        RequestOf::InvalidateRoutingState {
            nslp: None,
            mri: row.flow(),
            status: signalbox_core::service::InvalidStatus::Bad,
            data: Octets::default(),
            urgent: true,
        },
    );
    assert_eq!(row.notified(0), (Direction::Downstream, NetworkEvent::LastNode));
    row.send(0, 6, b"anybody?");
    assert_eq!(row.notified(0), (Direction::Downstream, NetworkEvent::LastNode));
    assert_eq!(row.status(0), (6, MessageStatus::Failed(SendError::NoNextNode)));

    row.register(2, 1, NSLP, PeeringPolicy::Always);
    assert_eq!(row.next_event(2), ApplicationEvent::Registered);
    row.exchange();
}

/// GIST-4.1.1-01, GIST-4.1.1-03: an application that accepts no messages for a while gets the reliable ones later.
#[test]
fn an_application_that_is_blocked_loses_nothing_reliable() {
    let mut row = Row::with_ends(6, 2);
    row.exchange();
    let reliable = TransferAttributes { reliable: true, ..TransferAttributes::default() };
    let send = |row: &mut Row, number: u64| {
        let message = SendMessageOf { handle: None, ..row.message(number, &number.to_be_bytes()) };
        row.request(0, RequestOf::SendMessage(SendMessageOf { attributes: reliable, ..message }));
    };
    send(&mut row, 0);
    row.sim.run_for(SOON);
    row.command(1, 1, ApplicationCommand::Blocked(true));
    row.seen = row.sim.events().len();
    for number in 1..=50 {
        send(&mut row, number);
    }
    row.quiet();
    row.command(1, 1, ApplicationCommand::Blocked(false));
    for number in 1..=50_u64 {
        assert_eq!(row.receive(1).data.as_slice(), number.to_be_bytes());
    }
    row.quiet();
}

/// `SetStateLifetime` of zero ends the state of this node; the state of the other end stays.
#[test]
fn an_application_ends_its_state() {
    let mut row = Row::with_ends(7, 2);
    row.exchange();
    let (mri, lifetime) = (row.flow(), Duration::ZERO);
    row.request(0, RequestOf::SetStateLifetime { nslp: NSLP, mri, session: Some(SESSION), lifetime });
    row.sim.run_for(Duration::from_millis(1));
    assert_eq!(sessions(&row.sim, row.nodes[0]), 0);
    row.sim.run_for(Duration::from_secs(60));
    assert_eq!(sessions(&row.sim, row.nodes[1]), 0);
}
