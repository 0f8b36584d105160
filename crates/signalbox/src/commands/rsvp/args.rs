//! Arguments that several RSVP commands have.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use signalbox_api::v0;
use signalbox_api::v0::rsvp_filter::Selector;
use signalbox_resources::Rate;

use crate::arguments::{duration, octets, protocol, rate};

/// Default of the largest packet: that of Ethernet.
const MAX_PACKET: u32 = 1500;
/// Default of the minimum policed unit: headers of IPv4 and UDP, and little more.
const MIN_POLICED: u32 = 64;

/// The session (RFC 2205 §1).
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArgs {
    /// Destination of the data: a host or a multicast group.
    pub(crate) destination: IpAddr,
    /// IP protocol of the data: a number, or tcp, udp, icmp.
    #[arg(long = "proto", value_name = "PROTOCOL", value_parser = protocol)]
    pub(crate) protocol: u8,
    /// Destination port of the data.
    #[arg(long = "dport", value_name = "PORT")]
    pub(crate) destination_port: Option<u16>,
    /// Do the same for N sessions, to ports from --dport on, and report when all of them are complete.
    #[arg(long, value_name = "N", requires = "destination_port", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) flows: Option<u16>,
    /// The port is a virtual one; senders are identified by the SPI of their IPsec packets (RFC 2207).
    #[arg(long)]
    pub(crate) ipsec: bool,
    /// End after this time; without it, at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) hold: Option<Duration>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl SessionArgs {
    /// The request with which the call of a session begins.
    pub(super) fn register(&self) -> v0::RsvpRegister {
        v0::RsvpRegister {
            destination: self.destination.to_string(),
            protocol: self.protocol.into(),
            port: self.destination_port.unwrap_or(0).into(),
            ipsec: self.ipsec,
        }
    }
}

/// The traffic of a sender (token bucket, RFC 2215).
#[derive(Debug, Clone, Args)]
pub(crate) struct TrafficArgs {
    /// Burst in octets: 3000, 15k, 1m [default: a tenth of a second at the rate].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) burst: Option<u32>,
    /// Peak rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) peak: Option<Rate>,
    /// Largest packet in octets [default: 1500].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) max_packet: Option<u32>,
    /// Minimum policed unit: shorter packets count as N octets [default: 64].
    #[arg(long, value_name = "OCTETS", value_parser = octets)]
    pub(crate) min_policed: Option<u32>,
}

impl TrafficArgs {
    #[expect(clippy::cast_precision_loss, reason = "rates of links are far below 2^53")]
    pub(super) fn with_rate(&self, rate: Rate) -> v0::RsvpTraffic {
        let max_packet = self.max_packet.unwrap_or(MAX_PACKET);
        let usual = (rate.0 / 10).max(u64::from(max_packet) * 2);
        v0::RsvpTraffic {
            rate: rate.0 as f64,
            burst: self.burst.map_or(usual as f64, f64::from),
            peak: self.peak.map(|peak| peak.0 as f64),
            min_policed: self.min_policed.unwrap_or(MIN_POLICED).min(max_packet),
            max_packet,
        }
    }
}

/// POLICY_DATA for the nodes of the path.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyArgs {
    /// Complete POLICY_DATA objects, one after the other (RFC 2750): hexadecimal digits, or @FILE.
    #[arg(long, value_name = "HEX|@FILE", value_parser = policy_data)]
    policy_data: Option<Octets>,
    /// Preemption priority, and behind a slash the defending priority if it differs (RFC 3181): 0 to 65535.
    #[arg(long, value_name = "SETUP[/DEFENDING]", value_parser = preemption)]
    preemption: Option<v0::RsvpPreemption>,
    /// Login name of the user, and behind a comma the distinguished name (RFC 3182); may be repeated.
    #[arg(long = "user", value_name = "NAME[,DN]")]
    users: Vec<String>,
    /// Name of the application, and behind a comma the distinguished name (RFC 3182); may be repeated.
    #[arg(long = "application", value_name = "NAME[,DN]")]
    applications: Vec<String>,
}

#[derive(Debug, Clone)]
struct Octets(Vec<u8>);

