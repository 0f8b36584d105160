//! `signalbox reserve`: the same for each protocol that reserves along the path of a flow.

mod hold;
mod many;
mod one;
mod passage;
mod print;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::Run;
use crate::arguments::values::{RequestId, partial, rate, request_id, time};
use crate::arguments::{HoldArgs, NodeArgs, OutputArgs, RequestArgs, RetryArgs, Signaling, microseconds};
use crate::client::{answer, block_on};
use crate::exit::{Exit, exit_status, usage};
use crate::print::now_unix_us;

pub(in crate::commands) use hold::{Progress, Stop, hold};

/// How long the daemon may take to report that a reservation is torn down.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ReserveArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Signaling protocol.
    #[arg(long, value_enum, default_value_t = Signaling::Qos)]
    signaling: Signaling,
    /// Least rate that will do if the rate is not available, with qos, boomerang and casp.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    at_least: Option<u64>,
    /// The far end of the flow makes the reservation, at the request of this node, with qos and casp.
    #[arg(long, conflicts_with = "bidirectional")]
    receiver_initiated: bool,
    /// Reserve for the reverse direction as well, with qos, boomerang and casp.
    #[arg(long)]
    bidirectional: bool,
    /// A part of the path will do. With qos: the status is 0 although the far end did not answer. With casp: N nodes may refuse, and M
    /// nodes may not run the QoS client [default: the whole path].
    #[arg(long, value_name = "N[/M]", value_parser = partial, num_args = 0..=1, default_missing_value = "0")]
    partial: Option<v1::PartialReservation>,
    /// TTL of the data, 1 to 255, with rsvp: Path messages have the same.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    ttl: Option<u8>,
    /// Hold a second reservation ready along the backup route of the data, with rsvp. Each router on the path that has
    /// another route to the destination, by another interface, reserves there too; when its link is lost the data are
    /// reserved at once.
    #[arg(long)]
    protect: bool,
    #[command(flatten)]
    lifetime: HoldArgs,
    #[command(flatten)]
    retry: RetryArgs,
    /// Reserve in advance, with casp. The nodes reserve at once. The flow uses the reservation after this time, a day at most,
    /// and for the time of --hold.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "hold", conflicts_with_all = ["flows", "request_id"])]
    start_in: Option<Duration>,
    /// 16 octets in hexadecimal digits that identify the request. If this command is killed, the reservation stands 10 s more, and
    /// the same command takes it over. With another --rate or --burst it also changes it.
    #[arg(long, value_name = "HEX", value_parser = request_id, conflicts_with = "flows")]
    request_id: Option<RequestId>,
    /// First open the path of the flow through firewalls and NATs, as `signalbox pinhole open` does, and close it at the end.
    #[arg(long, conflicts_with_all = ["flows", "request_id"])]
    pinhole: bool,
    /// With --pinhole: the far end does not run the application, and the last node that does answers for it.
    #[arg(long, requires = "pinhole")]
    proxy: bool,
    /// Reserve for N flows, to ports from --dport on; all are granted, or no reservation is held.
    #[arg(long, value_name = "N", requires = "destination_port", value_parser = clap::value_parser!(u16).range(1..))]
    flows: Option<u16>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

