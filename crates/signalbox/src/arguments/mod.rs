//! Groups of options that several commands have. An option has the same name and form in each command.

mod authority;
mod flow;
mod host;
mod request;
mod service;
mod traffic;
pub(crate) mod values;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use signalbox_api::v1;

use crate::exit::usage;

pub(crate) use authority::{AuthorityArgs, identities};
pub(crate) use flow::FlowArgs;
pub(crate) use host::resolve;
pub(crate) use request::RequestArgs;
pub(crate) use service::ServiceArgs;
pub(crate) use traffic::TrafficArgs;

/// Which node to ask.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// Control socket of the daemon.
    #[arg(long, env = "SIGNALBOX_SOCKET", value_name = "PATH", default_value = signalbox_api::DEFAULT_SOCKET)]
    pub(crate) socket: PathBuf,
}

/// The format of a command's output.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON, one object a line (docs/schema/).
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long a state lasts that the command holds.
#[derive(Debug, Clone, Args)]
pub(crate) struct HoldArgs {
    /// Release it after this time; without it, at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub(crate) hold: Option<Duration>,
}

/// What becomes of what a command holds after a loss.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RetryArgs {
    /// Ask again after a loss, with waits from 0.25 s on: the default.
    #[arg(long, overrides_with = "once")]
    retry: bool,
    /// End with status 1 after a loss.
    #[arg(long, overrides_with = "retry")]
    once: bool,
}

impl RetryArgs {
    /// Whether the command asks again.
    pub(crate) const fn asks_again(&self) -> bool {
        self.retry || !self.once
    }
}

/// The signaling protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Signaling {
    /// QoS NSLP over GIST (RFC 5974).
    Qos,
    /// RSVP (RFC 2205): this host announces a sender, and the receiver reserves.
    Rsvp,
    /// Boomerang: an ICMP Echo reserves, and any host that answers pings can be the far end.
    Boomerang,
    /// CASP with its QoS client.
    Casp,
}

impl Signaling {
    pub(crate) const fn protocol(self) -> v1::Protocol {
        match self {
            Self::Qos => v1::Protocol::Qos,
            Self::Rsvp => v1::Protocol::Rsvp,
            Self::Boomerang => v1::Protocol::Boomerang,
            Self::Casp => v1::Protocol::Casp,
        }
    }

    /// Whether the far end confirms a release, so that it is waited for.
    pub(crate) const fn confirms(self) -> bool {
        match self {
            Self::Qos | Self::Casp | Self::Boomerang => true,
            Self::Rsvp => false,
        }
    }

    /// Refuses options that mean nothing for the protocol: whether each is given, and its name.
    ///
    /// # Errors
    /// An option is given.
    pub(crate) fn refuse(self, options: &[(bool, &str)], why: &str) -> Result<()> {
        let name = self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        match options.iter().find(|(given, _)| *given) {
            Some((_, option)) => usage!("{option} has no meaning with --signaling {name}: {why}"),
            None => Ok(()),
        }
    }
}

/// The destination ports of `flows` flows, the first of which goes to `first`.
///
/// # Errors
/// `first` is missing, or there are not enough ports above it.
pub(crate) fn ports(first: Option<u16>, flows: u16) -> Result<RangeInclusive<u16>> {
    let Some(first) = first else { usage!("--flows needs --dport") };
    let Some(last) = flows.checked_sub(1).and_then(|more| first.checked_add(more)) else {
        usage!("there are no {flows} ports from {first}");
    };
    Ok(first..=last)
}

/// A duration in microseconds.
pub(crate) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_each_other() {
        assert_eq!(ports(Some(5000), 3).unwrap(), 5000..=5002);
        assert_eq!(ports(Some(65_535), 1).unwrap(), 65_535..=65_535);
        for (first, flows) in [(None, 2), (Some(65_535), 2), (Some(1), 0)] {
            assert!(ports(first, flows).is_err(), "{first:?} {flows}");
        }
    }
}
