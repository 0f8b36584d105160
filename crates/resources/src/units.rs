//! Values as users write them in configurations and read them in refusals.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::ServiceClass;

/// Reads and writes a type of this module as the text that it displays as.
macro_rules! as_text {
    ($($name:ident),*) => { $(
        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}
as_text!(Rate, Share, Net, Ports, Span, Hours, Services);

/// A text with an invalid value, and the valid form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {wanted}")]
pub struct BadText {
    text: String,
    wanted: &'static str,
}

fn bad(text: &str, wanted: &'static str) -> BadText {
    // A very long text is cut, because it becomes part of one line.
    BadText { text: text.chars().take(80).collect(), wanted }
}

/// A rate in **octets** a second. Its text has bits: `"10mbit"`, `"2.5 Mbit/s"`, `"64kbit"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(pub u64);

/// Bits a second of each unit, the largest first.
const UNITS: [(u64, &str); 4] = [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit"), (1, "bit")];

impl FromStr for Rate {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        const WANTED: &str = "rate: a number and bit, kbit, mbit or gbit, like \"10mbit\"";
        let fail = || bad(text, WANTED);
        let (number, unit) =
            text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?);
        let unit = unit.trim().to_ascii_lowercase();
        let unit = unit.strip_suffix("/s").unwrap_or(&unit);
        let (factor, _) = UNITS.iter().find(|(_, name)| name.eq_ignore_ascii_case(unit)).ok_or_else(fail)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = u32::try_from(fraction.len()).map_err(|_| fail())?;
        let scale = 10_u64.checked_pow(digits).ok_or_else(fail)?;
        let part = fraction.parse::<u64>().map_err(|_| fail())?.checked_mul(*factor).ok_or_else(fail)?;
        let bits = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(*factor));
        let bits = bits.and_then(|bits| bits.checked_add(part / scale)).ok_or_else(fail)?;
        Ok(Self(bits / 8))
    }
}

/// In the largest unit that gives at least 1, with up to three decimals.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = unit_of(self.0);
        write!(f, "{} {}/s", In(self.0, unit.0), unit.1)
    }
}

/// "8 of 10 Mbit/s": both values in the unit of the second.
pub(crate) struct Of(pub(crate) u64, pub(crate) u64);

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = unit_of(self.1);
        write!(f, "{} of {} {}/s", In(self.0, unit.0), In(self.1, unit.0), unit.1)
    }
}

fn unit_of(octets: u64) -> (u64, &'static str) {
    let bits = octets.saturating_mul(8);
    UNITS.into_iter().find(|(factor, _)| bits >= *factor).unwrap_or((1, "bit"))
}

/// A rate in octets a second, shown in a unit of that many bits a second.
struct In(u64, u64);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.0) * 8;
        let unit = u128::from(self.1);
        let thousandths = (bits % unit) * 1000 / unit;
        write!(f, "{}", bits / unit)?;
        if thousandths == 0 {
            return Ok(());
        }
        let digits = format!("{thousandths:03}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

/// Part of a link: `"75%"` of its capacity, or a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Share {
    /// 0 to 100.
    Percent(u8),
    /// Not more than the capacity counts.
    Rate(Rate),
}

impl Share {
    /// The part of a link with this capacity, octets a second.
    #[must_use]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Percent(percent) => {
                capacity / 100 * u64::from(percent.min(100))
                    + capacity % 100 * u64::from(percent.min(100)) / 100
            }
            Self::Rate(rate) => rate.0.min(capacity),
        }
    }
}

impl FromStr for Share {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fail = |_| bad(text, "share: 0% to 100%, or a rate like \"8mbit\"");
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim().parse() {
                Ok(percent) if percent <= 100 => Ok(Self::Percent(percent)),
                _ => Err(fail(())),
            },
            None => text.parse().map(Self::Rate).map_err(|_| fail(())),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

/// Addresses: `"10.0.0.0/8"`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Net(pub Prefix);

impl Net {
    /// Whether it contains all addresses of `other`.
    #[must_use]
    pub fn covers(&self, other: &Prefix) -> bool {
        self.0.len <= other.len && self.0.contains(other.addr)
    }

    /// Whether the two have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.0.contains(other.addr) || other.contains(self.0.addr)
    }
}

