//! `signalbox watch`.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use signalbox_api::gist::v1::Peer;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_api::v1::watch_events_response::Event;

use super::Run;
use crate::arguments::{NodeArgs, OutputArgs, values};
use crate::client::{self, Termination, answer, block_on, refusal};
use crate::exit::{Exit, exit_status};
use crate::print::style::{Tone, paint};
use crate::print::{decision, enum_text, flows, identifier, json_event, or_dash, rate, time_of_day};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct WatchArgs {
    /// What to watch.
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// Only changes, not what stands at the beginning.
    #[arg(long)]
    changes: bool,
    /// End after this time; without it, at Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = values::time)]
    time: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Everything below.
    All,
    /// Reservations of all protocols.
    Reservations,
    /// Interfaces: their state and capacity.
    Interfaces,
    /// Sessions of all protocols, when their state appears, changes and disappears.
    Sessions,
    /// Decisions of all protocols: what was granted, changed, refused, lost and ended, and why.
    Decisions,
    /// Peers of GIST.
    Peers,
    /// Messaging associations of GIST.
    Associations,
    /// Sessions, peers and associations of GIST.
    Gist,
    /// Sessions, reservations and decisions of the QoS NSLP.
    Qos,
    /// Sessions, reservations and decisions of RSVP.
    Rsvp,
    /// Sessions, reservations and decisions of Boomerang.
    Boomerang,
    /// Sessions, reservations and decisions of CASP.
    Casp,
    /// Sessions and decisions of the NATFW NSLP.
    Natfw,
}

/// What is watched of one protocol. A refusal is no change of a session or reservation, but a decision.
const OF_PROTOCOL: [v1::WatchKind; 3] =
    [v1::WatchKind::Sessions, v1::WatchKind::Reservations, v1::WatchKind::Decisions];

const HELP: &str = concat!(
    exit_status!("watched until the end", "the daemon ended"),
    "EXAMPLES:\n",
    "  signalbox watch\n",
    "  signalbox watch reservations --changes\n",
    "  signalbox watch --json | jq 'select(.type == \"reservation_ended\")'\n",
    "  signalbox watch decisions --changes\n",
    "  signalbox watch qos --for 10s\n\n",
    "The first lines are what stands, then `synced`, then each change. A line that begins with `lost` says how many changes\n",
    "were lost before it, because this command or the daemon could not keep up. Times are UTC.",
);

impl What {
    fn request(self, initial_state: bool) -> v1::WatchEventsRequest {
        let (kinds, protocol) = match self {
            Self::All => (vec![], None),
            Self::Reservations => (vec![v1::WatchKind::Reservations], None),
            Self::Interfaces => (vec![v1::WatchKind::Interfaces], None),
            Self::Sessions => (vec![v1::WatchKind::Sessions], None),
            Self::Decisions => (vec![v1::WatchKind::Decisions], None),
            Self::Peers => (vec![v1::WatchKind::Peers], None),
            Self::Associations => (vec![v1::WatchKind::Associations], None),
            Self::Gist => {
                let kinds = [v1::WatchKind::Sessions, v1::WatchKind::Peers, v1::WatchKind::Associations];
                (kinds.to_vec(), Some(v1::Protocol::Gist))
            }
            Self::Qos => (OF_PROTOCOL.to_vec(), Some(v1::Protocol::Qos)),
            Self::Rsvp => (OF_PROTOCOL.to_vec(), Some(v1::Protocol::Rsvp)),
            Self::Boomerang => (OF_PROTOCOL.to_vec(), Some(v1::Protocol::Boomerang)),
            Self::Casp => (OF_PROTOCOL.to_vec(), Some(v1::Protocol::Casp)),
            Self::Natfw => (OF_PROTOCOL.to_vec(), Some(v1::Protocol::Natfw)),
        };
        v1::WatchEventsRequest {
            protocols: protocol.map(Into::into).into_iter().collect(),
            kinds: kinds.into_iter().map(Into::into).collect(),
            initial_state,
        }
    }
}

