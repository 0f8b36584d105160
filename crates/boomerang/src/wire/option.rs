//! Options after the reservation message (§3.3). An option has no length field: its type gives the length.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Short, Writer};

use super::code_points::{Family, OptionType};
use super::flow::FlowSpec;
use super::qos::Rates;
use crate::error::DecodeError;

/// Octets of the digest of an authentication option.
pub const DIGEST_OCTETS: usize = 16;
/// Option flag: the option was added to the reply, and is about the data of its direction.
pub const OF_REPLY: u16 = 0x0001;

/// A user and what proves it. Both are opaque to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserId {
    /// Name of the user, padded with zeros.
    pub user: [u8; 8],
    /// Credential.
    pub credential: [u8; 8],
}

impl UserId {
    /// The name without its padding; `None`: it is not text.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let end = self.user.iter().rposition(|octet| *octet != 0).map_or(0, |at| at + 1);
        core::str::from_utf8(self.user.get(..end)?).ok()
    }
}

/// An aggregate that a node on the path proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregation {
    /// An address of the node that proposes it.
    pub address: IpAddr,
    /// The node's own number of the aggregate.
    pub transaction: u32,
    /// The common parts of the flows.
    pub flow: FlowSpec,
    /// Sum of the rates of its flows, bit/s.
    pub rate: u32,
}

/// The node that refused, and the reason (an extension of this suite).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// An address of the node.
    pub address: IpAddr,
    /// The reason, as a number of the node's own.
    pub cause: u8,
}

/// An HMAC with a key of the domain (an extension of this suite).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authentication {
    /// Number of the key.
    pub key: u32,
    /// When the initiating node sent the message, microseconds since 1970 by its own clock.
    pub time_us: u64,
    /// The largest rates that the message may reserve, bit/s: nodes may lower those in front of the option.
    pub most: Rates,
    /// The first half of HMAC-SHA-256 over [`signed::parts`](super::signed::parts).
    pub digest: [u8; DIGEST_OCTETS],
}

/// A number that the initiating node returns in its next request (an extension of this suite).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnProof {
    /// The node that wrote it: a random number of its own.
    pub node: u32,
    /// The number.
    pub number: u64,
}

impl ReturnProof {
    /// Octets of its option.
    pub const OCTETS: usize = 16;
    /// Offset of the number in its option.
    pub const NUMBER: usize = 8;
}

/// What the node that refused adds for people: the rule or the limit (an extension of this suite). An option has no length, so the text has
/// a fixed one, and is padded with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note(pub [u8; Note::TEXT]);

impl Note {
    /// Octets of its text.
    pub const TEXT: usize = 60;
    /// Octets of its option.
    pub const OCTETS: usize = 4 + Self::TEXT;

    /// The beginning of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let cut = signalbox_wire::beginning(text, Self::TEXT);
        let mut octets = [0; Self::TEXT];
        octets.iter_mut().zip(cut.bytes()).for_each(|(to, from)| *to = from);
        Self(octets)
    }

    /// The text without padding and control characters: a stranger may have written it. `None`: it is none.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let text = core::str::from_utf8(&self.0).ok()?;
        let text: String = text.chars().filter(|one| !one.is_control()).collect();
        (!text.is_empty()).then_some(text)
    }
}

/// The nodes that granted a request in the direction of its pass (an extension of this suite). The initiating node leaves room for
/// them, because a message does not grow on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes {
    /// How many granted it; those beyond [`Self::MOST`] have no place.
    pub count: u8,
    /// The TTL with which the last of them sent the message on.
    pub ttl: u8,
    /// The most significant bit is that of the first node: between it and the node before it are routers that are not in the list.
    pub gaps: u16,
    /// Their addresses.
    pub places: [IpAddr; Self::MOST],
}

impl Nodes {
    /// Most nodes.
    pub const MOST: usize = 8;
    /// Option flag: the last node is the far end.
    pub const END: u16 = 0x0001;
    /// Octets of its option before the addresses.
    pub const HEAD: usize = 8;

    /// No nodes.
    #[must_use]
    pub const fn empty(ipv6: bool) -> Self {
        let nothing =
            if ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        Self { count: 0, ttl: 0, gaps: 0, places: [nothing; Self::MOST] }
    }

    /// The list of the initiating node, which is the first and sends the message with this TTL.
    #[must_use]
    pub const fn beginning(node: IpAddr, ttl: u8) -> Self {
        let mut nodes = Self { count: 1, ttl, ..Self::empty(node.is_ipv6()) };
        nodes.places[0] = node;
        nodes
    }

    /// Whether a node says that routers before it are not in the list.
    #[must_use]
    pub const fn is_after_gap(&self, place: usize) -> bool {
        place < Self::MOST && self.gaps & (0x8000 >> place) != 0
    }
}