impl FromStr for Net {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fail = || bad(text, "prefix, such as \"10.0.0.0/8\", nor an address");
        let Some((addr, len)) = text.split_once('/') else {
            return Ok(Self(Prefix::host(text.parse().map_err(|_| fail())?)));
        };
        let addr: IpAddr = addr.parse().map_err(|_| fail())?;
        let len: u8 = len.parse().map_err(|_| fail())?;
        if len > Prefix::host(addr).len { Err(fail()) } else { Ok(Self(Prefix { addr, len })) }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Ports: `"5004"` or `"5000-5999"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The first.
    pub from: u16,
    /// The last.
    pub to: u16,
}

impl FromStr for Ports {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (from.trim().parse(), to.trim().parse()) {
            (Ok(from), Ok(to)) if from <= to => Ok(Self { from, to }),
            _ => Err(bad(text, "port or range of ports, like \"5004\" or \"5000-5999\"")),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to { self.from.fmt(f) } else { write!(f, "{}-{}", self.from, self.to) }
    }
}

/// A duration as a whole number of a unit: `"250us"`, `"5ms"`, `"90s"`, `"5m"`, `"1h"`, `"1d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

const SPANS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
/// Microseconds of each.
const SHORT_SPANS: [(u64, &str); 2] = [(1000, "ms"), (1, "us")];

impl FromStr for Span {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fail = || bad(text, "duration: a whole number and us, ms, s, m, h or d, like \"90s\"");
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(fail)?);
        if let Some((factor, _)) = SHORT_SPANS.iter().find(|(_, name)| *name == unit.trim()) {
            let us = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor)).ok_or_else(fail)?;
            return Ok(Self(Duration::from_micros(us)));
        }
        let (factor, _) = SPANS.iter().find(|(_, name)| *name == unit.trim()).ok_or_else(fail)?;
        let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor)).ok_or_else(fail)?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

/// In the largest unit of which it is a whole number. Below a second it has a fraction.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_nanos() != 0 {
            return write!(f, "{:?}", self.0);
        }
        let seconds = self.0.as_secs();
        let (factor, unit) = SPANS
            .into_iter()
            .find(|(factor, _)| seconds >= *factor && seconds.is_multiple_of(*factor))
            .unwrap_or((1, "s"));
        write!(f, "{}{unit}", seconds / factor)
    }
}

/// Hours of a day in UTC, without the end: `"08:00-18:30"`. It spans midnight if the end is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hours {
    /// Minutes since midnight, 0 to 1439.
    pub from: u16,
    /// Minutes since midnight, 0 to 1440.
    pub to: u16,
}

impl FromStr for Hours {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fail = || bad(text, "span of hours, like \"08:00-18:30\"");
        let minutes = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour <= 23 && minute <= 59 || hour == 24 && minute == 0).then(|| hour * 60 + minute)
        };
        let (from, to) = text.split_once('-').ok_or_else(fail)?;
        match (minutes(from), minutes(to)) {
            (Some(from), Some(to)) if from < 1440 && from != to => Ok(Self { from, to }),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

/// Services of a rule: `"controlled-load"`, `"guaranteed"`, `"dscp"` (any code point) or `"dscp 46"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Services {
    /// One service.
    One(ServiceClass),
    /// All services with a code point.
    AnyDscp,
}

impl Services {
    /// Whether it includes `service`.
    #[must_use]
    pub fn contains(self, service: ServiceClass) -> bool {
        match self {
            Self::One(one) => one == service,
            Self::AnyDscp => matches!(service, ServiceClass::Dscp(_)),
        }
    }
}

impl FromStr for Services {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        match text {
            "controlled-load" => Ok(Self::One(ServiceClass::ControlledLoad)),
            "guaranteed" => Ok(Self::One(ServiceClass::Guaranteed)),
            "dscp" => Ok(Self::AnyDscp),
            _ => match text.strip_prefix("dscp ").map(str::parse) {
                Some(Ok(code @ 0..=63)) => Ok(Self::One(ServiceClass::Dscp(code))),
                _ => Err(bad(text, "service: \"controlled-load\", \"guaranteed\", \"dscp\" or \"dscp 46\"")),
            },
        }
    }
}

impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => one.fmt(f),
            Self::AnyDscp => f.write_str("dscp"),
        }
    }
}