const HELP: &str = concat!(
    exit_status!("granted, held to the end, and released", "refused, lost, or ended before it was granted"),
    "EXAMPLES:\n",
    "  signalbox reserve host.example --rate 20mbit --proto udp --dport 5004\n",
    "  signalbox reserve 192.0.2.9 --rate 64kbit --burst 3k --service guaranteed --delay 20ms --proto udp --dport 5004\n",
    "  signalbox reserve 2001:db8::9 --rate 2mbit --service ef --hold 2h --json\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --at-least 2mbit --receiver-initiated\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --partial\n",
    "  signalbox reserve 192.0.2.9 --rate 64kbit --proto udp --dport 10000 --flows 500\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling rsvp\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling rsvp --protect\n",
    "  signalbox reserve 192.0.2.9 --rate 2mbit --proto udp --sport 5004 --dport 5004 --pinhole\n",
    "  signalbox reserve 192.0.2.9 --rate 64kbit --bidirectional --proto udp --dport 5004 --signaling boomerang\n",
    "  signalbox reserve 192.0.2.9 --rate 64kbit --burst 3k --service cl --proto udp --dport 5004 --signaling boomerang\n",
    "  signalbox reserve 232.1.1.1 --rate 2mbit --proto udp --dport 5004 --signaling boomerang\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --at-least 2mbit --proto udp --dport 5004 --signaling casp\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling casp --receiver-initiated\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling casp --partial 1/2\n",
    "  signalbox reserve 192.0.2.9 --rate 64kbit --proto udp --sport 5004 --dport 5004 --signaling casp --bidirectional\n",
    "  signalbox reserve 192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling casp --start-in 10m --hold 1h\n",
    "  signalbox reserve 192.0.2.9 --rate 2mbit --proto udp --dport 5004 --request-id 5d41402abc4b2a76b9719d911017c592 &\n",
    "  signalbox reserve 192.0.2.9 --rate 4mbit --proto udp --dport 5004 --request-id 5d41402abc4b2a76b9719d911017c592\n\n",
    "The last two: the second command takes the reservation of the first over and changes its rate; the first one ends.\n",
    "The reservation is held until Ctrl-C, SIGTERM or the end of --hold, and then torn down. If this command is killed, the\n",
    "daemon releases it. With rsvp this host announces a sender, and a receiver reserves; see signalbox rsvp --help.\n\n",
    "The answer names the nodes that granted. If the host at the end of the flow is not among them, the nodes before it hold the\n",
    "reservation, and the status is 1: --partial says that this will do.\n\n",
    "What was granted and is lost is asked for again, also after a restart or a crash of the daemon: after 0.25 s, then after longer waits,\n",
    "of 2 s at most where nothing answers and of 4 s, later of 30 s where a node refuses. What a rule or an administrator ended is not\n",
    "asked for again. --once ends the command with status 1 after any loss.\n\n",
    "With --pinhole the reservation is requested when the whole path is open. Both end together.\n\n",
    "JSON: docs/schema/reserve.json. With --pinhole, the events up to the first granted, and the one after the last of\n",
    "reserve.json, are those of docs/schema/open.json. With --flows: granted has flows and elapsed_us, and is printed when all are granted, again\n",
    "after losses; before, the first failed ends all; retrying is printed for the first flow of a loss; released has flows, and confirmed\n",
    "(of all).",
);

impl Run for ReserveArgs {
    fn run(self) -> Result<Exit> {
        let open = self.open()?;
        block_on(async {
            match self.flows {
                Some(flows) => many::run(&self, &open, flows).await,
                None => one::run(&self, open).await,
            }
        })
    }
}

/// What a command asks for that reserves for flows which it finds itself.
#[derive(Debug, Clone)]
pub(in crate::commands) struct Terms {
    pub(in crate::commands) signaling: Signaling,
    pub(in crate::commands) at_least: Option<u64>,
    pub(in crate::commands) bidirectional: bool,
    pub(in crate::commands) partial: Option<v1::PartialReservation>,
    pub(in crate::commands) node: NodeArgs,
}

impl ReserveArgs {
    /// The arguments by which `signalbox reserve` would reserve for a flow on these terms.
    pub(in crate::commands) fn on_terms(terms: Terms, request: RequestArgs) -> Self {
        let Terms { signaling, at_least, bidirectional, partial, node } = terms;
        Self {
            request,
            signaling,
            at_least,
            receiver_initiated: false,
            bidirectional,
            partial,
            ttl: None,
            protect: false,
            lifetime: HoldArgs { hold: None },
            retry: RetryArgs::default(),
            start_in: None,
            request_id: None,
            pinhole: false,
            proxy: false,
            flows: None,
            output: OutputArgs { json: false },
            node,
        }
    }

    /// Whether the flow goes to a multicast group, from which nothing comes back.
    fn is_for_group(&self) -> bool {
        let destination = self.request.destination.parse::<IpAddr>();
        self.signaling == Signaling::Boomerang && destination.is_ok_and(|address| address.is_multicast())
    }

    /// Whether a grant will do although the far end did not answer.
    pub(in crate::commands) const fn accepts_part(&self) -> bool {
        self.partial.is_some()
    }

