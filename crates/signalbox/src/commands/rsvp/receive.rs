//! `signalbox rsvp receive`.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::session_request::Request;
use signalbox_api::rsvp::v1::session_response::Upcall;
use signalbox_api::v1 as shared;

use super::args::{PolicyArgs, SessionArgs, sender};
use super::session::{self, Role};
use crate::arguments::values::rate;
use crate::arguments::{ServiceArgs, TrafficArgs};
use crate::client::block_on;
use crate::commands::Run;
use crate::exit::{Exit, exit_status, usage};

#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Which senders share the reservation.
    #[arg(long, value_enum, default_value_t = Style::Ff)]
    style: Style,
    /// Reserve for this sender only: ADDRESS, ADDRESS/PORT, ADDRESS/label:N or ADDRESS/spi:N; may be repeated.
    #[arg(long = "sender", value_name = "SENDER", value_parser = sender)]
    senders: Vec<v1::Filter>,
    /// How much, in bits a second: 64kbit, 20mbit [default: as much as the senders announce].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    policy: PolicyArgs,
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

const HELP: &str = concat!(
    exit_status!(
        "the reservation (with --flows: each) was confirmed, and stood when it ended",
        "it was not, or failed"
    ),
    "EXAMPLES:\n",
    "  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004\n",
    "  signalbox rsvp receive 192.0.2.9 --proto udp --dport 5004 --sender 192.0.2.1/9 --rate 2mbit --service guaranteed \\\n",
    "      --service-rate 4mbit --slack 5ms\n",
    "  signalbox rsvp receive 232.1.1.1 --proto udp --dport 5004 --style wf --rate 64kbit --json\n\n",
    "Without --sender it reserves for every sender that announces itself, as they come and go. A multicast group is joined\n",
    "for as long as the command runs.\n\n",
    "JSON: docs/schema/rsvp.json. The first line is registered, the last one released. With --flows: registered has flows;\n",
    "confirmed has flows and elapsed_us, and is printed when all are confirmed; errors have their destination_port.",
);

impl Run for ReceiveArgs {
    fn run(self) -> Result<Exit> {
        let destination = self.session.data.destination(self.join_at)?;
        if self.style == Style::Wf && !self.senders.is_empty() {
            usage!("--sender: wildcard reservations name no senders; use --style se or ff");
        }
        if self.join_at.is_some() && !destination.is_multicast() {
            usage!("--join-at is for multicast groups, and {destination} is a host");
        }
        let service = self.service()?;
        let _member = if destination.is_multicast() { Some(join(destination, self.join_at)?) } else { None };
        let arguments = Arc::new(self);
        let role = Reservation {
            arguments: Arc::clone(&arguments),
            service,
            announced: Vec::new(),
            confirmed: false,
        };
        block_on(session::run(&arguments.session, destination, role))
    }
}

impl ReceiveArgs {
    /// The service of the reservation; `None` is controlled load.
    fn service(&self) -> Result<Option<shared::Service>> {
        use shared::service::Service as Kind;
        let service = self.service.request(None)?;
        match service.as_ref().and_then(|service| service.service.as_ref()) {
            Some(Kind::Dscp(_)) => usage!("--service: RSVP reserves with cl or guaranteed"),
            Some(Kind::Guaranteed(guaranteed)) if guaranteed.rate_octets_per_s.is_none() => {
                usage!("--service guaranteed needs --service-rate: with RSVP the receiver decides it")
            }
            Some(Kind::Guaranteed(_) | Kind::ControlledLoad(_)) | None => Ok(service),
        }
    }
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
    service: Option<shared::Service>,
    /// The senders that announced themselves, and their traffic.
    announced: Vec<(v1::Filter, shared::TokenBucket)>,
    /// The reservation was confirmed, and no error has removed it since.
    confirmed: bool,
}

