//! `signalbox pinhole`: passages through firewalls and NATs along the path of a flow.

mod accepted;
mod call;
mod hold;
mod print;

pub(crate) use call::Call;
pub(crate) use print::{endpoint, text};

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use signalbox_api::v1;

use super::{Run, subcommands};
use crate::arguments::values::{Octets, RequestId, ip_protocol, octets, prefix, request_id, time};
use crate::arguments::{FlowArgs, HoldArgs, NodeArgs, OutputArgs, RetryArgs, microseconds, resolve};
use crate::client::block_on;
use crate::exit::{Exit, exit_status, usage};
use crate::print::now_unix_us;

/// How long the daemon may take to report that a passage is closed.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct PinholeArgs {
    #[command(subcommand)]
    what: What,
}

const HELP: &str = concat!(
    exit_status!("granted, held to the end, and closed", "refused, lost, or ended before it was granted"),
    "EXAMPLES:\n",
    "  at the sender:              signalbox pinhole open 192.0.2.9 --proto udp --sport 5004 --dport 5004\n",
    "  at a receiver behind a NAT: signalbox pinhole expose 198.51.100.1 --proto tcp --port 8080\n",
    "  a server behind NATs:       signalbox pinhole publish 198.51.100.1 --proto tcp --port 8080\n",
    "  by CASP:                    signalbox pinhole open 192.0.2.9 --proto udp --dport 5004 --signaling casp\n",
    "  on any node:                signalbox show pinholes\n\n",
    "Every firewall and NAT on the path opens what the flow needs, for as long as the command runs (RFC 5973). CASP opens\n",
    "firewalls.",
);

subcommands! {
    enum What {
        /// Open the path for a flow that this host sends.
        Open(Box<OpenArgs>),
        /// Let others reach a port of this host: prints the external address and port to give to them.
        Expose(Box<ReachArgs<false>>),
        /// Block senders at the edge of this network.
        Block(Box<ReachArgs<true>>),
        /// Open a port of this host to senders that do nothing: prints the external address and port to give to them.
        Publish(Box<PublishArgs>),
    }
}

impl Run for PinholeArgs {
    fn run(self) -> Result<Exit> {
        self.what.run()
    }
}

/// The protocols that open firewalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Signaling {
    /// NATFW NSLP over GIST (RFC 5973).
    Natfw,
    /// CASP with its client for firewalls.
    Casp,
}

/// How far a request goes: to the border of a domain, or of the local network.
#[derive(Debug, Clone)]
struct Scope(Option<String>);

impl From<String> for Scope {
    fn from(text: String) -> Self {
        Self((text != "local").then_some(text))
    }
}

/// What all requests have.
#[derive(Debug, Args)]
struct CommonArgs {
    /// The signaling protocol.
    #[arg(long, value_name = "PROTOCOL", default_value = "natfw")]
    signaling: Signaling,
    /// Lifetime without a refresh; the daemon refreshes as long as the command runs [default: that of the configuration].
    #[arg(long, value_name = "TIME", value_parser = time)]
    lifetime: Option<Duration>,
    /// Also for packets to the next port, such as RTCP.
    #[arg(long)]
    second_port: bool,
    /// The other end does not run the application: the edge of its network, or the last node that does, answers for it.
    #[arg(long)]
    proxy: bool,
    /// With --proxy, the edge also sends the request on.
    #[arg(long, requires = "proxy")]
    extend: bool,
    /// 16 octets in hexadecimal digits that identify the request. If this command is killed, the passage stands 10 s more, and the
    /// same command takes it over.
    #[arg(long, value_name = "HEX", value_parser = request_id)]
    request_id: Option<RequestId>,
    /// What rules on the path may ask for: the attribute list of a SESSION_AUTH object (RFC 5981), with casp AUTH_TOKEN objects,
    /// one behind the other. A file, or hexadecimal digits.
    #[arg(long, value_name = "@FILE", value_parser = octets)]
    token: Option<Octets>,
    /// With casp: the request ends at the border of this network, `local`, or at the border of a domain, by its name. With
    /// expose, the border opens itself for the sender given by --from, who does nothing.
    #[arg(long, value_name = "local|DOMAIN")]
    scope: Option<Scope>,
    /// With casp: the name of the application, which firewalls can require.
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    #[command(flatten)]
    lifetime_of_all: HoldArgs,
    #[command(flatten)]
    retry: RetryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = OPEN_HELP)]