impl PolicyArgs {
    /// The policy as part of a request; `None` if there is none to send.
    pub(super) fn request(&self) -> Option<v0::RsvpPolicy> {
        let identity = |application: bool| {
            move |text: &String| {
                let (name, locator) = text.split_once(',').unwrap_or((text, ""));
                v0::RsvpIdentity {
                    application,
                    name: name.to_owned(),
                    locator: locator.trim_start().to_owned(),
                }
            }
        };
        let users = self.users.iter().map(identity(false));
        let policy = v0::RsvpPolicy {
            octets: self.policy_data.as_ref().map(|octets| octets.0.clone()).unwrap_or_default(),
            preemption: self.preemption,
            identities: users.chain(self.applications.iter().map(identity(true))).collect(),
        };
        (policy != v0::RsvpPolicy::default()).then_some(policy)
    }
}

fn policy_data(text: &str) -> Result<Octets, String> {
    if let Some(file) = text.strip_prefix('@') {
        return std::fs::read(file).map(Octets).map_err(|error| format!("cannot read {file}: {error}"));
    }
    let digit = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let hexadecimal = text.bytes().all(|octet| octet.is_ascii_hexdigit());
    let octets = (0..text.len()).step_by(2).map(digit).collect::<Option<Vec<_>>>();
    octets.filter(|_| hexadecimal).map(Octets).ok_or("use pairs of hexadecimal digits, or @FILE".to_owned())
}

fn preemption(text: &str) -> Result<v0::RsvpPreemption, String> {
    let (setup, defending) = text.split_once('/').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().map(u32::from);
    match (number(setup), number(defending)) {
        (Ok(setup), Ok(defending)) => Ok(v0::RsvpPreemption { setup, defending }),
        _ => Err("use SETUP or SETUP/DEFENDING, each 0 to 65535".to_owned()),
    }
}

/// Parses a sender: an address, and behind a slash its port, `label:N` or `spi:N`.
pub(super) fn sender(text: &str) -> Result<v0::RsvpFilter, String> {
    let wrong = || "use ADDRESS, ADDRESS/PORT, ADDRESS/label:N or ADDRESS/spi:N".to_owned();
    let (address, rest) = text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
    let source: IpAddr = address.parse().map_err(|_| wrong())?;
    let selector = match rest {
        None => None,
        Some(rest) => Some(if let Some(label) = rest.strip_prefix("label:") {
            Selector::FlowLabel(number(label).filter(|label| label >> 20 == 0).ok_or_else(wrong)?)
        } else if let Some(spi) = rest.strip_prefix("spi:") {
            Selector::Spi(number(spi).ok_or_else(wrong)?)
        } else {
            Selector::Port(rest.parse::<u16>().map_err(|_| wrong())?.into())
        }),
    };
    Ok(v0::RsvpFilter { source: source.to_string(), selector })
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
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

    fn request(line: &[&str]) -> Result<Option<v0::RsvpPolicy>, String> {
        let line = Line::try_parse_from(["x"].iter().chain(line));
        line.map(|line| line.policy.request()).map_err(|error| error.to_string())
    }

    #[test]
    fn policy_arguments_become_a_request() {
        assert_eq!(request(&[]), Ok(None));
        let line = ["--policy-data", "00080eFF", "--preemption", "5", "--user", "ann, CN=Ann, O=X"];
        let policy = request(&line).unwrap().unwrap();
        assert_eq!(policy.octets, [0, 8, 14, 255]);
        assert_eq!(policy.preemption, Some(v0::RsvpPreemption { setup: 5, defending: 5 }));
        let ann = v0::RsvpIdentity { application: false, name: "ann".into(), locator: "CN=Ann, O=X".into() };
        assert_eq!(policy.identities, [ann]);
        let both = request(&["--preemption", "5/7", "--application", "vic"]).unwrap().unwrap();
        assert_eq!(both.preemption, Some(v0::RsvpPreemption { setup: 5, defending: 7 }));
        assert!(both.identities[0].application);
        for wrong in [
            ["--policy-data", "0"],
            ["--policy-data", "+1+2"],
            ["--policy-data", "@/none/such"],
            ["--preemption", "65536"],
            ["--preemption", "1/"],
        ] {
            assert!(request(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn senders_are_read() {
        for (text, expected) in [
            ("10.0.0.1", None),
            ("10.0.0.1/5004", Some(Selector::Port(5004))),
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