    /// Whether the path confirms a release.
    pub(in crate::commands) fn confirms(&self) -> bool {
        self.signaling.confirms() && !self.is_for_group()
    }

    /// The first request of the call.
    pub(in crate::commands) fn open(&self) -> Result<v1::ReserveOpen> {
        let Self { request: wanted, signaling, .. } = self;
        let authority = &wanted.authority;
        if *signaling != Signaling::Casp {
            let numbers = self.partial.is_some_and(|partial| partial.failures + partial.unaware > 0);
            let partial = if *signaling == Signaling::Qos { numbers } else { self.partial.is_some() };
            let foreign = [(partial, "--partial"), (self.start_in.is_some(), "--start-in")];
            signaling.refuse(&foreign, "it belongs to CASP")?;
        }
        match signaling {
            Signaling::Qos => {
                let foreign = [
                    (authority.user.is_some(), "--user"),
                    (authority.policy_data.is_some(), "--policy-data"),
                    (self.ttl.is_some(), "--ttl"),
                    (self.protect, "--protect"),
                ];
                signaling.refuse(&foreign, "it belongs to RSVP")?;
            }
            Signaling::Rsvp => {
                let foreign = [
                    (self.receiver_initiated, "--receiver-initiated"),
                    (self.bidirectional, "--bidirectional"),
                    (self.at_least.is_some(), "--at-least"),
                    (wanted.service.is_given(), "--service"),
                    (wanted.delay.is_some(), "--delay"),
                ];
                signaling.refuse(&foreign, "the receiver decides")?;
                let foreign =
                    [(authority.token.is_some(), "--token"), (wanted.flow.dscp.is_some(), "--dscp")];
                signaling.refuse(&foreign, "it belongs to the QoS NSLP")?;
                if wanted.flow.ip_protocol.is_none() {
                    usage!("--signaling rsvp needs the IP protocol of the flow: --proto");
                }
            }
            Signaling::Casp => {
                let defends = authority.priority.and_then(|priority| priority.defending);
                let foreign = [
                    (defends.is_some(), "a defending --priority"),
                    (wanted.flow.dscp.is_some(), "--dscp"),
                    (wanted.delay.is_some(), "--delay"),
                ];
                signaling.refuse(&foreign, "its messages have none")?;
                let foreign = [(authority.token.is_some(), "--token")];
                signaling.refuse(&foreign, "it belongs to the QoS NSLP")?;
                let foreign = [
                    (authority.user.is_some(), "--user"),
                    (authority.policy_data.is_some(), "--policy-data"),
                    (self.ttl.is_some(), "--ttl"),
                    (self.protect, "--protect"),
                ];
                signaling.refuse(&foreign, "it belongs to RSVP")?;
            }
            Signaling::Boomerang => {
                let traffic = &wanted.traffic;
                let foreign = [
                    (traffic.burst.is_some(), "--burst"),
                    (traffic.peak.is_some(), "--peak"),
                    (traffic.max_packet.is_some(), "--max-packet"),
                    (traffic.min_policed.is_some(), "--min-policed"),
                ];
                if !wanted.service.is_intserv() {
                    signaling.refuse(&foreign, "without --service cl or guaranteed")?;
                }
                let foreign = [
                    (authority.priority.is_some(), "--priority"),
                    (wanted.flow.dscp.is_some(), "--dscp"),
                    (wanted.delay.is_some(), "--delay"),
                ];
                signaling.refuse(&foreign, "its messages have none")?;
                let foreign = [
                    (self.receiver_initiated, "--receiver-initiated"),
                    (authority.token.is_some(), "--token"),
                ];
                signaling.refuse(&foreign, "it belongs to the QoS NSLP")?;
                let foreign = [
                    (authority.policy_data.is_some(), "--policy-data"),
                    (self.ttl.is_some(), "--ttl"),
                    (self.protect, "--protect"),
                ];
                signaling.refuse(&foreign, "it belongs to RSVP")?;
            }
        }
        Ok(v1::ReserveOpen {
            protocol: signaling.protocol().into(),
            flow: Some(wanted.flow()?),
            traffic: Some(wanted.traffic()),
            service: wanted.service()?,
            min_rate_octets_per_s: self.at_least,
            hold_us: self.lifetime.hold.map(microseconds),
            authority: authority.request(),
            receiver_initiated: self.receiver_initiated,
            bidirectional: self.bidirectional,
            confirm_release: self.confirms(),
            // Without it, the reservation ends with this command, however the command ends.
            request_id: self.request_id.map(|id| id.0.to_vec()),
            ip_ttl: self.ttl.map(Into::into),
            protect: self.protect,
            partial: self.partial.filter(|_| *signaling == Signaling::Casp),
            start_unix_us: self.start_in.map(|wait| now_unix_us().saturating_add(microseconds(wait))),
        })
    }
}

