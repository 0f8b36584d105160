//! Sets and maps of nftables, and their elements.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::node::Prefix;

use super::expression::{NFTA_EXPR_NAME, go_to_data};
use super::flow::Part;
use super::{NFPROTO_INET, NFTA_DATA_VALUE, NFTA_LIST_ELEM, about, message, number, text};
use crate::netlink::Batch;
use crate::netlink::codec::{self, Attributes, Connection, NESTED, be64_of, find};

const NFT_MSG_NEWSET: u16 = message(9);
pub(super) const NFT_MSG_DELSET: u16 = message(11);
const NFT_MSG_NEWSETELEM: u16 = message(12);
const NFT_MSG_GETSETELEM: u16 = message(13);
const NFT_MSG_DELSETELEM: u16 = message(14);
const NFT_MSG_DESTROYSETELEM: u16 = message(30);
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_DATA_LEN: u16 = 7;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_USERDATA: u16 = 13;
const NFTA_SET_EXPR: u16 = 17;
const NFTA_SET_DESC_SIZE: u16 = 1;
const NFTA_SET_DESC_CONCAT: u16 = 2;
const NFTA_SET_FIELD_LEN: u16 = 1;
const NFT_SET_INTERVAL: u32 = 4;
const NFT_SET_MAP: u32 = 8;
const NFT_SET_TIMEOUT: u32 = 16;
const NFT_SET_CONCAT: u32 = 128;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
const NFTA_SET_ELEM_EXPR: u16 = 7;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFTA_EXPR_DATA: u16 = super::expression::NFTA_EXPR_DATA;
const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;

/// The number of the type of classes as the nft tool shows it.
const CLASS_ID: u32 = 23;
/// The data type of a verdict.
const NFT_DATA_VERDICT: u32 = 0xffff_ff00;
/// What the nft tool stores with a set to show it: the order of octets of its keys and of its values.
const NFTNL_UDATA_SET_KEYBYTEORDER: u8 = 0;
const NFTNL_UDATA_SET_DATABYTEORDER: u8 = 1;
const BYTEORDER_HOST_ENDIAN: u32 = 1;

/// What the keys of a set, or the values of a map, are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    /// Parts of the headers of packets.
    Parts(&'a [Part]),
    /// A class in the queues of a link, a number in the order of this machine.
    Class,
    /// A verdict; of values only.
    Verdict,
}

impl Form<'_> {
    /// The type as the nft tool shows it, and the length of the registers in octets. The kernel knows that of a verdict.
    fn kind(self, ipv6: bool) -> (u32, u32) {
        match self {
            Self::Parts(parts) => joined(parts, ipv6),
            Self::Class => (CLASS_ID, 4),
            Self::Verdict => (NFT_DATA_VERDICT, 0),
        }
    }
}

/// A set, or a map.
#[derive(Debug, Clone)]
pub(crate) struct Set<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether its addresses are IPv6's.
    pub(crate) ipv6: bool,
    /// Its keys.
    pub(crate) key: Form<'a>,
    /// The values of a map; `None`: it is a set, and counts the packets of each element.
    pub(crate) value: Option<Form<'a>>,
    /// Whether its elements are ranges.
    pub(crate) ranges: bool,
    /// Whether its elements have timeouts.
    pub(crate) timeouts: bool,
    /// The most elements.
    pub(crate) size: u32,
}

/// One element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// Its key, or the first key of its range.
    pub(crate) key: Vec<u8>,
    /// The last key of its range.
    pub(crate) end: Option<Vec<u8>>,
    /// The value in a map.
    pub(crate) value: Option<Value>,
}

/// The value of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Octets, as a register holds them.
    Octets(Vec<u8>),
    /// The verdict to continue in this chain.
    GoTo(String),
}

/// What happens to an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is added without timeout. One that exists is an error.
    New,
    /// It is added with a timeout. One that exists gets the new timeout (from Linux 6.12 on).
    Add(Duration),
    /// It is removed. A missing element is an error.
    Delete,
    /// It is removed if it exists (from Linux 6.3 on).
    Destroy,
}