/// An option of a known type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Boomerang_UID.
    UserId(UserId),
    /// RESV_AGGREGATION.
    Aggregation(Aggregation),
    /// Who refused.
    Refusal(Refusal),
    /// Authentication.
    Authentication(Authentication),
    /// Proof of return.
    ReturnProof(ReturnProof),
    /// What the node that refused adds.
    Note(Note),
    /// The nodes that granted.
    Nodes(Nodes),
}

fn address(r: &mut Reader<'_>, ipv6: bool) -> Result<IpAddr, Short> {
    Ok(if ipv6 { Ipv6Addr::from(r.array::<16>()?).into() } else { Ipv4Addr::from(r.array::<4>()?).into() })
}

fn write_address(address: IpAddr, w: &mut Writer<'_>) {
    match address {
        IpAddr::V4(v4) => w.bytes(&v4.octets()),
        IpAddr::V6(v6) => w.bytes(&v6.octets()),
    }
}

impl Aggregation {
    /// Octets of its option.
    #[must_use]
    pub const fn octets(ipv6: bool) -> usize {
        if ipv6 { 108 } else { 48 }
    }
}

impl Known {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> OptionType {
        match self {
            Self::UserId(_) => OptionType::UID,
            Self::Aggregation(_) => OptionType::AGGREGATION,
            Self::Refusal(_) => OptionType::REFUSAL,
            Self::Authentication(_) => OptionType::AUTHENTICATION,
            Self::ReturnProof(_) => OptionType::RETURN_PROOF,
            Self::Note(_) => OptionType::NOTE,
            Self::Nodes(_) => OptionType::NODES,
        }
    }

    /// Appends the whole option with these option flags. BOOM-G39-01, BOOM-3.3.1-01, BOOM-4-01.
    pub fn encode(&self, flags: u16, w: &mut Writer<'_>) {
        w.u16(self.kind().0);
        w.u16(flags);
        match self {
            Self::UserId(uid) => {
                w.bytes(&uid.user);
                w.bytes(&uid.credential);
            }
            Self::Aggregation(aggregate) => {
                write_address(aggregate.address, w);
                w.u32(aggregate.transaction);
                aggregate.flow.encode(w);
                w.u32(aggregate.rate);
            }
            Self::Refusal(refusal) => {
                write_address(refusal.address, w);
                w.bytes(&[refusal.cause, 0, 0, 0]);
            }
            Self::Authentication(authentication) => {
                w.u32(authentication.key);
                w.u64(authentication.time_us);
                w.bytes(&authentication.most.octets());
                w.bytes(&authentication.digest);
            }
            Self::ReturnProof(proof) => {
                w.u32(proof.node);
                w.u64(proof.number);
            }
            Self::Note(note) => w.bytes(&note.0),
            Self::Nodes(nodes) => {
                w.bytes(&[nodes.count, nodes.ttl]);
                w.u16(nodes.gaps);
                nodes.places.iter().for_each(|place| write_address(*place, w));
            }
        }
    }

    /// The body of an option of this type; `None`: the type is unknown. BOOM-3.3.2-01, BOOM-G5-02, BOOM-G24-01, BOOM-G24-03.
    fn parse(r: &mut Reader<'_>, kind: OptionType, ipv6: bool) -> Result<Option<Self>, Short> {
        Ok(Some(match kind {
            OptionType::UID => Self::UserId(UserId { user: r.array()?, credential: r.array()? }),
            OptionType::AGGREGATION => Self::Aggregation(Aggregation {
                address: address(r, ipv6)?,
                transaction: r.u32()?,
                flow: FlowSpec::parse(r, ipv6)?,
                rate: r.u32()?,
            }),
            OptionType::REFUSAL => {
                let address = address(r, ipv6)?;
                let [cause, ..] = r.array::<4>()?;
                Self::Refusal(Refusal { address, cause })
            }
            OptionType::AUTHENTICATION => Self::Authentication(Authentication {
                key: r.u32()?,
                time_us: r.u64()?,
                most: Rates { forward: r.u32()?, reverse: r.u32()? },
                digest: r.array()?,
            }),
            OptionType::RETURN_PROOF => Self::ReturnProof(ReturnProof { node: r.u32()?, number: r.u64()? }),
            OptionType::NOTE => Self::Note(Note(r.array()?)),
            OptionType::NODES => {
                let [count, ttl] = r.array()?;
                let mut nodes = Nodes { count, ttl, gaps: r.u16()?, ..Nodes::empty(ipv6) };
                for place in &mut nodes.places {
                    *place = address(r, ipv6)?;
                }
                Self::Nodes(nodes)
            }
            _ => return Ok(None),
        }))
    }
}

/// An option with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Offset of its type, in octets from the start of the ICMP message.
    pub offset: usize,
    /// Its octets, header included.
    pub length: usize,
    /// Option flags.
    pub flags: u16,
    /// The option.
    pub option: Known,
}

/// The options of a message. All were checked when the message was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options<'a> {
    octets: &'a [u8],
    start: usize,
    ipv6: bool,
    /// Octets after the known options: padding, or an option of unknown type and all that follows it.
    tail: usize,
}

