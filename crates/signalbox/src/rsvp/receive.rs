//! `signalbox rsvp receive`.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use signalbox_api::v1;
use signalbox_api::v1::rsvp_request::Request;
use signalbox_api::v1::rsvp_upcall::Upcall;
use signalbox_resources::Rate;

use super::Role;
use super::args::{PolicyArgs, SessionArgs, TrafficArgs, sender};
use crate::reserve::rate;

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
    senders: Vec<v1::RsvpFilter>,
    /// How much, in bits a second: 64kbit, 20mbit [default: as much as the senders announce].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<Rate>,
    /// Guaranteed service with this rate, at least that of the traffic; without it, controlled load.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    guaranteed: Option<Rate>,
    /// Delay in microseconds that may be added to that of the guaranteed rate.
    #[arg(long, value_name = "US", requires = "guaranteed")]
    slack: Option<u32>,
    /// Join a multicast group at the interface with this IPv4 address, and reserve for what comes in there [default: where the
    /// route to the group leads].
    #[arg(long, value_name = "ADDRESS")]
    join_at: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    /// Fixed filter: a reservation for each sender.
    Ff,
    /// Wildcard filter: one for all senders, whoever they are.
    Wf,
    /// Shared explicit: one for all senders that are named.
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

/// Reserves, and prints what happens.
pub(super) async fn run(socket: &Path, arguments: &ReceiveArgs) -> Result<ExitCode> {
    let destination = arguments.session.destination;
    if arguments.style == Style::Wf && !arguments.senders.is_empty() {
        bail!("--sender: wildcard reservations name no senders; use --style se or ff");
    }
    if arguments.join_at.is_some() && !destination.is_multicast() {
        bail!("--join-at: groups are joined, and {destination} is none");
    }
    // The group is left when it is dropped.
    let _member = if destination.is_multicast() { Some(join(destination, arguments.join_at)?) } else { None };
    let wish = Wish { arguments: Arc::new(arguments.clone()), announced: Vec::new(), stands: false };
    super::play(socket, &arguments.session, wish).await
}

/// Makes this host a member of the group.
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

/// What is to be reserved.
#[derive(Debug, Clone)]
struct Wish {
    arguments: Arc<ReceiveArgs>,
    /// Senders that announced themselves, and their traffic.
    announced: Vec<(v1::RsvpFilter, v1::RsvpTraffic)>,
    /// It was confirmed, and has not failed since.
    stands: bool,
}

impl Role for Wish {
    const BEGUN: (&'static str, &'static str) = ("waiting", "registered; waiting for senders");
    const STANDS: &'static str = "confirmed";

    fn begin(&self) -> Vec<Request> {
        let at = self.arguments.join_at.map(|at| v1::RsvpReceiveAt { address: at.to_string() });
        at.map(Request::ReceiveAt).into_iter().chain(self.reserve().map(Request::Reserve)).collect()
    }

    fn hear(&mut self, upcall: &Upcall) -> Option<Request> {
        match upcall {
            Upcall::Path(path) => self.announce(path),
            Upcall::PathGone(sender) => self.announced.retain(|(known, _)| known != sender),
            Upcall::Confirmed(_) => self.stands = true,
            Upcall::ReservationError(error) => self.stands &= error.in_place,
            _ => {}
        }
        let senders_changed = matches!(upcall, Upcall::Path(_) | Upcall::PathGone(_));
        senders_changed.then(|| self.reserve().map(Request::Reserve)).flatten()
    }

    fn stands(&self) -> bool {
        self.stands
    }
}

impl Wish {
    fn announce(&mut self, path: &v1::RsvpPath) {
        let (Some(sender), Some(traffic)) = (path.sender.clone(), path.traffic) else { return };
        self.announced.retain(|(known, _)| *known != sender);
        self.announced.push((sender, traffic));
    }

    /// The reservation as of now; `None`: there is nobody to reserve for yet.
    fn reserve(&self) -> Option<v1::RsvpReserve> {
        let named = &self.arguments.senders;
        let wanted: Vec<_> =
            self.announced.iter().filter(|(sender, _)| named.is_empty() || named.contains(sender)).collect();
        let flow = |senders: Vec<v1::RsvpFilter>, traffic: Option<v1::RsvpTraffic>| {
            let flowspec = Some(self.flowspec(traffic)?);
            Some(v1::RsvpFlow { flowspec, senders })
        };
        let all = wanted.iter().map(|(_, traffic)| *traffic).reduce(larger);
        let (style, flows) = match self.arguments.style {
            Style::Ff => (
                v1::RsvpStyle::FixedFilter,
                wanted
                    .iter()
                    .filter_map(|(sender, traffic)| flow(vec![sender.clone()], Some(*traffic)))
                    .collect(),
            ),
            Style::Se => {
                let senders: Vec<_> = wanted.iter().map(|(sender, _)| sender.clone()).collect();
                let flow = (!senders.is_empty()).then(|| flow(senders, all)).flatten();
                (v1::RsvpStyle::SharedExplicit, flow.into_iter().collect())
            }
            Style::Wf => {
                (v1::RsvpStyle::WildcardFilter, flow(Vec::new(), all).into_iter().collect::<Vec<_>>())
            }
        };
        if flows.is_empty() {
            return None;
        }
        Some(v1::RsvpReserve {
            style: style.into(),
            flows,
            confirm: true,
            policy: self.arguments.policy.told(),
        })
    }

