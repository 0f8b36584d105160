//! Texts: names, addresses, choices, and what is read by its own type.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use signalbox_linux::pinhole::Chain;
use signalbox_node::resources::units::{Hours, Net, Ports, Services, Trusted};
use signalbox_units::{Identity, Service};

use super::{Kind, KindError, quoted};
use crate::tree::{Tree, Value};

/// Any text up to a number of octets.
pub(crate) struct Text(usize);

/// A text of at most `most` octets.
pub(crate) fn text(most: usize) -> Text {
    Text(most)
}

impl Kind for Text {
    type Value = String;

    fn read(&self, value: &Tree) -> Result<String, KindError> {
        match &value.value {
            Value::Text(text) if text.len() <= self.0 => Ok(text.clone()),
            Value::Text(_) => Err(KindError::new("too long")),
            other => Err(KindError::new(format!("{other} is not a text"))),
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn form(&self) -> String {
        "a text in quotes".to_owned()
    }

    fn range(&self) -> String {
        format!("at most {} octets", self.0)
    }

    fn example(&self) -> String {
        quoted("r1")
    }
}

/// The path of a file.
pub(crate) struct Path(&'static str);

/// The path of a file, such as `example`.
pub(crate) fn path(example: &'static str) -> Path {
    Path(example)
}

impl Kind for Path {
    type Value = PathBuf;

    fn read(&self, value: &Tree) -> Result<PathBuf, KindError> {
        match &value.value {
            Value::Text(text) if !text.is_empty() => Ok(PathBuf::from(text)),
            other => Err(KindError::new(format!("{other} is not a path"))),
        }
    }

    fn show(&self, value: &PathBuf) -> String {
        quoted(&value.display().to_string())
    }

    fn form(&self) -> String {
        "a path in quotes".to_owned()
    }

    fn example(&self) -> String {
        quoted(self.0)
    }
}

/// One of several words.
pub(crate) struct Choice<T: 'static>(&'static [(&'static str, T)]);

/// One of these words.
pub(crate) fn choice<T: Clone + PartialEq>(words: &'static [(&'static str, T)]) -> Choice<T> {
    Choice(words)
}

impl<T: Clone + PartialEq> Kind for Choice<T> {
    type Value = T;

    fn read(&self, value: &Tree) -> Result<T, KindError> {
        let Value::Text(text) = &value.value else {
            return Err(KindError::new(format!("{} is not one of the words", value.value)));
        };
        let known = self.0.iter().find(|(word, _)| word == text);
        known
            .map(|(_, meaning)| meaning.clone())
            .ok_or_else(|| KindError::new(format!("{} is unknown", value.value)))
    }

    fn show(&self, value: &T) -> String {
        let word = self.0.iter().find(|(_, meaning)| meaning == value).map_or("", |(word, _)| word);
        quoted(word)
    }

    fn form(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| quoted(word)).collect();
        format!("one of {}", words.join(", "))
    }

    fn range(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| quoted(word)).collect();
        words.join(", ")
    }

    fn example(&self) -> String {
        quoted(self.0.first().map_or("", |(word, _)| word))
    }
}

/// A text that a type reads and writes itself.
pub(crate) struct Parsed<T> {
    form: &'static str,
    example: &'static str,
    show: fn(&T) -> String,
}

impl<T: FromStr> Kind for Parsed<T> {
    type Value = T;

    fn read(&self, value: &Tree) -> Result<T, KindError> {
        let Value::Text(text) = &value.value else {
            return Err(KindError::new(format!("{} is not {}", value.value, self.form)));
        };
        text.parse().map_err(|_| KindError::new(format!("{} is not {}", value.value, self.form)))
    }

    fn show(&self, value: &T) -> String {
        quoted(&(self.show)(value))
    }

    fn form(&self) -> String {
        self.form.to_owned()
    }

    fn example(&self) -> String {
        quoted(self.example)
    }
}

/// An address and a port to listen at.
pub(crate) fn listener() -> Parsed<SocketAddr> {
    let form = "an address and a port in quotes, an IPv6 address in brackets";
    Parsed { form, example: "127.0.0.1:9464", show: SocketAddr::to_string }
}

/// An address.
pub(crate) fn address() -> Parsed<IpAddr> {
    Parsed { form: "an IPv4 or IPv6 address in quotes", example: "192.0.2.1", show: IpAddr::to_string }
}

/// A prefix, or an address.
pub(crate) fn network() -> Parsed<Net> {
    Parsed { form: "a prefix or an address in quotes", example: "192.0.2.0/24", show: Net::to_string }
}

/// A port or a range of ports.
pub(crate) fn ports() -> Parsed<Ports> {
    Parsed { form: "a port or a range of ports in quotes", example: "5000-5999", show: Ports::to_string }
}

/// A chain of nftables.
pub(crate) fn chain() -> Parsed<Chain> {
    Parsed {
        form: "family, table and name of a chain in quotes; the family is inet, ip or ip6",
        example: "inet filter forward",
        show: Chain::to_string,
    }
}

/// A span of the day.
pub(crate) fn time_of_day() -> Parsed<Hours> {
    Parsed { form: "a span of hours in quotes", example: "08:00-18:30", show: Hours::to_string }
}

/// Services of a rule.
pub(crate) fn rule_service() -> Parsed<Services> {
    Parsed {
        form: "controlled-load, guaranteed, ef, dscp:N or dscp (every code point) in quotes",
        example: "guaranteed",
        show: Services::to_string,
    }
}

/// The service of a request.
pub(crate) fn service() -> Parsed<Service> {
    Parsed {
        form: "controlled-load, guaranteed, ef or dscp:N in quotes",
        example: "guaranteed",
        show: Service::to_string,
    }
}

/// Peers by their identity.
pub(crate) fn peer() -> Parsed<Identity> {
    Parsed {
        form: "an identity in quotes: any, authenticated, dns:NAME, address:ADDRESS or key:FINGERPRINT",
        example: Identity::FORM.example,
        show: Identity::to_string,
    }
}

/// Requesters that need no rule.
pub(crate) fn trusted() -> Parsed<Trusted> {
    Parsed {
        form: "a requester in quotes: local, authenticated, dns:NAME, address:ADDRESS, key:FINGERPRINT or a prefix",
        example: "192.0.2.0/24",
        show: Trusted::to_string,
    }
}

/// An IP protocol.
pub(crate) struct IpProtocol;

/// An IP protocol by number or name.
pub(crate) const fn ip_protocol() -> IpProtocol {
    IpProtocol
}

const IP_PROTOCOLS: [(&str, u8); 5] = [("icmp", 1), ("tcp", 6), ("udp", 17), ("icmpv6", 58), ("sctp", 132)];

impl Kind for IpProtocol {
    type Value = u8;

    fn read(&self, value: &Tree) -> Result<u8, KindError> {
        let known = match &value.value {
            Value::Text(text) => {
                IP_PROTOCOLS.iter().find(|(name, _)| name == text).map(|(_, number)| *number)
            }
            Value::Integer(number) => u8::try_from(*number).ok(),
            _ => None,
        };
        known.ok_or_else(|| KindError::new(format!("{} is not an IP protocol", value.value)))
    }

    fn show(&self, value: &u8) -> String {
        let name = IP_PROTOCOLS.iter().find(|(_, number)| number == value);
        name.map_or_else(|| value.to_string(), |(name, _)| quoted(name))
    }

    fn form(&self) -> String {
        "\"icmp\", \"tcp\", \"udp\", \"icmpv6\", \"sctp\" or a number from 0 to 255".to_owned()
    }

    fn example(&self) -> String {
        quoted("udp")
    }
}
