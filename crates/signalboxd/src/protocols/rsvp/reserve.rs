//! The sender's half of RSVP as a reservation: this node announces the flow, and the reservation is granted when a receiver
//! reserves as much.

use std::collections::VecDeque;
use std::time::Duration;

use signalbox_api::rsvp::v1 as rsvp;
use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;
use signalbox_core::ReserverId;
use signalbox_core::hops::Path;
use signalbox_node::rsvp::{
    Command as RsvpCommand, FlowSpec, Refused, RsvpEvent, SenderRequest, Session, SessionKind,
};
use signalbox_node::{Command, ProtocolId};
use signalbox_show::types;
use tokio::time::Instant;
use tonic::Status;

use super::service::own_address;
use super::{Sessions, convert};
use crate::api::Api;
use crate::api::errors::{FieldError, Reason, stopping};
use crate::api::held::whole;
use crate::api::reserver::{Reserver, Standing, change_refused, only_with, reached};
use crate::api::types::Flow;
use crate::requests::{LoopHandle, Opened};

/// Time in which a receiver has to reserve what a change announces. A Path takes a round trip, and half a second more if one
/// is lost.
const CHANGE: Duration = Duration::from_secs(5);

/// RSVP.
pub(crate) struct Rsvp;

/// A sender of this node, for a client.
struct Announced {
    handle: LoopHandle,
    opened: Opened<Sessions>,
    /// Events that came before the call was answered.
    early: VecDeque<RsvpEvent>,
    sender: SenderRequest,
    /// A change whose answer is not known.
    change: Option<Change>,
    /// What has to be announced again after a change that was refused.
    again: Option<SenderRequest>,
    /// Answers that wait for that.
    answers: VecDeque<Event>,
    /// A receiver has reserved what the sender announces, or announced before the change.
    granted: bool,
    /// What receivers reserve, and who granted it.
    reserved: Option<(FlowSpec, Path)>,
    /// When it ends by itself.
    ends: Option<Instant>,
    releasing: bool,
}

/// A change of the traffic.
struct Change {
    /// What was announced before.
    before: SenderRequest,
    /// When it is refused, because no receiver has reserved it; `None`: nothing was reserved before either.
    until: Option<Instant>,
}

#[tonic::async_trait]
impl Reserver for Rsvp {
    fn id(&self) -> ProtocolId {
        ProtocolId::Rsvp
    }

    fn owner(&self) -> ReserverId {
        ReserverId::RSVP
    }

    async fn open(
        &self,
        api: &Api,
        open: &v1::ReserveOpen,
        _user: Option<u32>,
    ) -> Result<(Event, Box<dyn Standing>), Status> {
        let (session, flow) = session(open)?;
        let source = match flow.src {
            Some(_) => None,
            None => Some(own_address(&api.handle, session.dest).await?),
        };
        let sender = convert::sender(&announcement(open, &flow), source)?;
        let sender = SenderRequest { name_nodes: true, ..sender };
        let mut opened = api.handle.open::<Sessions>(RsvpCommand::Session(session)).await?;
        let mut early = VecDeque::new();
        collect(&mut opened, &mut early)?;
        let id = opened.lease.id;
        let command = Command::Rsvp { id, command: RsvpCommand::Sender(sender.clone()) };
        // The node has handled the command when this returns: a refusal is there, or the Resv of a receiver that has
        // reserved for this session already.
        api.handle.command(command).await?;
        collect(&mut opened, &mut early)?;
        let source = Some(sender.template.src.to_string());
        let flow = v1::FlowSpec { source, ..open.flow.clone().unwrap_or_default() };
        let started =
            v1::ReserveStarted { id: id.to_string(), session_id: None, flow: Some(flow), taken_over: false };
        let ends = open.hold_us.map(|hold| Instant::now() + Duration::from_micros(hold));
        let handle = api.handle.clone();
        let standing = Announced {
            handle,
            opened,
            early,
            sender,
            change: None,
            again: None,
            answers: VecDeque::new(),
            granted: false,
            reserved: None,
            ends,
            releasing: false,
        };
        Ok((Event::Started(started), Box::new(standing)))
    }

    async fn query(&self, _: &Api, _: v1::QueryRequest) -> Result<v1::QueryResponse, Status> {
        Err(FieldError::new("protocol", "RSVP cannot ask without announcing a flow: use qos").into())
    }
}