    /// What is asked for, of senders that announce `traffic`.
    #[expect(clippy::cast_precision_loss, reason = "rates of links are far below 2^53")]
    fn flowspec(&self, traffic: Option<v1::RsvpTraffic>) -> Option<v1::RsvpFlowspec> {
        let ReceiveArgs { rate, guaranteed, slack, .. } = *self.arguments.as_ref();
        let own = &self.arguments.traffic;
        let traffic = match rate {
            Some(rate) => own.with_rate(rate),
            None => v1::RsvpTraffic {
                burst: own.burst.map_or(traffic?.burst, f64::from),
                peak: own.peak.map(|peak| peak.0 as f64).or(traffic?.peak),
                max_packet: own.max_packet.unwrap_or(traffic?.max_packet),
                min_policed: own.min_policed.unwrap_or(traffic?.min_policed),
                ..traffic?
            },
        };
        Some(v1::RsvpFlowspec {
            traffic: Some(traffic),
            service_rate: guaranteed.map(|rate| rate.0 as f64),
            slack_us: slack.unwrap_or(0),
        })
    }
}

/// Enough for either of two senders.
fn larger(a: v1::RsvpTraffic, b: v1::RsvpTraffic) -> v1::RsvpTraffic {
    v1::RsvpTraffic {
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

    fn wish(line: &str) -> Wish {
        let words = ["receive", "192.0.2.9", "--proto", "udp"].into_iter().chain(line.split_whitespace());
        let arguments = Arc::new(Line::try_parse_from(words).unwrap().receive);
        Wish { arguments, announced: Vec::new(), stands: false }
    }

    fn path(address: &str, rate: f64) -> v1::RsvpPath {
        let traffic = v1::RsvpTraffic { rate, burst: 3000.0, peak: None, min_policed: 64, max_packet: 1500 };
        v1::RsvpPath { sender: sender(address).ok(), traffic: Some(traffic), ..Default::default() }
    }

    #[test]
    fn it_reserves_for_who_announces_itself() {
        let mut wish = wish("--sender 192.0.2.1/9");
        assert_eq!(wish.reserve(), None);
        wish.announce(&path("192.0.2.2/9", 1000.0));
        assert_eq!(wish.reserve(), None, "somebody else");
        wish.announce(&path("192.0.2.1/9", 1000.0));
        let reserve = wish.reserve().unwrap();
        assert_eq!(reserve.flows.len(), 1);
        assert_eq!(reserve.flows[0].flowspec.unwrap().traffic.unwrap().rate, 1000.0);
    }

    #[test]
    fn shared_reservations_suffice_for_any_sender() {
        for (style, senders) in [("se", 2), ("wf", 0)] {
            let mut wish = wish(&format!("--style {style}"));
            wish.announce(&path("192.0.2.1", 1000.0));
            wish.announce(&path("192.0.2.2", 2000.0));
            let reserve = wish.reserve().unwrap();
            assert_eq!((reserve.flows.len(), reserve.flows[0].senders.len()), (1, senders));
            assert_eq!(reserve.flows[0].flowspec.unwrap().traffic.unwrap().rate, 2000.0);
        }
    }

    #[test]
    fn rsvp_is_told_where_the_group_is_joined_before_anything_is_reserved() {
        let wish = wish("--join-at 192.0.2.7 --style wf --rate 64kbit");
        let [Request::ReceiveAt(at), Request::Reserve(_)] = &wish.begin()[..] else {
            panic!("{:?}", wish.begin())
        };
        assert_eq!(at.address, "192.0.2.7");
        assert!(self::wish("--join-at 192.0.2.7").begin().len() == 1, "nobody to reserve for yet");
    }

    #[test]
    fn a_wildcard_with_a_rate_waits_for_nobody() {
        let wish = wish("--style wf --rate 64kbit --guaranteed 80kbit --slack 5");
        let flowspec = wish.reserve().unwrap().flows[0].flowspec.unwrap();
        assert_eq!((flowspec.traffic.unwrap().rate, flowspec.service_rate), (8000.0, Some(10_000.0)));
        assert_eq!(flowspec.slack_us, 5);
    }
}