impl<'a> Options<'a> {
    /// No options, for a message that is to be composed.
    #[must_use]
    pub const fn none() -> Self {
        Self { octets: &[], start: 0, ipv6: false, tail: 0 }
    }

    /// The octets of all options.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// The octets after the known options. An option can be added only if this is empty.
    #[must_use]
    pub const fn tail(&self) -> usize {
        self.tail
    }

    /// The known options, in their order, up to the first unknown one. BOOM-3.3-02.
    pub fn iter(&self) -> impl Iterator<Item = Placed> + use<'a> {
        let mut r = Reader::at(self.octets, self.start);
        let ipv6 = self.ipv6;
        // All options were checked when the message was parsed.
        core::iter::from_fn(move || next(&mut r, ipv6).ok().flatten())
    }

    /// The first user of the message. BOOM-G25-02.
    #[must_use]
    pub fn user(&self) -> Option<UserId> {
        self.iter().find_map(|placed| match placed.option {
            Known::UserId(uid) => Some(uid),
            Known::Aggregation(_)
            | Known::Refusal(_)
            | Known::Authentication(_)
            | Known::ReturnProof(_)
            | Known::Note(_)
            | Known::Nodes(_) => None,
        })
    }

    /// The refusal, if a node of this suite refused.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.iter().find_map(|placed| match placed.option {
            Known::Refusal(refusal) => Some(refusal),
            Known::Aggregation(_)
            | Known::UserId(_)
            | Known::Authentication(_)
            | Known::ReturnProof(_)
            | Known::Note(_)
            | Known::Nodes(_) => None,
        })
    }

    /// What the node that refused adds for people.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.iter().find_map(|placed| match placed.option {
            Known::Note(note) => note.text(),
            Known::Aggregation(_)
            | Known::UserId(_)
            | Known::Refusal(_)
            | Known::Authentication(_)
            | Known::ReturnProof(_)
            | Known::Nodes(_) => None,
        })
    }

    /// The list of the nodes that granted, with its place.
    #[must_use]
    pub fn nodes(&self) -> Option<(Placed, Nodes)> {
        self.iter().find_map(|placed| match placed.option {
            Known::Nodes(nodes) => Some((placed, nodes)),
            Known::Aggregation(_)
            | Known::UserId(_)
            | Known::Refusal(_)
            | Known::Authentication(_)
            | Known::ReturnProof(_)
            | Known::Note(_) => None,
        })
    }

    /// The authentication with its offset.
    #[must_use]
    pub fn authentication(&self) -> Option<(usize, Authentication)> {
        self.iter().find_map(|placed| match placed.option {
            Known::Authentication(one) => Some((placed.offset, one)),
            Known::Aggregation(_)
            | Known::UserId(_)
            | Known::Refusal(_)
            | Known::ReturnProof(_)
            | Known::Note(_)
            | Known::Nodes(_) => None,
        })
    }

    /// The proposals of aggregates, with their places.
    pub fn aggregations(&self) -> impl Iterator<Item = (Placed, Aggregation)> + use<'a> {
        self.iter().filter_map(|placed| match placed.option {
            Known::Aggregation(one) => Some((placed, one)),
            Known::UserId(_)
            | Known::Refusal(_)
            | Known::Authentication(_)
            | Known::ReturnProof(_)
            | Known::Note(_)
            | Known::Nodes(_) => None,
        })
    }

    /// The proofs of return, with their places.
    pub fn proofs(&self) -> impl Iterator<Item = (Placed, ReturnProof)> + use<'a> {
        self.iter().filter_map(|placed| match placed.option {
            Known::ReturnProof(one) => Some((placed, one)),
            Known::UserId(_)
            | Known::Refusal(_)
            | Known::Authentication(_)
            | Known::Aggregation(_)
            | Known::Note(_)
            | Known::Nodes(_) => None,
        })
    }

    // BOOM-G24-04
    pub(super) fn parse(r: &mut Reader<'a>, family: Family) -> Result<Self, DecodeError> {
        let (octets, start, ipv6) = (r.peek_rest(), r.offset(), family == Family::IPV6);
        while next(r, ipv6).map_err(|short| DecodeError::Short { field: "option", short })?.is_some() {}
        let tail = r.left();
        r.take_rest();
        Ok(Self { octets, start, ipv6, tail })
    }
}

/// The next option, if it is of a known type; the reader stays in front of anything else.
/// BOOM-3.3-01, BOOM-3.3-05, BOOM-3.3-03.
fn next(r: &mut Reader<'_>, ipv6: bool) -> Result<Option<Placed>, Short> {
    if r.is_empty() {
        return Ok(None);
    }
    let offset = r.offset();
    let mut ahead = *r;
    let (kind, flags) = (ahead.u16()?, ahead.u16()?);
    let found = Known::parse(&mut ahead, OptionType(kind), ipv6)?;
    if found.is_some() {
        *r = ahead;
    }
    let length = ahead.offset() - offset;
    Ok(found.map(|option| Placed { offset, length, flags, option }))
}