/// The session of a flow. The flow's other fields are the sender's.
fn session(open: &v1::ReserveOpen) -> Result<(Session, Flow), FieldError> {
    const FLOW: &str = "open.flow";
    let authority = open.authority.clone().unwrap_or_default();
    only_with(
        "qos",
        &[
            ("open.min_rate_octets_per_s", open.min_rate_octets_per_s.is_some()),
            ("open.receiver_initiated", open.receiver_initiated),
            ("open.bidirectional", open.bidirectional),
            ("open.confirm_release", open.confirm_release),
            ("open.authority.session_auth", authority.session_auth.is_some()),
        ],
    )?;
    only_with(
        "casp",
        &[("open.partial", open.partial.is_some()), ("open.start_unix_us", open.start_unix_us.is_some())],
    )?;
    let service = open.service.as_ref().and_then(|service| service.service.as_ref());
    if !matches!(service, None | Some(v1::service::Service::ControlledLoad(_))) {
        return Err(FieldError::new(
            "open.service",
            "with RSVP the receiver chooses the service: leave it out",
        ));
    }
    let flow = Flow::read(FLOW, open.flow.as_ref())?;
    let (_, dest) = flow.hosts(FLOW)?;
    for (part, given) in [
        ("dscp", flow.dscp.is_some()),
        ("spi", flow.spi.is_some()),
        ("flow_label", flow.flow_label.is_some()),
    ] {
        if given {
            return Err(FieldError::new(
                format!("{FLOW}.{part}"),
                "not with RSVP here: use signalbox.rsvp.v1",
            ));
        }
    }
    let protocol = flow.protocol.filter(|protocol| *protocol != 0);
    let session = Session {
        dest,
        protocol: protocol
            .ok_or_else(|| FieldError::new(format!("{FLOW}.ip_protocol"), "RSVP needs one, 1 to 255"))?,
        kind: SessionKind::Ports,
        port: flow.dst_port.unwrap_or(0),
    };
    Ok((session, flow))
}

/// The sender of a flow, as the service of RSVP's own has it.
fn announcement(open: &v1::ReserveOpen, flow: &Flow) -> rsvp::Sender {
    let authority = open.authority.clone().unwrap_or_default();
    let port = flow.src_port.filter(|port| *port != 0);
    let policy = rsvp::PolicyData {
        octets: authority.policy_data.unwrap_or_default(),
        priority: authority.priority,
        identities: authority
            .user
            .map(|name| rsvp::Identity { kind: rsvp::IdentityKind::User.into(), name, locator: None })
            .into_iter()
            .collect(),
    };
    rsvp::Sender {
        filter: Some(rsvp::Filter {
            source: flow.src.map(|src| src.addr.to_string()),
            selector: port.map(|port| rsvp::filter::Selector::SourcePort(port.into())),
        }),
        traffic: open.traffic,
        without_adspec: false,
        ip_ttl: open.ip_ttl,
        policy: Some(policy),
        protect: open.protect,
    }
}

/// Collects the events that wait. A refusal of the session or the sender ends the call.
fn collect(opened: &mut Opened<Sessions>, early: &mut VecDeque<RsvpEvent>) -> Result<(), Status> {
    while let Some(event) = opened.events.waiting() {
        if let RsvpEvent::Refused(refused) = event {
            return Err(refusal(refused));
        }
        early.push_back(event);
    }
    Ok(())
}

fn refusal(refused: Refused) -> Status {
    match refused {
        Refused::BadSource | Refused::SenderTaken => FieldError::new("open.flow.source", refused).into(),
        Refused::BadPolicy => FieldError::new("open.authority", refused).into(),
        Refused::BadFlowspec => FieldError::new("open.traffic", refused).into(),
        Refused::BadSession | Refused::ConflictingPorts => FieldError::new("open.flow", refused).into(),
        Refused::Full => Reason::TableFull.status(refused),
        other => convert::not_registered(other),
    }
}

/// The cause of a request that this node's RSVP refuses.
fn cause(refused: &Refused) -> v1::Cause {
    match refused {
        Refused::ConflictingTypes
        | Refused::ConflictingPorts
        | Refused::ConflictingStyle
        | Refused::SenderTaken => v1::Cause::Conflict,
        _ => v1::Cause::Protocol,
    }
}

/// Whether a reservation is as large as what a sender announces.
fn covers(flowspec: &FlowSpec, sender: &SenderRequest) -> bool {
    flowspec.tspec.rate() >= sender.tspec.rate()
}

fn grant(flowspec: &FlowSpec, path: &Path) -> Event {
    Event::Granted(v1::PathGrant {
        traffic: Some(convert::traffic_to_api(&flowspec.tspec)),
        service: Some(convert::service(flowspec)),
        // A receiver makes the reservation.
        far_end: Some(true),
        hops: path.hops.iter().map(types::hop).collect(),
        gaps: path.gaps,
        ..v1::PathGrant::default()
    })
}

impl Announced {
    fn event(&mut self, event: RsvpEvent) -> Result<Option<Event>, Status> {
        let event = match event {
            RsvpEvent::Resv { flowspec, path, .. } => {
                let event = self.resv(&flowspec, &path);
                self.reserved = Some((flowspec, path));
                return Ok(event);
            }
            RsvpEvent::ResvGone { .. } => {
                self.reserved = None;
                // What was announced last stays announced: a receiver may come again.
                self.change = None;
                let gone = v1::Failure {
                    cause: v1::Cause::Expired.into(),
                    message: "no receiver reserves any more".to_owned(),
                    ..v1::Failure::default()
                };
                return Ok(self.interrupted(gone));
            }
            RsvpEvent::PathError { error, .. } if self.granted => {
                match self.change.take_if(|one| one.until.is_some()) {
                    Some(change) => self.refused(change, convert::failure(error)),
                    // The reservation that a receiver has made is not concerned: RFC 2205 §3.5, Path errors change no state.
                    None => {
                        tracing::debug!(?error, "a path error while a reservation stands");
                        return Ok(None);
                    }
                }
            }
            RsvpEvent::PathError { error, .. } => Event::Failed(convert::failure(error)),
            RsvpEvent::Refused(refused) => match self.change.take() {
                // The node still announces what it did before.
                Some(change) => {
                    self.sender = change.before;
                    change_refused(cause(&refused), &refused.to_string())
                }
                None => return Err(refusal(refused)),
            },
            RsvpEvent::Path { .. }
            | RsvpEvent::PathGone { .. }
            | RsvpEvent::ResvError { .. }
            | RsvpEvent::Confirmed { .. }
            | RsvpEvent::SendersEnded { .. }
            | RsvpEvent::NeighborForgotten { .. } => return Ok(None),
        };
        Ok(Some(event))
    }

