//! `signalbox rsvp receive`.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use signalbox_api::v0;
use signalbox_api::v0::rsvp_request::Request;
use signalbox_api::v0::rsvp_upcall::Upcall;
use signalbox_resources::Rate;

use super::args::{PolicyArgs, SessionArgs, TrafficArgs, sender};
use super::session::{self, Role};
use crate::arguments::rate;
use crate::client::block_on;
use crate::commands::Run;

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Which senders share the reservation.
    #[arg(long, value_enum, default_value_t = Style::Ff)]
    style: Style,
    /// Reserve for this sender only: ADDRESS, ADDRESS/PORT, ADDRESS/label:N or ADDRESS/spi:N; may be repeated.
    #[arg(long = "sender", value_name = "SENDER", value_parser = sender)]
    senders: Vec<v0::RsvpFilter>,
    /// How much, in bits a second: 64kbit, 20mbit [default: as much as the senders announce].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<Rate>,
    /// Guaranteed service with this rate, at least that of the traffic; without it, controlled load.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    guaranteed: Option<Rate>,
    /// Slack: microseconds that nodes may add to the delay of the guaranteed rate (RFC 2212).
    #[arg(long, value_name = "US", requires = "guaranteed")]
    slack: Option<u32>,
    /// Join a multicast group at the interface with this IPv4 address, and reserve for the data that arrives there [default: where the
    /// route to the group leads].
    #[arg(long, value_name = "ADDRESS")]
    join_at: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    /// Fixed filter: a reservation for each sender.
    Ff,
    /// Wildcard filter: one reservation for all senders of the session.
    Wf,
    /// Shared explicit: one reservation for all senders that are named.
    Se,
}

const EXAMPLES: &str = "\
Examples:
  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004
  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004 --sender 192.0.2.1/9 --rate 2mbit --guaranteed 4mbit
  signalbox rsvp receive 232.1.1.1 --proto udp --dport 5004 --style wf --rate 64kbit --json

Without --sender it reserves for every sender that announces itself, as they come and go. A multicast group is joined
for as long as the command runs.

With --json, \"type\" tells the lines apart: waiting; path {sender, traffic, broken: a hop on the way keeps no reservations,
adspec and policy, as in rsvp show and rsvp send}; path-gone {sender}; confirmed {node, style, flowspec, senders};
reservation-error {node, code, value, meaning, in_place, not_guilty, senders, flowspec, policy}; refused {reason}; released. Rates are in bits a second on the command line, in octets a second in JSON. With --flows: waiting
{flows}, and confirmed {flows, seconds} once all are; errors have their port.

Exit status: 0 the reservation (with --flows: each) was confirmed and stood when it ended, 1 it was not or failed, 2 wrong arguments, no
daemon, or the node cannot do it.";

impl Run for ReceiveArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(run(socket, &self))
    }
}

/// Reserves, and prints each upcall.
async fn run(socket: &Path, arguments: &ReceiveArgs) -> Result<ExitCode> {
    let destination = arguments.session.destination;
    if arguments.style == Style::Wf && !arguments.senders.is_empty() {
        bail!("--sender: wildcard reservations name no senders; use --style se or ff");
    }
    if arguments.join_at.is_some() && !destination.is_multicast() {
        bail!("--join-at is for multicast groups, and {destination} is a host");
    }
    let _member = if destination.is_multicast() { Some(join(destination, arguments.join_at)?) } else { None };
    let reservation =
        Reservation { arguments: Arc::new(arguments.clone()), announced: Vec::new(), confirmed: false };
    session::run(socket, &arguments.session, reservation).await
}

/// Makes this host a member of the group. The membership ends when the socket is closed.
fn join(group: IpAddr, at: Option<IpAddr>) -> Result<UdpSocket> {
    let cannot = || format!("cannot join {group}: is there a route to it? --join-at names an interface");
    match (group, at) {
        (IpAddr::V4(group), at @ (None | Some(IpAddr::V4(_)))) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let at = match at {
                Some(IpAddr::V4(at)) => at,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            socket.join_multicast_v4(&group, &at).with_context(cannot)?;
            Ok(socket)
        }
        (IpAddr::V6(group), None) => {
            let socket = UdpSocket::bind(("::", 0))?;
            socket.join_multicast_v6(&group, 0).with_context(cannot)?;
            Ok(socket)
        }
        _ => bail!("--join-at: an IPv4 address, for an IPv4 group"),
    }
}