/// What the kernel has of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The timeout that it was added with.
    pub(crate) timeout: Duration,
    /// The time until the kernel removes it.
    pub(crate) left: Duration,
    /// The packets that it matched.
    pub(crate) packets: u64,
    /// Their octets.
    pub(crate) octets: u64,
}

/// The number of a type as the nft tool shows it, and its length in octets.
const fn data_type(part: Part, ipv6: bool) -> (u32, u32) {
    match part {
        Part::Source | Part::Destination if ipv6 => (8, 16),
        Part::Source | Part::Destination => (7, 4),
        Part::Protocol => (12, 1),
        Part::SourcePort | Part::DestinationPort => (13, 2),
    }
}

/// The type of parts together, and the length of their registers in octets.
fn joined(parts: &[Part], ipv6: bool) -> (u32, u32) {
    parts.iter().fold((0, 0), |(kind, length), part| {
        (kind << 6 | data_type(*part, ipv6).0, length + 4 * part.registers(ipv6))
    })
}

/// Appends a request for a set in a table of the family `inet`. A set that exists in this form stays with its elements.
pub(crate) fn set(requests: &mut Batch, table: &str, id: u32, set: &Set<'_>) {
    let Set { name, ipv6, key, value, ranges, timeouts, size } = *set;
    let mut flags = 0;
    if timeouts {
        flags |= NFT_SET_TIMEOUT;
    }
    if ranges {
        flags |= NFT_SET_INTERVAL | NFT_SET_CONCAT;
    }
    if value.is_some() {
        flags |= NFT_SET_MAP;
    }
    let (kind, length) = key.kind(ipv6);
    let request = requests
        .begin(NFT_MSG_NEWSET, libc::NLM_F_CREATE, &about(NFPROTO_INET))
        .attribute(NFTA_SET_TABLE, &text(table))
        .attribute(NFTA_SET_NAME, &text(name))
        .attribute(NFTA_SET_FLAGS, &number(flags))
        .attribute(NFTA_SET_KEY_TYPE, &number(kind))
        .attribute(NFTA_SET_KEY_LEN, &number(length));
    if let Some(value) = value {
        let (kind, length) = value.kind(ipv6);
        request.attribute(NFTA_SET_DATA_TYPE, &number(kind)).attribute(NFTA_SET_DATA_LEN, &number(length));
    }
    request.attribute(NFTA_SET_ID, &number(id)).nest(NFTA_SET_DESC, |desc| {
        desc.attribute(NFTA_SET_DESC_SIZE, &number(size));
        if let (true, Form::Parts(key)) = (ranges, key) {
            desc.nest(NFTA_SET_DESC_CONCAT, |fields| {
                for part in key {
                    let length = data_type(*part, ipv6).1;
                    fields.nest(NFTA_LIST_ELEM, |field| field.attribute(NFTA_SET_FIELD_LEN, &number(length)));
                }
                fields
            });
        }
        desc
    });
    if value.is_none() {
        request.nest(NFTA_SET_EXPR, |counter| {
            counter.attribute(NFTA_EXPR_NAME, &text("counter")).nest(NFTA_EXPR_DATA, |data| data)
        });
    }
    let notes = notes(key, value);
    if !notes.is_empty() {
        request.attribute(NFTA_SET_USERDATA, &notes);
    }
}

/// What the nft tool needs to show classes. Without it the tool takes them for numbers in network order.
fn notes(key: Form<'_>, value: Option<Form<'_>>) -> Vec<u8> {
    let mut notes = Vec::new();
    for (kind, form) in [(NFTNL_UDATA_SET_KEYBYTEORDER, Some(key)), (NFTNL_UDATA_SET_DATABYTEORDER, value)] {
        if form == Some(Form::Class) {
            notes.extend([kind, 4]);
            notes.extend(BYTEORDER_HOST_ENDIAN.to_ne_bytes());
        }
    }
    notes
}