struct OpenArgs {
    /// Destination of the flow: an address or a host name.
    destination: String,
    /// With a protocol of ICMP: only messages of this type; may be given several times.
    #[arg(long = "icmp-type", value_name = "N", requires = "ip_protocol")]
    icmp_types: Vec<u8>,
    /// With CASP: the other end opens the firewalls, if it runs `signalbox pinhole expose` for the packets.
    #[arg(long, conflicts_with_all = ["scope", "token"])]
    receiver_initiated: bool,
    /// With CASP and --scope: the border of the network also opens for the packets in the opposite direction.
    #[arg(long, requires = "scope")]
    bidirectional: bool,
    /// With CASP: the firewalls open after this time, of an hour at most.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "request_id")]
    start_in: Option<Duration>,
    #[command(flatten)]
    flow: FlowArgs,
    #[command(flatten)]
    common: CommonArgs,
}

const OPEN_HELP: &str = concat!(
    exit_status!("granted, held to the end, and closed", "refused, lost, or ended before it was granted"),
    "EXAMPLES:\n",
    "  signalbox pinhole open host.example --proto udp --sport 5004 --dport 5004\n",
    "  signalbox pinhole open 192.0.2.9 --proto tcp --dport 443 --hold 2h --json\n",
    "  signalbox pinhole open 192.0.2.9 --proto udp --sport 5004 --dport 5004 --second-port --proxy\n",
    "  signalbox pinhole open 192.0.2.9 --proto tcp --dport 443 --request-id 5d41402abc4b2a76b9719d911017c592\n",
    "  signalbox pinhole open 192.0.2.9 --proto udp --dport 5004 --signaling casp --receiver-initiated\n",
    "  signalbox pinhole open 192.0.2.9 --proto udp --dport 5004 --signaling casp --token @token.bin --start-in 10m\n",
    "  signalbox pinhole open 192.0.2.9 --proto udp --sport 5004 --dport 5004 --signaling casp --scope local --bidirectional\n\n",
    "A NAT on the path needs a source port. The passage is held until Ctrl-C, SIGTERM or the end of --hold, and then closed.\n",
    "If this command is killed, the daemon closes it, with --request-id after 10 s unless the same command takes it over; if the\n",
    "daemon crashes, each node closes it at the end of its lifetime.\n\n",
    "What was granted and is lost is asked for again, also after a restart of a NAT on the path or of the daemon: after 0.25 s, then\n",
    "after longer waits, until a rule refuses it. --once ends the command with status 1 after any loss.\n\n",
    "JSON: docs/schema/open.json.",
);

/// A port of this host that others are to reach, or must not reach.
#[derive(Debug, Args)]
#[command(after_help = REACH_HELP)]
struct ReachArgs<const BLOCK: bool> {
    /// An address outside, in whose direction the edge of this network lies; the address of --from if not given.
    #[arg(value_name = "TOWARDS")]
    towards: Option<String>,
    /// IP protocol: a number, or tcp, udp.
    #[arg(long = "proto", value_name = "IP-PROTOCOL", value_parser = ip_protocol)]
    ip_protocol: u8,
    /// Port of this host.
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Address of this host; its address towards TOWARDS if not given.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Senders that are meant: an address, or a prefix such as 192.0.2.0/24 [default: all].
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    from: Option<(IpAddr, Option<u32>)>,
    /// Port of the senders [default: any].
    #[arg(long, value_name = "PORT")]
    from_port: Option<u16>,
    /// Report the addresses of all NATs.
    #[arg(long)]
    bindings: bool,
    /// The message follows the reverse path of the packets: for hosts behind firewalls only.
    #[arg(long)]
    path_coupled: bool,
    #[command(flatten)]
    common: CommonArgs,
}