impl Role for Reservation {
    const WAITS: &'static str = "registered; waiting for senders";
    const FULFILLED: [&'static str; 2] = ["confirmed", "unconfirmed"];

    fn first_requests(&self) -> Vec<Request> {
        let at = self.arguments.join_at.map(|at| v1::ReceiveAt { address: at.to_string() });
        at.map(Request::ReceiveAt).into_iter().chain(self.reserve().map(Request::Reserve)).collect()
    }

    fn upcall(&mut self, upcall: &Upcall) -> Option<Request> {
        match upcall {
            Upcall::Path(path) => self.announce(path),
            Upcall::PathRemoved(sender) => self.announced.retain(|(known, _)| known != sender),
            Upcall::Confirmed(_) => self.confirmed = true,
            Upcall::ReservationError(error) => self.confirmed &= error.in_place,
            Upcall::Registered(_)
            | Upcall::Refused(_)
            | Upcall::Reserved(_)
            | Upcall::ReservedRemoved(_)
            | Upcall::PathError(_) => {}
        }
        let senders_changed = matches!(upcall, Upcall::Path(_) | Upcall::PathRemoved(_));
        senders_changed.then(|| self.reserve().map(Request::Reserve)).flatten()
    }

    fn is_fulfilled(&self) -> bool {
        self.confirmed
    }
}

impl Reservation {
    /// Takes the Path of a sender.
    fn announce(&mut self, path: &v1::Path) {
        let (Some(sender), Some(traffic)) = (path.sender.clone(), path.traffic) else { return };
        self.announced.retain(|(known, _)| *known != sender);
        self.announced.push((sender, traffic));
    }

    /// The reservation for the senders announced so far; `None` while there is no sender to reserve for.
    fn reserve(&self) -> Option<v1::Reserve> {
        let named = &self.arguments.senders;
        let wanted: Vec<_> =
            self.announced.iter().filter(|(sender, _)| named.is_empty() || named.contains(sender)).collect();
        let flow = |senders: Vec<v1::Filter>, traffic: Option<shared::TokenBucket>| {
            let flowspec = Some(self.flowspec(traffic)?);
            Some(v1::FlowDescriptor { flowspec, senders })
        };
        let all = wanted.iter().map(|(_, traffic)| *traffic).reduce(larger);
        let (style, flows) = match self.arguments.style {
            Style::Ff => (
                v1::Style::FixedFilter,
                wanted
                    .iter()
                    .filter_map(|(sender, traffic)| flow(vec![sender.clone()], Some(*traffic)))
                    .collect(),
            ),
            Style::Se => {
                let senders: Vec<_> = wanted.iter().map(|(sender, _)| sender.clone()).collect();
                let flow = (!senders.is_empty()).then(|| flow(senders, all)).flatten();
                (v1::Style::SharedExplicit, flow.into_iter().collect())
            }
            Style::Wf => (v1::Style::WildcardFilter, flow(Vec::new(), all).into_iter().collect::<Vec<_>>()),
        };
        if flows.is_empty() {
            return None;
        }
        Some(v1::Reserve {
            style: style.into(),
            flows,
            confirm: true,
            policy: self.arguments.policy.request(),
        })
    }