/// Appends the removal of all elements of a set.
pub(crate) fn empty(requests: &mut Batch, (table, set): (&str, &str)) {
    requests
        .begin(NFT_MSG_DELSETELEM, 0, &about(NFPROTO_INET))
        .attribute(NFTA_SET_ELEM_LIST_TABLE, &text(table))
        .attribute(NFTA_SET_ELEM_LIST_SET, &text(set));
}

/// Appends the deletion of a set that no rule uses.
pub(crate) fn delete(requests: &mut Batch, (table, set): (&str, &str)) {
    requests
        .begin(NFT_MSG_DELSET, 0, &about(NFPROTO_INET))
        .attribute(NFTA_SET_TABLE, &text(table))
        .attribute(NFTA_SET_NAME, &text(set));
}

/// Appends a change of an element.
pub(crate) fn change(requests: &mut Batch, (table, set): (&str, &str), element: &Element, change: Change) {
    let (kind, flags) = match change {
        Change::New => (NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE | libc::NLM_F_EXCL),
        Change::Add(_) => (NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE),
        Change::Delete => (NFT_MSG_DELSETELEM, 0),
        Change::Destroy => (NFT_MSG_DESTROYSETELEM, 0),
    };
    requests
        .begin(kind, flags, &about(NFPROTO_INET))
        .attribute(NFTA_SET_ELEM_LIST_TABLE, &text(table))
        .attribute(NFTA_SET_ELEM_LIST_SET, &text(set))
        .nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
            list.nest(NFTA_LIST_ELEM, |item| {
                item.nest(NFTA_SET_ELEM_KEY, |data| data.attribute(NFTA_DATA_VALUE, &element.key));
                if let Some(end) = &element.end {
                    item.nest(NFTA_SET_ELEM_KEY_END, |data| data.attribute(NFTA_DATA_VALUE, end));
                }
                if let (Change::New | Change::Add(_), Some(value)) = (change, &element.value) {
                    item.nest(NFTA_SET_ELEM_DATA, |data| match value {
                        Value::Octets(octets) => data.attribute(NFTA_DATA_VALUE, octets),
                        Value::GoTo(chain) => go_to_data(data, chain),
                    });
                }
                if let Change::Add(timeout) = change {
                    let timeout = milliseconds(timeout);
                    item.attribute(NFTA_SET_ELEM_TIMEOUT, &timeout)
                        .attribute(NFTA_SET_ELEM_EXPIRATION, &timeout);
                }
                item
            })
        });
}

/// Reads an element; `None`: there is no such element. The kernel finds a range by one key in it, so that it may answer with
/// another range.
pub(crate) fn read(
    connection: &mut Connection,
    (table, set): (&str, &str),
    element: &Element,
) -> io::Result<Option<State>> {
    let value = |kind, octets| codec::attribute(kind | NESTED, &codec::attribute(NFTA_DATA_VALUE, octets));
    let mut key = value(NFTA_SET_ELEM_KEY, &element.key);
    key.extend(element.end.iter().flat_map(|end| value(NFTA_SET_ELEM_KEY_END, end)));
    connection
        .begin(NFT_MSG_GETSETELEM, 0, &about(NFPROTO_INET))
        .attribute(NFTA_SET_ELEM_LIST_TABLE, &text(table))
        .attribute(NFTA_SET_ELEM_LIST_SET, &text(set))
        .attribute(NFTA_SET_ELEM_LIST_ELEMENTS | NESTED, &codec::attribute(NFTA_LIST_ELEM | NESTED, &key));
    let mut state = None;
    let result = connection.transact(|message| {
        for (_, item) in elements(message).into_iter().flatten() {
            let item = Attributes(item);
            let same = octets(item, NFTA_SET_ELEM_KEY) == Some(&element.key)
                && octets(item, NFTA_SET_ELEM_KEY_END) == element.end.as_deref();
            state = same.then(|| state_of(item));
        }
    });
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        result => result.map(|()| state),
    }
}