impl Run for WatchArgs {
    fn run(self) -> Result<Exit> {
        block_on(watch(&self))
    }
}

async fn watch(arguments: &WatchArgs) -> Result<Exit> {
    let mut termination = Termination::new(arguments.time)?;
    let mut client = NodeClient::new(client::channel(&arguments.node.socket).await?);
    let request = arguments.what.request(!arguments.changes);
    let mut events = answer(client.watch_events(request).await)?;
    let mut out = std::io::stdout();
    loop {
        let event = tokio::select! {
            event = events.message() => event.map_err(refusal)?,
            () = termination.wait() => return Ok(Exit::Yes),
        };
        let Some(event) = event else { return Ok(Exit::No) };
        if arguments.output.json {
            json_event(&mut out, &event)?;
        } else {
            text(&mut out, &event)?;
        }
        out.flush()?;
    }
}

/// Prints an event with its time, and before it how many were lost.
fn text(out: &mut impl Write, event: &v1::WatchEventsResponse) -> std::io::Result<()> {
    if event.lost > 0 {
        writeln!(out, "{} {} changes before this one", paint(Tone::Bad, "lost"), event.lost)?;
    }
    match event.event.as_ref().and_then(line) {
        Some(line) => writeln!(out, "{} {line}", time_of_day(event.time_unix_us)),
        None => Ok(()),
    }
}

/// The line of an event; `None` for one without content.
fn line(event: &Event) -> Option<String> {
    Some(match event {
        Event::Synced(_) => "synced".to_owned(),
        Event::ReservationChanged(changed) => {
            let row = changed.reservation.as_ref()?;
            format!(
                "reservation {}: {} {} at {}, {}{}",
                row.id,
                enum_text(row.protocol().as_str_name(), "PROTOCOL_"),
                or_dash(row.traffic.map(|traffic| rate(traffic.rate_octets_per_s))),
                or_dash(row.interface.as_ref().map(|interface| &interface.name)),
                flows(&row.flows),
                if row.enforced { "" } else { ", not in the kernel" },
            )
        }
        Event::Decided(decided) => decision(&signalbox_json::value(decided.decision.as_ref()?).ok()?),
        Event::ReservationEnded(ended) => format!("reservation {}: ended", ended.id),
        Event::InterfaceChanged(changed) => {
            let row = changed.interface.as_ref()?;
            format!(
                "interface {}: {}, capacity {}, {} reserved",
                or_dash(row.interface.as_ref().map(|interface| &interface.name)),
                if row.up { "up" } else { "down" },
                or_dash(row.capacity_octets_per_s.map(rate)),
                rate(row.reserved_octets_per_s),
            )
        }
        Event::InterfaceRemoved(removed) => {
            format!("interface {}: removed", removed.interface.as_ref()?.name)
        }
        Event::SessionOpened(opened) => session(opened.protocol(), opened.nslp_id, &opened.session, "opened"),
        Event::SessionClosed(closed) => session(closed.protocol(), closed.nslp_id, &closed.session, "closed"),
        Event::SessionChanged(changed) => {
            session(changed.protocol(), changed.nslp_id, &changed.session, "changed")
        }
        Event::PeerAppeared(appeared) => peer(appeared.peer.as_ref()?, "appeared"),
        Event::PeerRemoved(removed) => peer(removed.peer.as_ref()?, "removed"),
        Event::AssociationChanged(changed) => {
            let row = changed.association.as_ref()?;
            format!(
                "gist association {} with {}: {}, {}",
                row.channel,
                or_dash(row.peer.as_ref().map(|peer| &peer.address)),
                enum_text(row.stack().as_str_name(), "STACK_"),
                enum_text(row.state().as_str_name(), "ASSOCIATION_STATE_"),
            )
        }
        Event::AssociationRemoved(removed) => format!("gist association {}: removed", removed.channel),
    })
}