const REACH_HELP: &str = concat!(
    exit_status!("granted, held to the end, and closed", "refused, lost, or ended before it was granted"),
    "EXAMPLES:\n",
    "  signalbox pinhole expose 198.51.100.1 --proto tcp --port 8080\n",
    "  signalbox pinhole expose --from 203.0.113.7 --proto udp --port 5004 --proxy\n",
    "  signalbox pinhole block 198.51.100.1 --from 203.0.113.0/24 --proto udp --port 5004\n",
    "  signalbox pinhole expose --proto udp --port 5004 --signaling casp\n",
    "  signalbox pinhole expose --from 203.0.113.7 --from-port 5004 --proto udp --port 5004 --signaling casp --scope local\n\n",
    "With expose, a sender that runs the application opens the way by `signalbox pinhole open`, to the external address and\n",
    "port; for one that does not, use --from and --proxy. With CASP, senders use `signalbox pinhole open --signaling casp\n",
    "--receiver-initiated`, and this host opens the firewalls of the path for them. The command prints why each of these\n",
    "passages ends. It goes on waiting, but with the address of one sender by --from it ends with the last one. Its status is 1\n",
    "if one was lost: a node removed it, or its sender did not refresh it. With --scope only the firewalls of this network\n",
    "open, for one sender, which needs no signaling (TRIGGER).\n\n",
    "What was granted and is lost is asked for again, and the external address may then be another one: the command prints it.\n",
    "--once ends the command with status 1 instead.\n\n",
    "JSON: docs/schema/open.json.",
);

/// A port of this host that senders are to reach without a request of their own.
#[derive(Debug, Args)]
#[command(after_help = PUBLISH_HELP)]
struct PublishArgs {
    #[command(flatten)]
    reach: ReachArgs<false>,
    /// The external port that is wished for; another one if it is not free [default: any].
    #[arg(long, value_name = "PORT")]
    external_port: Option<u16>,
    /// The external address that is wished for, IPv4 [default: any].
    #[arg(long, value_name = "ADDRESS")]
    external_address: Option<Ipv4Addr>,
    /// Nothing but the wished port and address will do.
    #[arg(long)]
    exactly: bool,
}

const PUBLISH_HELP: &str = concat!(
    exit_status!("granted, held to the end, and closed", "refused, lost, or ended before it was granted"),
    "EXAMPLES:\n",
    "  signalbox pinhole publish 198.51.100.1 --proto tcp --port 8080\n",
    "  signalbox pinhole publish 198.51.100.1 --proto tcp --port 22 --from 203.0.113.0/24\n",
    "  signalbox pinhole publish 198.51.100.1 --proto udp --port 22000 --external-port 22000 --exactly --json\n\n",
    "Every NAT and firewall of the path lets the senders in, all of them or those of --from, until the command ends. Each has to\n",
    "run signalboxd, with a rule that lets this host publish (opens = [\"publish\"]); without one it refuses, and nothing is open.\n",
    "Flows that this host begins from the port leave with the external port. After the end a NAT keeps the port for this host for\n",
    "two minutes, with TCP for 124.\n\n",
    "What was granted and is lost is asked for again, and the external address may then be another one: the command prints it.\n",
    "--once ends the command with status 1 instead.\n\n",
    "JSON: docs/schema/open.json.",
);

impl Run for PublishArgs {
    fn run(self) -> Result<Exit> {
        block_on(hold::hold(self.open()?, &self.reach.common, false))
    }
}

impl PublishArgs {
    fn open(&self) -> Result<v1::PinholeOpen> {
        let common = &self.reach.common;
        common.refuse(&[(true, "publish")])?;
        if common.proxy {
            usage!("publish opens for senders that do nothing: leave --proxy out");
        }
        if self.exactly && self.external_port.is_none() && self.external_address.is_none() {
            usage!("--exactly: give the place by --external-port or --external-address");
        }
        let publish = v1::PinholePublish {
            address: self.external_address.map(|address| address.to_string()),
            port: self.external_port.map(Into::into),
            exactly: self.exactly,
        };
        Ok(v1::PinholeOpen { publish: Some(publish), ..self.reach.open()? })
    }
}

impl Run for OpenArgs {
    fn run(self) -> Result<Exit> {
        self.common.refuse(&[(!self.icmp_types.is_empty(), "--icmp-type")])?;
        self.common.only_with_casp(&[
            (self.receiver_initiated, "--receiver-initiated"),
            (self.bidirectional, "--bidirectional"),
            (self.start_in.is_some(), "--start-in"),
        ])?;
        let open = v1::PinholeOpen {
            receiver_initiated: self.receiver_initiated,
            bidirectional: self.bidirectional,
            start_unix_us: self.start_in.map(|wait| now_unix_us().saturating_add(microseconds(wait))),
            action: v1::PinholeAction::Open.into(),
            flow: Some(self.flow.to(&self.destination)?),
            icmp_types: self.icmp_types.iter().map(|kind| u32::from(*kind)).collect(),
            ..self.common.request()
        };
        block_on(hold::hold(open, &self.common, false))
    }
}