/// An element as the kernel has it.
#[derive(Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) key: &'a [u8],
    /// The end of a range.
    pub(crate) end: Option<&'a [u8]>,
    /// The value in a map.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) state: State,
}

/// Reads all elements of a set.
pub(crate) fn read_all(
    connection: &mut Connection,
    (table, set): (&str, &str),
    mut each: impl FnMut(Stored<'_>),
) -> io::Result<()> {
    connection
        .begin(NFT_MSG_GETSETELEM, libc::NLM_F_DUMP, &about(NFPROTO_INET))
        .attribute(NFTA_SET_ELEM_LIST_TABLE, &text(table))
        .attribute(NFTA_SET_ELEM_LIST_SET, &text(set));
    let lists = connection.list(|message| elements(message).map(|Attributes(list)| list.to_vec()))?;
    for (_, item) in lists.iter().flat_map(|list| Attributes(list)) {
        let item = Attributes(item);
        if let Some(key) = octets(item, NFTA_SET_ELEM_KEY) {
            let [end, value] = [NFTA_SET_ELEM_KEY_END, NFTA_SET_ELEM_DATA].map(|kind| octets(item, kind));
            each(Stored { key, end, value, state: state_of(item) });
        }
    }
    Ok(())
}

/// The list of elements in a message.
fn elements<'a>(message: &codec::Message<'a>) -> Option<Attributes<'a>> {
    let (_, attributes) = message.split::<4>()?;
    find(attributes, NFTA_SET_ELEM_LIST_ELEMENTS).map(Attributes)
}

fn octets(item: Attributes<'_>, kind: u16) -> Option<&[u8]> {
    find(Attributes(find(item, kind)?), NFTA_DATA_VALUE)
}

fn state_of(item: Attributes<'_>) -> State {
    let time = |kind| find(item, kind).and_then(be64_of).map(Duration::from_millis).unwrap_or_default();
    let counter = find(item, NFTA_SET_ELEM_EXPR)
        .and_then(|expression| find(Attributes(expression), NFTA_EXPR_DATA))
        .unwrap_or(&[]);
    let count = |kind| find(Attributes(counter), kind).and_then(be64_of).unwrap_or(0);
    State {
        timeout: time(NFTA_SET_ELEM_TIMEOUT),
        left: time(NFTA_SET_ELEM_EXPIRATION),
        packets: count(NFTA_COUNTER_PACKETS),
        octets: count(NFTA_COUNTER_BYTES),
    }
}

/// The first and the last address of a prefix.
pub(crate) fn ends(prefix: Prefix) -> [Vec<u8>; 2] {
    match prefix.addr {
        IpAddr::V4(v4) => {
            let hosts = u32::MAX.checked_shr(prefix.len.min(32).into()).unwrap_or(0);
            [v4.to_bits() & !hosts, v4.to_bits() | hosts].map(|bits| bits.to_be_bytes().to_vec())
        }
        IpAddr::V6(v6) => {
            let hosts = u128::MAX.checked_shr(prefix.len.min(128).into()).unwrap_or(0);
            [v6.to_bits() & !hosts, v6.to_bits() | hosts].map(|bits| bits.to_be_bytes().to_vec())
        }
    }
}

