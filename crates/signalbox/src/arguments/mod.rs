//! Arguments that several commands have, and parsers of values.

mod flow;

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use signalbox_resources::Rate;

pub(crate) use flow::WantedArgs;

/// The format of a command's output.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a time with its unit: 250us, 200ms, 1.5s, 2m; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let size = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        _ => return Err("use us, ms, s or m, as in 200ms".into()),
    };
    let number: f64 = number.parse().map_err(|_| "use a number and a unit, as in 200ms or 1s")?;
    let duration = Duration::try_from_secs_f64(number * size).map_err(|e| e.to_string())?;
    if duration < Duration::from_millis(1) || duration > Duration::from_secs(3600) {
        return Err("between 1ms and 60m".into());
    }
    Ok(duration)
}

/// Parses an IP protocol, by name or number.
pub(crate) fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp6" | "icmpv6" => Ok(58),
        _ => text.parse().map_err(|_| "use a number from 0 to 255, or tcp, udp, icmp, icmpv6".into()),
    }
}

/// Parses a rate above 0, in bits a second: 64kbit, 20mbit.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate(0)) => Err("above 0, as in 64kbit or 20mbit".into()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a number of octets: 3000, 15k, 1m.
pub(crate) fn octets(text: &str) -> Result<u32, String> {
    let wrong = || "use a number of octets, as in 3000, 15k or 1m".to_owned();
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    let (number, factor) = match lower.strip_suffix('k') {
        Some(number) => (number, 1_000),
        None => lower.strip_suffix('m').map_or((lower, 1), |number| (number, 1_000_000)),
    };
    number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

/// The destination ports of `flows` flows, the first of which goes to `first`.
///
/// # Errors
/// `first` is missing, or there are not enough ports above it.
pub(crate) fn ports(first: Option<u16>, flows: u16) -> Result<RangeInclusive<u16>> {
    let first = first.context("--flows needs --dport")?;
    let Some(last) = flows.checked_sub(1).and_then(|more| first.checked_add(more)) else {
        bail!("there are no {flows} ports from {first}");
    };
    Ok(first..=last)
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