    /// A receiver reserves.
    fn resv(&mut self, flowspec: &FlowSpec, path: &Path) -> Option<Event> {
        if covers(flowspec, &self.sender) {
            self.granted = true;
            self.change = None;
            return Some(grant(flowspec, path));
        }
        if self
            .change
            .as_ref()
            .is_some_and(|change| change.until.is_some() && covers(flowspec, &change.before))
        {
            return None; // the answer to the change is not known yet
        }
        self.change = None;
        let less = v1::Failure {
            cause: v1::Cause::Admission.into(),
            message: "the receiver reserves less than the sender announces".to_owned(),
            available_octets_per_s: Some(whole(flowspec.tspec.rate())),
            ..v1::Failure::default()
        };
        self.interrupted(less)
    }

    /// A change was refused on the path: the node announces the former traffic again.
    fn refused(&mut self, change: Change, failure: v1::Failure) -> Event {
        self.sender = change.before.clone();
        self.again = Some(change.before);
        Event::ChangeRefused(failure)
    }

    /// No receiver has reserved what a change announces.
    fn unanswered(&mut self) -> Option<Event> {
        let change = self.change.take()?;
        let failure = v1::Failure {
            cause: v1::Cause::Admission.into(),
            message: format!("no receiver has reserved it within {} s", CHANGE.as_secs()),
            available_octets_per_s: self.reserved.as_ref().map(|(flowspec, _)| whole(flowspec.tspec.rate())),
            ..v1::Failure::default()
        };
        Some(self.refused(change, failure))
    }

    /// A reservation that stood is interrupted.
    fn interrupted(&mut self, failure: v1::Failure) -> Option<Event> {
        std::mem::take(&mut self.granted).then_some(Event::Interrupted(failure))
    }

    async fn announce(&self, sender: SenderRequest) -> Result<(), Status> {
        let id = self.opened.lease.id;
        self.handle.post(Command::Rsvp { id, command: RsvpCommand::Sender(sender) }).await
    }
}

#[tonic::async_trait]
impl Standing for Announced {
    async fn next(&mut self) -> Result<Event, Status> {
        loop {
            if self.releasing {
                return Ok(Event::Released(v1::ReserveReleased { confirmed: false }));
            }
            if let Some(former) = self.again.clone() {
                self.announce(former).await?;
                self.again = None;
            }
            if let Some(answer) = self.answers.pop_front() {
                return Ok(answer);
            }
            let event = if let Some(early) = self.early.pop_front() {
                self.event(early)?
            } else {
                let change = self.change.as_ref().and_then(|change| change.until);
                tokio::select! {
                    event = self.opened.events.next() => {
                        let event = event.ok_or_else(stopping)??;
                        self.event(event)?
                    }
                    () = reached(change) => self.unanswered(),
                    () = reached(self.ends) => {
                        self.release().await?;
                        continue;
                    }
                }
            };
            self.answers.extend(event);
        }
    }

    async fn change(&mut self, traffic: &v1::TokenBucket) -> Result<Option<Event>, Status> {
        let tspec = convert::traffic("change.traffic", Some(traffic))?;
        let changed = SenderRequest { tspec, ..self.sender.clone() };
        self.announce(changed.clone()).await?;
        // Of several changes without an answer the last counts.
        let before = self.change.take().map_or_else(|| self.sender.clone(), |change| change.before);
        self.again = None;
        self.sender = changed;
        let covered = |(reserved, _): &&(FlowSpec, Path)| self.granted && covers(reserved, &self.sender);
        if let Some((reserved, path)) = self.reserved.as_ref().filter(covered) {
            // Receivers reserve as much already. If the node refuses the change, that is said after this.
            self.change = Some(Change { before, until: None });
            return Ok(Some(grant(reserved, path)));
        }
        let until = self.granted.then(|| Instant::now() + CHANGE);
        self.change = Some(Change { before, until });
        Ok(None)
    }

    async fn release(&mut self) -> Result<(), Status> {
        let id = self.opened.lease.id;
        self.handle.post(Command::Rsvp { id, command: RsvpCommand::ReleaseSender }).await?;
        self.releasing = true;
        Ok(())
    }

    async fn close(self: Box<Self>) {
        self.opened.lease.close().await;
    }
}