impl<const BLOCK: bool> Run for ReachArgs<BLOCK> {
    fn run(self) -> Result<Exit> {
        let open = self.open()?;
        let one_sender = self.from.is_some_and(|(_, length)| length.is_none());
        block_on(hold::hold(open, &self.common, one_sender))
    }
}

impl<const BLOCK: bool> ReachArgs<BLOCK> {
    /// The first request of the call.
    fn open(&self) -> Result<v1::PinholeOpen> {
        if BLOCK && self.common.signaling == Signaling::Casp {
            usage!("CASP opens firewalls and blocks nothing: leave --signaling casp out");
        }
        self.common.refuse(&[
            (self.towards.is_some(), "TOWARDS"),
            (self.bindings, "--bindings"),
            (self.path_coupled, "--path-coupled"),
        ])?;
        self.common.only_with_casp(&[])?;
        if self.common.signaling == Signaling::Casp {
            self.of_casp()?;
        }
        let like = self.address.or(self.from.map(|(from, _)| from));
        let towards = self.towards.as_ref().map(|host| resolve(host, like)).transpose()?;
        let flow = v1::FlowSpec {
            source: self.from.map(|(from, _)| from.to_string()),
            source_prefix_length: self.from.and_then(|(_, length)| length),
            destination: self.address.map(|address| address.to_string()),
            ip_protocol: Some(self.ip_protocol.into()),
            source_port: self.from_port.map(Into::into),
            destination_port: Some(self.port.into()),
            ..v1::FlowSpec::default()
        };
        let action = if BLOCK { v1::PinholeAction::Block } else { v1::PinholeAction::Expose };
        Ok(v1::PinholeOpen {
            action: action.into(),
            flow: Some(flow),
            towards: towards.map(|towards| towards.to_string()),
            path_coupled: self.path_coupled,
            bindings: self.bindings,
            ..self.common.request()
        })
    }
}

impl<const BLOCK: bool> ReachArgs<BLOCK> {
    /// Checks a request of CASP: it goes to the border of a scope, or this host waits for senders.
    fn of_casp(&self) -> Result<()> {
        if self.common.scope.is_some() {
            if self.from.is_none_or(|(_, length)| length.is_some()) {
                usage!("with --scope the border opens for one sender: give its address by --from");
            }
            return Ok(());
        }
        let given = [
            (self.common.lifetime.is_some(), "--lifetime"),
            (self.common.token.is_some(), "--token"),
            (self.common.application.is_some(), "--application"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => usage!("{option}: the sender gives it; leave it out, or give --scope"),
            None => Ok(()),
        }
    }
}

impl CommonArgs {
    /// Refuses what the other protocol has not: whether each option is given, and its name.
    fn only_with_casp(&self, more: &[(bool, &str)]) -> Result<()> {
        if self.signaling == Signaling::Casp {
            return Ok(());
        }
        let all = [(self.scope.is_some(), "--scope"), (self.application.is_some(), "--application")];
        match all.iter().chain(more).find(|(given, _)| *given) {
            Some((_, option)) => {
                usage!("{option} belongs to CASP: leave it out, or write --signaling casp")
            }
            None => Ok(()),
        }
    }

    /// Refuses what CASP has not: whether each option is given, and its name.
    fn refuse(&self, more: &[(bool, &str)]) -> Result<()> {
        if self.signaling == Signaling::Natfw {
            return Ok(());
        }
        let all = [(self.second_port, "--second-port"), (self.proxy, "--proxy"), (self.extend, "--extend")];
        match all.iter().chain(more).find(|(given, _)| *given) {
            Some((_, option)) => usage!("{option}: CASP has none here; leave it out"),
            None => Ok(()),
        }
    }