fn peer(row: &Peer, what: &str) -> String {
    let interface = or_dash(row.interface.as_ref().map(|interface| &interface.name));
    let address = or_dash(row.peer.as_ref().map(|peer| &peer.address));
    format!("gist peer {} at {address} by {interface}: {what}", identifier(&row.peer_identity))
}

fn session(protocol: v1::Protocol, nslp_id: Option<u32>, session: &str, what: &str) -> String {
    let nslp = nslp_id.map(|id| format!(" of NSLPID {id}")).unwrap_or_default();
    format!("{} session {session}{nslp}: {what}", enum_text(protocol.as_str_name(), "PROTOCOL_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_line() {
        let row =
            v1::Reservation { id: "1f".into(), protocol: v1::Protocol::Qos.into(), ..Default::default() };
        let changed = Event::ReservationChanged(v1::ReservationChanged { reservation: Some(row) });
        let text = line(&changed).unwrap();
        assert!(text.starts_with("reservation 1f: qos") && text.ends_with("not in the kernel"), "{text}");
        let opened =
            v1::SessionOpened { protocol: v1::Protocol::Gist.into(), session: "ab".into(), nslp_id: Some(1) };
        assert_eq!(line(&Event::SessionOpened(opened)).unwrap(), "gist session ab of NSLPID 1: opened");
        let removed = v1::PeerRemoved { peer: Some(Peer { peer_identity: vec![0xab], ..Peer::default() }) };
        assert_eq!(line(&Event::PeerRemoved(removed)).unwrap(), "gist peer ab at - by -: removed");
        let removed = v1::AssociationRemoved { channel: 7 };
        assert_eq!(line(&Event::AssociationRemoved(removed)).unwrap(), "gist association 7: removed");
        let interface =
            v1::Interface { up: true, capacity_octets_per_s: Some(1_250_000), ..Default::default() };
        let changed = Event::InterfaceChanged(v1::InterfaceChanged { interface: Some(interface) });
        assert_eq!(line(&changed).unwrap(), "interface -: up, capacity 10mbit, 0bit reserved");
    }

    /// A refusal has a line of its own, with the time, who asked, and why.
    #[test]
    fn a_decision_is_printed_with_its_time() {
        let row = v1::Decision {
            outcome: v1::Outcome::Refused.into(),
            subject: v1::Subject::Reservation.into(),
            protocol: v1::Protocol::Rsvp.into(),
            neighbor: Some("10.0.1.1".into()),
            proof: Some("link".into()),
            rule: Some("rule 2 'guests'".into()),
            reason: Some("denied".into()),
            ..v1::Decision::default()
        };
        let event = v1::WatchEventsResponse {
            time_unix_us: 50_580_250_000,
            lost: 3,
            event: Some(Event::Decided(v1::Decided { decision: Some(row) })),
        };
        let mut out = Vec::new();
        text(&mut out, &event).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "lost 3 changes before this one\n\
             14:03:00.250 rsvp reservation refused, from 10.0.1.1 by link, rule 2 'guests': denied\n"
        );
    }

    #[test]
    fn a_protocol_is_watched_with_its_reservations_and_refusals() {
        let protocols = [
            (What::Qos, v1::Protocol::Qos),
            (What::Rsvp, v1::Protocol::Rsvp),
            (What::Boomerang, v1::Protocol::Boomerang),
            (What::Casp, v1::Protocol::Casp),
            (What::Natfw, v1::Protocol::Natfw),
        ];
        for (what, protocol) in protocols {
            let request = what.request(true);
            assert_eq!(request.protocols, [i32::from(protocol)]);
            for kind in [v1::WatchKind::Sessions, v1::WatchKind::Reservations, v1::WatchKind::Decisions] {
                assert!(request.kinds.contains(&kind.into()), "{what:?}: {kind:?}");
            }
        }
    }
}