/// The role of a receiver.
#[derive(Debug, Clone)]
struct Reservation {
    arguments: Arc<ReceiveArgs>,
    /// The senders that announced themselves, and their traffic.
    announced: Vec<(v0::RsvpFilter, v0::RsvpTraffic)>,
    /// The reservation was confirmed, and no error has removed it since.
    confirmed: bool,
}

impl Role for Reservation {
    const REGISTERED: (&'static str, &'static str) = ("waiting", "registered; waiting for senders");
    const FULFILLED: &'static str = "confirmed";

    fn first_requests(&self) -> Vec<Request> {
        let at = self.arguments.join_at.map(|at| v0::RsvpReceiveAt { address: at.to_string() });
        at.map(Request::ReceiveAt).into_iter().chain(self.reserve().map(Request::Reserve)).collect()
    }

    fn upcall(&mut self, upcall: &Upcall) -> Option<Request> {
        match upcall {
            Upcall::Path(path) => self.announce(path),
            Upcall::PathGone(sender) => self.announced.retain(|(known, _)| known != sender),
            Upcall::Confirmed(_) => self.confirmed = true,
            Upcall::ReservationError(error) => self.confirmed &= error.in_place,
            Upcall::Registered(_)
            | Upcall::Refused(_)
            | Upcall::Reserved(_)
            | Upcall::ReservedGone(_)
            | Upcall::PathError(_) => {}
        }
        let senders_changed = matches!(upcall, Upcall::Path(_) | Upcall::PathGone(_));
        senders_changed.then(|| self.reserve().map(Request::Reserve)).flatten()
    }

    fn is_fulfilled(&self) -> bool {
        self.confirmed
    }
}

impl Reservation {
    /// Takes the Path of a sender.
    fn announce(&mut self, path: &v0::RsvpPath) {
        let (Some(sender), Some(traffic)) = (path.sender.clone(), path.traffic) else { return };
        self.announced.retain(|(known, _)| *known != sender);
        self.announced.push((sender, traffic));
    }

    /// The reservation for the senders announced so far; `None` while there is no sender to reserve for.
    fn reserve(&self) -> Option<v0::RsvpReserve> {
        let named = &self.arguments.senders;
        let wanted: Vec<_> =
            self.announced.iter().filter(|(sender, _)| named.is_empty() || named.contains(sender)).collect();
        let flow = |senders: Vec<v0::RsvpFilter>, traffic: Option<v0::RsvpTraffic>| {
            let flowspec = Some(self.flowspec(traffic)?);
            Some(v0::RsvpFlow { flowspec, senders })
        };
        let all = wanted.iter().map(|(_, traffic)| *traffic).reduce(larger);
        let (style, flows) = match self.arguments.style {
            Style::Ff => (
                v0::RsvpStyle::FixedFilter,
                wanted
                    .iter()
                    .filter_map(|(sender, traffic)| flow(vec![sender.clone()], Some(*traffic)))
                    .collect(),
            ),
            Style::Se => {
                let senders: Vec<_> = wanted.iter().map(|(sender, _)| sender.clone()).collect();
                let flow = (!senders.is_empty()).then(|| flow(senders, all)).flatten();
                (v0::RsvpStyle::SharedExplicit, flow.into_iter().collect())
            }
            Style::Wf => {
                (v0::RsvpStyle::WildcardFilter, flow(Vec::new(), all).into_iter().collect::<Vec<_>>())
            }
        };
        if flows.is_empty() {
            return None;
        }
        Some(v0::RsvpReserve {
            style: style.into(),
            flows,
            confirm: true,
            policy: self.arguments.policy.request(),
        })
    }