    fn request(&self) -> v1::PinholeOpen {
        v1::PinholeOpen {
            protocol: match self.signaling {
                Signaling::Natfw => v1::Protocol::Natfw,
                Signaling::Casp => v1::Protocol::Casp,
            }
            .into(),
            lifetime_us: self.lifetime.map(microseconds),
            second_port: self.second_port,
            proxy: self.proxy,
            extend: self.extend,
            request_id: self.request_id.map(|id| id.0.to_vec()),
            session_auth: self.token.as_ref().map(|token| token.0.clone()),
            scope: self.scope.as_ref().map(|Scope(domain)| v1::PinholeScope { domain: domain.clone() }),
            application_id: self.application.clone(),
            ..v1::PinholeOpen::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reach: ReachArgs<true>,
    }

    fn open(line: &str) -> Result<v1::PinholeOpen, String> {
        let line = Line::try_parse_from(["block"].into_iter().chain(line.split_whitespace()));
        line.map_err(|e| e.to_string())?.reach.open().map_err(|e| e.to_string())
    }

    #[test]
    fn senders_are_the_source_of_the_flow_and_this_host_its_destination() {
        let open = open("198.51.100.1 --from 203.0.113.0/24 --proto udp --port 5004").unwrap();
        let flow = open.flow.as_ref().unwrap();
        assert_eq!(
            (open.action(), open.towards.as_deref()),
            (v1::PinholeAction::Block, Some("198.51.100.1"))
        );
        assert_eq!((flow.source.as_deref(), flow.source_prefix_length), (Some("203.0.113.0"), Some(24)));
        assert_eq!(
            (flow.destination.as_ref(), flow.destination_port, flow.ip_protocol),
            (None, Some(5004), Some(17))
        );
    }

    #[derive(Debug, Parser)]
    struct Expose {
        #[command(flatten)]
        reach: ReachArgs<false>,
    }

    fn expose(line: &str) -> Result<v1::PinholeOpen, String> {
        let line = Expose::try_parse_from(["expose"].into_iter().chain(line.split_whitespace()));
        line.map_err(|e| e.to_string())?.reach.open().map_err(|e| e.to_string())
    }

    #[test]
    fn a_scope_is_that_of_the_network_or_of_a_domain() {
        let line = "--from 203.0.113.7 --proto udp --port 5004 --signaling casp --lifetime 60s --scope";
        for (scope, domain) in [("local", None), ("b.example", Some("b.example".to_owned()))] {
            let open = expose(&format!("{line} {scope}")).unwrap();
            assert_eq!((open.scope, open.lifetime_us), (Some(v1::PinholeScope { domain }), Some(60_000_000)));
        }
        for (line, part) in [
            ("--proto udp --port 1 --scope local", "belongs to CASP"),
            ("--proto udp --port 1 --signaling casp --scope local", "--from"),
            ("--proto udp --port 1 --signaling casp --token 00", "give --scope"),
        ] {
            let error = expose(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[derive(Debug, Parser)]
    struct Publish {
        #[command(flatten)]
        publish: PublishArgs,
    }

    #[test]
    fn what_is_published_has_a_wish() {
        let publish = |line: &str| -> Result<v1::PinholeOpen, String> {
            let line = Publish::try_parse_from(["publish"].into_iter().chain(line.split_whitespace()));
            line.map_err(|e| e.to_string())?.publish.open().map_err(|e| e.to_string())
        };
        let line = "198.51.100.1 --proto tcp --port 8080";
        let open = publish(&format!("{line} --external-port 22000 --exactly --from 203.0.113.0/24")).unwrap();
        let wish = v1::PinholePublish { address: None, port: Some(22000), exactly: true };
        assert_eq!((open.action(), open.publish), (v1::PinholeAction::Expose, Some(wish)));
        assert_eq!(open.flow.unwrap().source_prefix_length, Some(24));
        for (more, part) in [
            ("--exactly", "--external-port"),
            ("--proxy", "--proxy"),
            ("--signaling casp", "CASP has none"),
            ("--external-address 2001:db8::1", "external-address"),
        ] {
            let error = publish(&format!("{line} {more}")).unwrap_err();
            assert!(error.contains(part), "{more}: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(open("198.51.100.1 --proto udp").unwrap_err().contains("--port"));
        assert!(open("198.51.100.1 --proto udp --port 1 --extend").unwrap_err().contains("--proxy"));
        assert!(open("198.51.100.1 --proto udp --port 1 --from 10.0.0.0/33").unwrap_err().contains("prefix"));
    }
}