fn milliseconds(time: Duration) -> [u8; 8] {
    // A timeout of 0 would be none at all.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::codec::attribute;
    use crate::netlink::nftables::tests::composed;

    const PARTS: &[Part] =
        &[Part::Source, Part::Destination, Part::Protocol, Part::SourcePort, Part::DestinationPort];

    fn numbers(numbers: &[(u16, u32)]) -> Vec<u8> {
        numbers.iter().flat_map(|(kind, number)| attribute(*kind, &number.to_be_bytes())).collect()
    }

    /// As nft writes it for `map m { type ipv4_addr . ipv4_addr . inet_proto . inet_service . inet_service : classid; flags interval;
    /// size 256; }`.
    #[test]
    fn a_map_of_ranges_has_the_length_of_each_field() {
        let map = Set {
            name: "m",
            ipv6: false,
            key: Form::Parts(PARTS),
            value: Some(Form::Class),
            ranges: true,
            timeouts: false,
            size: 256,
        };
        let fields = [4, 4, 1, 2, 2].map(|length| attribute(1 | NESTED, &numbers(&[(1, length)])));
        let desc = [numbers(&[(1, 256)]), attribute(2 | NESTED, &fields.concat())].concat();
        let expected = [
            attribute(1, b"t\0"),
            attribute(2, b"m\0"),
            // map, interval, concatenation; the types 7, 7, 12, 13 and 13 with six bits each; five registers; a class
            numbers(&[(3, 0x8c), (4, 0x071c_c34d), (5, 20), (6, 23), (7, 4), (10, 3)]),
            attribute(9 | NESTED, &desc),
            // The values are in the order of this machine.
            attribute(13, &[&[1, 4][..], &1_u32.to_ne_bytes()].concat()),
        ];
        assert_eq!(composed(|requests| set(requests, "t", 3, &map)), [(0xa09, expected.concat())]);
    }

    #[test]
    fn a_map_to_chains_has_verdicts() {
        let (key, value) = (Form::Class, Some(Form::Verdict));
        let map = Set { name: "k", ipv6: false, key, value, ranges: false, timeouts: false, size: 64 };
        let expected = [
            attribute(1, b"t\0"),
            attribute(2, b"k\0"),
            numbers(&[(3, 8), (4, 23), (5, 4), (6, 0xffff_ff00), (7, 0), (10, 1)]),
            attribute(9 | NESTED, &numbers(&[(1, 64)])),
            attribute(13, &[&[0, 4][..], &1_u32.to_ne_bytes()].concat()),
        ];
        assert_eq!(composed(|requests| set(requests, "t", 1, &map)), [(0xa09, expected.concat())]);
    }

    #[test]
    fn a_set_with_timeouts_counts() {
        let (key, value) = (Form::Parts(&[Part::Source]), None);
        let of_sources = Set { name: "s", ipv6: true, key, value, ranges: false, timeouts: true, size: 9 };
        let counter = [attribute(1, b"counter\0"), attribute(2 | NESTED, &[])];
        let expected = [
            attribute(1, b"t\0"),
            attribute(2, b"s\0"),
            numbers(&[(3, 16), (4, 8), (5, 16), (10, 1)]),
            attribute(9 | NESTED, &numbers(&[(1, 9)])),
            attribute(17 | NESTED, &counter.concat()),
        ];
        assert_eq!(composed(|requests| set(requests, "t", 1, &of_sources)), [(0xa09, expected.concat())]);
    }

    /// The two ends of a range are one element, of which each field begins at a register.
    #[test]
    fn an_element_of_ranges_has_its_last_key() {
        let value = Some(Value::Octets(vec![1, 2, 3, 4]));
        let element = Element { key: vec![17, 0, 0, 0], end: Some(vec![18, 0, 0, 0]), value };
        let data = |octets: &[u8]| attribute(1, octets);
        let item = [
            attribute(1 | NESTED, &data(&[17, 0, 0, 0])),
            attribute(10 | NESTED, &data(&[18, 0, 0, 0])),
            attribute(2 | NESTED, &data(&[1, 2, 3, 4])),
        ];
        let list = attribute(3 | NESTED, &attribute(1 | NESTED, &item.concat()));
        let expected = [attribute(1, b"t\0"), attribute(2, b"m\0"), list];
        let requests = composed(|requests| change(requests, ("t", "m"), &element, Change::New));
        assert_eq!(requests, [(0xa0c, expected.concat())]);
    }
}
