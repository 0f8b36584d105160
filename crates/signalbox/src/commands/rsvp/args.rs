//! Arguments that several RSVP commands have.

use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::filter::Selector;
use signalbox_api::v1::Priority;

use crate::arguments::values::{Octets, flow_label, ip_protocol, number, octets, priority};
use crate::arguments::{HoldArgs, NodeArgs, OutputArgs, identities, resolve};
use crate::exit::usage;

/// The data of a session (RFC 2205 §1).
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Destination of the data: a host, by its address or name, or a multicast group.
    pub(crate) destination: String,
    /// IP protocol of the data: a number, or tcp, udp, icmp.
    #[arg(long = "proto", value_name = "IP-PROTOCOL", value_parser = ip_protocol, help_heading = "Flow")]
    pub(crate) ip_protocol: u8,
    /// Destination port of the data.
    #[arg(long = "dport", value_name = "PORT", help_heading = "Flow")]
    pub(crate) destination_port: Option<u16>,
    /// The port is a virtual one; senders are identified by the SPI of their IPsec packets (RFC 2207).
    #[arg(long, help_heading = "Flow")]
    pub(crate) ipsec: bool,
}

impl DataArgs {
    /// The address of the destination, of the IP version of `source`.
    ///
    /// # Errors
    /// The name cannot be resolved.
    pub(crate) fn destination(&self, source: Option<IpAddr>) -> Result<IpAddr> {
        resolve(&self.destination, source)
    }

    /// The session in requests to the daemon.
    pub(crate) fn session(&self, destination: IpAddr) -> v1::Register {
        v1::Register {
            destination: destination.to_string(),
            ip_protocol: self.ip_protocol.into(),
            destination_port: self.destination_port.map(Into::into),
            ipsec: self.ipsec,
        }
    }
}

/// A session that the command holds.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Do the same for N sessions, to ports from --dport on, and report when all of them are complete.
    #[arg(long, value_name = "N", requires = "destination_port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) flows: Option<u16>,
    #[command(flatten)]
    pub(crate) lifetime: HoldArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// POLICY_DATA for the nodes of the path (RFC 2750).
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Authority")]
pub(crate) struct PolicyArgs {
    /// Preemption priority, and behind a slash the defending priority if it differs (RFC 3181): 0 to 65535.
    #[arg(long, value_name = "SETUP[/DEFENDING]", value_parser = priority)]
    priority: Option<Priority>,
    /// Login name of the user, and behind a comma the distinguished name (RFC 3182); may be repeated.
    #[arg(long = "user", value_name = "NAME[,DN]")]
    users: Vec<String>,
    /// Name of the application, and behind a comma the distinguished name (RFC 3182); may be repeated.
    #[arg(long = "application", value_name = "NAME[,DN]")]
    applications: Vec<String>,
    /// Complete POLICY_DATA objects, one after the other (RFC 2750): a file, or hexadecimal digits.
    #[arg(long, value_name = "@FILE", value_parser = octets)]
    policy_data: Option<Octets>,
}

impl PolicyArgs {
    /// The policy as part of a request; `None` if there is none to send.
    pub(super) fn request(&self) -> Option<v1::PolicyData> {
        let users = identities(&self.users, v1::IdentityKind::User);
        let applications = identities(&self.applications, v1::IdentityKind::Application);
        let policy = v1::PolicyData {
            octets: self.policy_data.as_ref().map(|octets| octets.0.clone()).unwrap_or_default(),
            priority: self.priority,
            identities: users.chain(applications).collect(),
        };
        (policy != v1::PolicyData::default()).then_some(policy)
    }
}

/// Parses a sender: an address, and behind a slash its port, `label:N` or `spi:N`.
pub(super) fn sender(text: &str) -> Result<v1::Filter, String> {
    let wrong = || "use ADDRESS, ADDRESS/PORT, ADDRESS/label:N or ADDRESS/spi:N".to_owned();
    let (address, rest) = text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
    let source: IpAddr = address.parse().map_err(|_| wrong())?;
    let selector = match rest {
        None => None,
        Some(rest) => Some(if let Some(label) = rest.strip_prefix("label:") {
            Selector::FlowLabel(flow_label(label).map_err(|_| wrong())?)
        } else if let Some(spi) = rest.strip_prefix("spi:") {
            Selector::Spi(number(spi).map_err(|_| wrong())?)
        } else {
            Selector::SourcePort(rest.parse::<u16>().map_err(|_| wrong())?.into())
        }),
    };
    Ok(v1::Filter { source: Some(source.to_string()), selector })
}

/// Fails unless an SPI is given exactly if the session is one of IPsec.
pub(super) fn check_spi(spi: bool, ipsec: bool) -> Result<()> {
    if spi != ipsec {
        usage!("--ipsec and the SPI of a sender go together");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn request(line: &[&str]) -> Result<Option<v1::PolicyData>, String> {
        let line = Line::try_parse_from(["x"].iter().chain(line));
        line.map(|line| line.policy.request()).map_err(|error| error.to_string())
    }

    #[test]
    fn policy_arguments_become_a_request() {
        assert_eq!(request(&[]), Ok(None));
        let line = ["--policy-data", "00080eFF", "--priority", "5", "--user", "ann, CN=Ann, O=X"];
        let policy = request(&line).unwrap().unwrap();
        assert_eq!(policy.octets, [0, 8, 14, 255]);
        assert_eq!(policy.priority, Some(Priority { setup: 5, defending: None }));
        let locator = Some("CN=Ann, O=X".to_owned());
        let ann = v1::Identity { kind: v1::IdentityKind::User.into(), name: "ann".into(), locator };
        assert_eq!(policy.identities, [ann]);
        let both = request(&["--priority", "5/7", "--application", "vic"]).unwrap().unwrap();
        assert_eq!(both.priority, Some(Priority { setup: 5, defending: Some(7) }));
        assert_eq!(both.identities[0].kind(), v1::IdentityKind::Application);
    }

    #[test]
    fn senders_are_read() {
        for (text, expected) in [
            ("10.0.0.1", None),
            ("10.0.0.1/5004", Some(Selector::SourcePort(5004))),
            ("fd00::1/label:0x12345", Some(Selector::FlowLabel(0x12345))),
            ("fd00::1/spi:7", Some(Selector::Spi(7))),
        ] {
            assert_eq!(sender(text).unwrap().selector, expected, "{text}");
        }
        for text in ["h1", "10.0.0.1/", "10.0.0.1/70000", "fd00::1/label:0x100000", "fd00::1/spi:x"] {
            assert!(sender(text).is_err(), "{text}");
        }
    }
}