/// The call of one reservation.
struct Call {
    requests: mpsc::Sender<v1::ReserveRequest>,
    events: Streaming<v1::ReserveResponse>,
}

impl Call {
    /// Opens the call.
    ///
    /// # Errors
    /// The daemon refused.
    async fn open(client: &mut ReservationsClient<Channel>, open: v1::ReserveOpen) -> Result<Self> {
        use v1::reserve_request::Request;
        let (requests, stream) = mpsc::channel(2);
        // The channel has room for it.
        let _ = requests.try_send(v1::ReserveRequest { request: Some(Request::Open(open)) });
        let events = answer(client.reserve(ReceiverStream::new(stream)).await)?;
        Ok(Self { requests, events })
    }

    /// Asks for the tear. If the daemon ended the call, its events show that.
    async fn release(&self) {
        use v1::reserve_request::Request;
        let release = Request::Release(v1::ReserveRelease {});
        let _ = self.requests.send(v1::ReserveRequest { request: Some(release) }).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reserve: ReserveArgs,
    }

    fn open(line: &str) -> Result<v1::ReserveOpen, String> {
        let line = Line::try_parse_from(["reserve"].into_iter().chain(line.split_whitespace()));
        line.map_err(|e| e.to_string())?.reserve.open().map_err(|e| e.to_string())
    }

    #[test]
    fn rates_are_bits_on_the_command_line_and_octets_inside() {
        let line =
            "192.0.2.9 --rate 20mbit --burst 15k --at-least 64kbit --peak 1gbit --proto udp --dport 5004";
        let open = open(line).unwrap();
        let traffic = open.traffic.unwrap();
        assert_eq!((traffic.rate_octets_per_s, traffic.burst_octets), (2_500_000, Some(15_000)));
        assert_eq!((open.min_rate_octets_per_s, traffic.peak_octets_per_s), (Some(8_000), Some(125_000_000)));
        let flow = open.flow.unwrap();
        assert_eq!((flow.ip_protocol, flow.destination_port), (Some(17), Some(5004)));
        assert_eq!(flow.destination.as_deref(), Some("192.0.2.9"));
        assert_eq!((open.protocol, open.service), (v1::Protocol::Qos.into(), None));
    }