    /// The flowspec to request for senders that announce `traffic`.
    #[expect(clippy::cast_precision_loss, reason = "rates of links are far below 2^53")]
    fn flowspec(&self, traffic: Option<v0::RsvpTraffic>) -> Option<v0::RsvpFlowspec> {
        let ReceiveArgs { rate, guaranteed, slack, .. } = *self.arguments.as_ref();
        let own = &self.arguments.traffic;
        let traffic = match rate {
            Some(rate) => own.with_rate(rate),
            None => v0::RsvpTraffic {
                burst: own.burst.map_or(traffic?.burst, f64::from),
                peak: own.peak.map(|peak| peak.0 as f64).or(traffic?.peak),
                max_packet: own.max_packet.unwrap_or(traffic?.max_packet),
                min_policed: own.min_policed.unwrap_or(traffic?.min_policed),
                ..traffic?
            },
        };
        Some(v0::RsvpFlowspec {
            traffic: Some(traffic),
            service_rate: guaranteed.map(|rate| rate.0 as f64),
            slack_us: slack.unwrap_or(0),
        })
    }
}

/// Traffic parameters that suffice for either of two senders.
fn larger(a: v0::RsvpTraffic, b: v0::RsvpTraffic) -> v0::RsvpTraffic {
    v0::RsvpTraffic {
        rate: a.rate.max(b.rate),
        burst: a.burst.max(b.burst),
        peak: a.peak.zip(b.peak).map(|(a, b)| a.max(b)),
        min_policed: a.min_policed.min(b.min_policed),
        max_packet: a.max_packet.max(b.max_packet),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        receive: ReceiveArgs,
    }

    fn reservation(line: &str) -> Reservation {
        let words = ["receive", "192.0.2.9", "--proto", "udp"].into_iter().chain(line.split_whitespace());
        let arguments = Arc::new(Line::try_parse_from(words).unwrap().receive);
        Reservation { arguments, announced: Vec::new(), confirmed: false }
    }

    fn path(address: &str, rate: f64) -> v0::RsvpPath {
        let traffic = v0::RsvpTraffic { rate, burst: 3000.0, peak: None, min_policed: 64, max_packet: 1500 };
        v0::RsvpPath { sender: sender(address).ok(), traffic: Some(traffic), ..Default::default() }
    }

    #[test]
    fn only_senders_that_announce_themselves_get_a_reservation() {
        let mut role = reservation("--sender 192.0.2.1/9");
        assert_eq!(role.reserve(), None);
        role.announce(&path("192.0.2.2/9", 1000.0));
        assert_eq!(role.reserve(), None, "another sender");
        role.announce(&path("192.0.2.1/9", 1000.0));
        let reserve = role.reserve().unwrap();
        assert_eq!(reserve.flows.len(), 1);
        assert_eq!(reserve.flows[0].flowspec.unwrap().traffic.unwrap().rate, 1000.0);
    }

    #[test]
    fn shared_reservations_suffice_for_any_sender() {
        for (style, senders) in [("se", 2), ("wf", 0)] {
            let mut role = reservation(&format!("--style {style}"));
            role.announce(&path("192.0.2.1", 1000.0));
            role.announce(&path("192.0.2.2", 2000.0));
            let reserve = role.reserve().unwrap();
            assert_eq!((reserve.flows.len(), reserve.flows[0].senders.len()), (1, senders));
            assert_eq!(reserve.flows[0].flowspec.unwrap().traffic.unwrap().rate, 2000.0);
        }
    }

    #[test]
    fn the_interface_of_a_group_is_requested_before_the_reservation() {
        let role = reservation("--join-at 192.0.2.7 --style wf --rate 64kbit");
        let [Request::ReceiveAt(at), Request::Reserve(_)] = &role.first_requests()[..] else {
            panic!("{:?}", role.first_requests())
        };
        assert_eq!(at.address, "192.0.2.7");
        assert!(
            reservation("--join-at 192.0.2.7").first_requests().len() == 1,
            "no sender to reserve for yet"
        );
    }

    #[test]
    fn a_wildcard_reservation_with_a_rate_waits_for_no_sender() {
        let role = reservation("--style wf --rate 64kbit --guaranteed 80kbit --slack 5");
        let flowspec = role.reserve().unwrap().flows[0].flowspec.unwrap();
        assert_eq!((flowspec.traffic.unwrap().rate, flowspec.service_rate), (8000.0, Some(10_000.0)));
        assert_eq!(flowspec.slack_us, 5);
    }
}