    /// The flowspec to request for senders that announce `traffic`.
    fn flowspec(&self, traffic: Option<shared::TokenBucket>) -> Option<v1::Flowspec> {
        let bucket = self.arguments.traffic;
        let traffic = match self.arguments.rate {
            Some(rate) => bucket.with_rate(rate),
            None => {
                // A sender that gives no rate: --rate is needed.
                let traffic = traffic.filter(|traffic| traffic.rate_octets_per_s > 0)?;
                shared::TokenBucket {
                    rate_octets_per_s: traffic.rate_octets_per_s,
                    burst_octets: bucket.burst.or(traffic.burst_octets),
                    peak_octets_per_s: bucket.peak.or(traffic.peak_octets_per_s),
                    min_policed_octets: bucket.min_policed.or(traffic.min_policed_octets),
                    max_packet_octets: bucket.max_packet.or(traffic.max_packet_octets),
                }
            }
        };
        Some(v1::Flowspec { traffic: Some(traffic), service: self.service })
    }
}

/// Traffic parameters that suffice for either of two senders.
fn larger(a: shared::TokenBucket, b: shared::TokenBucket) -> shared::TokenBucket {
    shared::TokenBucket {
        rate_octets_per_s: a.rate_octets_per_s.max(b.rate_octets_per_s),
        burst_octets: a.burst_octets.max(b.burst_octets),
        peak_octets_per_s: a.peak_octets_per_s.zip(b.peak_octets_per_s).map(|(a, b)| a.max(b)),
        min_policed_octets: a.min_policed_octets.zip(b.min_policed_octets).map(|(a, b)| a.min(b)),
        max_packet_octets: a.max_packet_octets.max(b.max_packet_octets),
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
        let service = arguments.service().unwrap();
        Reservation { arguments, service, announced: Vec::new(), confirmed: false }
    }

    fn path(address: &str, rate_octets_per_s: u64) -> v1::Path {
        let traffic = shared::TokenBucket {
            rate_octets_per_s,
            burst_octets: Some(3000),
            max_packet_octets: Some(1500),
            ..Default::default()
        };
        v1::Path { sender: sender(address).ok(), traffic: Some(traffic), ..Default::default() }
    }

    #[test]
    fn only_senders_that_announce_themselves_get_a_reservation() {
        let mut role = reservation("--sender 192.0.2.1/9");
        assert_eq!(role.reserve(), None);
        role.announce(&path("192.0.2.2/9", 1000));
        assert_eq!(role.reserve(), None, "another sender");
        role.announce(&path("192.0.2.1/9", 1000));
        let reserve = role.reserve().unwrap();
        assert_eq!(reserve.flows.len(), 1);
        assert_eq!(reserve.flows[0].flowspec.unwrap().traffic.unwrap().rate_octets_per_s, 1000);
    }

    /// Another ADSPEC makes the receiver ask again. A refusal of that, such as of one without the service, changes nothing that
    /// stands, so the receiver stays. An error that took the reservation does not count as one that stands.
    #[test]
    fn a_confirmed_receiver_stays_when_another_adspec_comes() {
        let mut role = reservation("--service guaranteed --service-rate 2mbit");
        let refused = Upcall::Refused(v1::Refused::default());
        let from = |rate| Upcall::Path(path("192.0.2.1/9", rate));
        assert!(matches!(role.upcall(&from(1000)), Some(Request::Reserve(_))));
        assert!(session::ends(&role, &refused), "nothing stands yet");
        role.upcall(&Upcall::Confirmed(v1::Confirmed::default()));
        for rate in [1000, 2000] {
            assert!(matches!(role.upcall(&from(rate)), Some(Request::Reserve(_))));
            assert_eq!((session::ends(&role, &refused), role.upcall(&refused)), (false, None));
        }
        role.upcall(&Upcall::ReservationError(v1::Error { in_place: true, ..Default::default() }));
        assert!(!session::ends(&role, &refused), "the former reservation stands");
        role.upcall(&Upcall::ReservationError(v1::Error::default()));
        assert!(session::ends(&role, &refused));
    }

    #[test]
    fn a_sender_that_gives_no_rate_is_reserved_for_with_a_rate_only() {
        for (line, requests) in [("", false), ("--rate 8kbit", true)] {
            let mut role = reservation(line);
            role.announce(&path("192.0.2.1/9", 0));
            assert_eq!(role.reserve().is_some(), requests, "{line}");
        }
    }

    #[test]
    fn shared_reservations_suffice_for_any_sender() {
        for (style, senders) in [("se", 2), ("wf", 0)] {
            let mut role = reservation(&format!("--style {style}"));
            role.announce(&path("192.0.2.1", 1000));
            role.announce(&path("192.0.2.2", 2000));
            let reserve = role.reserve().unwrap();
            assert_eq!((reserve.flows.len(), reserve.flows[0].senders.len()), (1, senders));
            assert_eq!(reserve.flows[0].flowspec.unwrap().traffic.unwrap().rate_octets_per_s, 2000);
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
        let line = "--style wf --rate 64kbit --service guaranteed --service-rate 80kbit --slack 5us";
        let flowspec = reservation(line).reserve().unwrap().flows[0].flowspec.unwrap();
        assert_eq!(flowspec.traffic.unwrap().rate_octets_per_s, 8000);
        let Some(shared::service::Service::Guaranteed(guaranteed)) = flowspec.service.unwrap().service else {
            panic!("guaranteed service")
        };
        assert_eq!((guaranteed.rate_octets_per_s, guaranteed.slack_us), (Some(10_000), Some(5)));
    }

    #[test]
    fn services_that_rsvp_does_not_have_are_refused() {
        for (line, part) in [("--service ef", "cl or guaranteed"), ("--service guaranteed", "--service-rate")]
        {
            let words = ["receive", "192.0.2.9", "--proto", "udp"].into_iter().chain(line.split_whitespace());
            let error = Line::try_parse_from(words).unwrap().receive.service().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