    #[test]
    fn times_may_be_hours_and_microseconds() {
        let open = open("192.0.2.9 --rate 1mbit --hold 7200s --service guaranteed --delay 500us --slack 5ms")
            .unwrap();
        assert_eq!(open.hold_us, Some(7_200_000_000));
        let Some(v1::service::Service::Guaranteed(guaranteed)) = open.service.unwrap().service else {
            panic!("guaranteed service")
        };
        assert_eq!((guaranteed.delay_bound_us, guaranteed.slack_us), (Some(500), Some(5000)));
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_would_be_right() {
        for (line, part) in [
            ("192.0.2.9", "--rate"),
            ("192.0.2.9 --rate 20", "has no unit"),
            ("192.0.2.9 --rate 0bit", "at least 8bit"),
            ("192.0.2.9 --rate 1mbit --burst x", "such as"),
            ("192.0.2.9 --rate 1mbit --dport 9", "--proto"),
            ("192.0.2.9 --rate 1mbit --service best", "dscp:"),
            ("192.0.2.9 --rate 1mbit --bidirectional --receiver-initiated", "cannot be used with"),
            ("192.0.2.9 --rate 1mbit --delay 5ms", "needs --service guaranteed"),
            ("192.0.2.9 --rate 1mbit --user ann", "no meaning with --signaling qos"),
            ("192.0.2.9 --rate 1mbit --partial 1", "it belongs to CASP"),
            ("192.0.2.9 --rate 1mbit --signaling casp --partial 1/x", "such as 1/2"),
            ("192.0.2.9 --rate 1mbit --start-in 5m --hold 1h", "it belongs to CASP"),
            ("192.0.2.9 --rate 1mbit --signaling casp --start-in 5m", "--hold"),
            ("192.0.2.9 --rate 1mbit --signaling casp --priority 5/6", "--priority"),
            ("192.0.2.9 --rate 1mbit --signaling rsvp", "--proto"),
            ("192.0.2.9 --rate 1mbit --proxy", "--pinhole"),
            ("192.0.2.9 --rate 1mbit --proto udp --dport 9 --pinhole --flows 2", "cannot be used with"),
            ("192.0.2.9 --rate 1mbit --signaling udp", "[possible values: qos, rsvp, boomerang, casp]"),
        ] {
            let error = open(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn a_part_of_the_path_is_a_number_of_nodes_or_two() {
        // With qos it is no number, and the daemon does not learn of it.
        let qos = open("192.0.2.9 --rate 1mbit --partial").unwrap();
        assert_eq!(qos.partial, None);
        for (text, failures, unaware) in [("3", 3, 0), ("1/2", 1, 2)] {
            let open = open(&format!("192.0.2.9 --rate 1mbit --signaling casp --partial {text}")).unwrap();
            assert_eq!(open.partial, Some(v1::PartialReservation { failures, unaware }));
        }
    }

    #[test]
    fn options_that_boomerang_has_no_field_for_are_refused() {
        let line = "192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling boomerang";
        let wanted =
            open(&format!("{line} --bidirectional --at-least 1mbit --service ef --user ann")).unwrap();
        assert_eq!((wanted.protocol, wanted.bidirectional), (v1::Protocol::Boomerang.into(), true));
        assert!(wanted.confirm_release);
        assert!(open(&format!("{line} --service cl --burst 3k --peak 9mbit")).is_ok());
        for more in
            ["--burst 3k", "--priority 3", "--token 00", "--ttl 5", "--receiver-initiated", "--dscp 4"]
        {
            let error = open(&format!("{line} {more}")).unwrap_err();
            assert!(error.contains("no meaning with --signaling boomerang"), "{error}");
        }
    }

    #[test]
    fn options_that_casp_has_no_object_for_are_refused() {
        let line = "192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling casp";
        let wanted = open(&format!("{line} --at-least 1mbit --service guaranteed --slack 5ms")).unwrap();
        assert_eq!((wanted.protocol, wanted.confirm_release), (v1::Protocol::Casp.into(), true));
        let wanted = open(&format!("{line} --receiver-initiated --priority 3")).unwrap();
        let priority = v1::Priority { setup: 3, defending: None };
        assert_eq!(wanted.authority.and_then(|authority| authority.priority), Some(priority));
        assert!(wanted.receiver_initiated);
        assert!(open(&format!("{line} --bidirectional")).unwrap().bidirectional);
        assert!(open(&format!("{line} --start-in 5m --hold 1h")).unwrap().start_unix_us > Some(0));
        for more in ["--token 00", "--user ann", "--ttl 5"] {
            let error = open(&format!("{line} {more}")).unwrap_err();
            assert!(error.contains("no meaning with --signaling casp"), "{error}");
        }
    }

    #[test]
    fn options_that_an_rsvp_sender_cannot_decide_are_refused() {
        let line = "192.0.2.9 --rate 8mbit --proto udp --dport 5004 --signaling rsvp";
        let rsvp = open(&format!("{line} --priority 3/4 --user ann --ttl 5")).unwrap();
        assert_eq!((rsvp.protocol, rsvp.ip_ttl), (v1::Protocol::Rsvp.into(), Some(5)));
        let priority = v1::Priority { setup: 3, defending: Some(4) };
        assert_eq!(rsvp.authority.unwrap().priority, Some(priority));
        for more in ["--service guaranteed", "--at-least 1mbit", "--bidirectional", "--token 00", "--dscp 4"]
        {
            let error = open(&format!("{line} {more}")).unwrap_err();
            assert!(error.contains("no meaning with --signaling rsvp"), "{error}");
        }
    }
}
