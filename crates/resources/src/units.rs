//! Values as users write them in configurations and read them in refusals.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::ServiceClass;
use signalbox_units::{BitRate, Percent, Service};
pub use signalbox_units::{Identity, Span};

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
as_text!(Share, Net, Ports, Hours, Services, Trusted);

/// A text with an invalid value, and the valid form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {wanted}")]
pub struct BadText {
    text: String,
    wanted: &'static str,
}

pub(crate) fn bad(text: &str, wanted: &'static str) -> BadText {
    // A very long text is cut, because it becomes part of one line.
    BadText { text: text.chars().take(80).collect(), wanted }
}

/// A rate in **octets** a second. Its text has bits: `"10mbit"`, `"2.5 Mbit/s"`, `"64kbit"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(pub u64);

/// Bits a second of each unit, the largest first.
const UNITS: [(u64, &str); 4] = [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit"), (1, "bit")];

impl FromStr for Rate {
    type Err = signalbox_units::BadText;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|rate: BitRate| Self(rate.octets()))
    }
}

/// Written exactly, unlike [`Display`](fmt::Display), which is for people.
#[cfg(feature = "serde")]
impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BitRate::of_octets(self.0).serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BitRate::deserialize(deserializer).map(|rate| Self(rate.octets()))
    }
}

/// In the largest unit that gives at least 1, with up to three decimals.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = unit_of(self.0);
        write!(f, "{} {}/s", InUnit(self.0, unit.0), unit.1)
    }
}

/// "8 of 10 Mbit/s": both values in the unit of the second.
pub(crate) struct UsedOf(pub(crate) u64, pub(crate) u64);

impl fmt::Display for UsedOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = unit_of(self.1);
        write!(f, "{} of {} {}/s", InUnit(self.0, unit.0), InUnit(self.1, unit.0), unit.1)
    }
}

fn unit_of(octets: u64) -> (u64, &'static str) {
    let bits = octets.saturating_mul(8);
    UNITS.into_iter().find(|(factor, _)| bits >= *factor).unwrap_or((1, "bit"))
}

/// A rate in octets a second, shown in a unit of that many bits a second.
struct InUnit(u64, u64);

impl fmt::Display for InUnit {
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
    /// That part of the capacity.
    Percent(Percent),
    /// Not more than the capacity counts.
    Rate(Rate),
}

impl Share {
    /// A part in whole percents; all of it if it is more than 100.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        Self::Percent(Percent::whole(percent))
    }

    /// The part of a link with this capacity, octets a second.
    #[must_use]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Percent(percent) => percent.of(capacity),
            Self::Rate(rate) => rate.0.min(capacity),
        }
    }
}

impl FromStr for Share {
    type Err = signalbox_units::BadText;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('%') { text.parse().map(Self::Percent) } else { text.parse().map(Self::Rate) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => percent.fmt(f),
            Self::Rate(rate) => BitRate::of_octets(rate.0).fmt(f),
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

/// Requesters whose requests are allowed although no rule applies and the default is to deny.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trusted {
    /// `local`: users of this host, and requests for flows that they announced.
    Local,
    /// Neighbors that proved this identity. `authenticated` includes those that share a key with this node.
    Peer(Identity),
    /// Neighbors with these addresses.
    Neighbors(Net),
}

impl Trusted {
    /// Users of this host, and authenticated neighbors.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        vec![Self::Local, Self::Peer(Identity::Authenticated)]
    }
}

impl FromStr for Trusted {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Ok(net) = text.parse() {
            return Ok(Self::Neighbors(net));
        }
        match text.parse() {
            // "any" would trust everybody, which is `Action::Allow`.
            Ok(Identity::Any) | Err(_) => {
                Err(bad(text, "requester, such as \"local\", \"authenticated\" or \"192.0.2.0/24\""))
            }
            Ok(identity) => Ok(Self::Peer(identity)),
        }
    }
}

impl fmt::Display for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Peer(identity) => identity.fmt(f),
            Self::Neighbors(net) => net.fmt(f),
        }
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

/// Services of a rule: one as [`Service`] writes it, or `"dscp"` for every code point.
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
    type Err = signalbox_units::BadText;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "dscp" => Ok(Self::AnyDscp),
            _ => text.parse().map(|Service(class)| Self::One(class)),
        }
    }
}

impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => Service(*one).fmt(f),
            Self::AnyDscp => f.write_str("dscp"),
        }
    }
}
