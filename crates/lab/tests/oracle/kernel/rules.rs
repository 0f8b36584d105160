//! The expressions of rules, and what they do with a packet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::flows::{Direction, Flow};
use super::octets::Attributes;
use super::packet::Packet;
use super::sets::Set;

/// The registers of 32 bits that octets take.
pub(crate) const fn words(octets: usize) -> usize {
    octets.div_ceil(4)
}

/// The offset of a register in the file of registers: five of 16 octets, or the same places by 4 octets.
fn place(register: u32) -> usize {
    let register = register as usize;
    if register <= 4 { 16 * register } else { 16 + 4 * (register - 8) }
}

/// A verdict that ends a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Drop,
    Accept,
    GoTo(String),
}

/// One expression of a rule. Registers are offsets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Meta { key: u32, to: usize },
    Payload { base: u32, offset: usize, octets: usize, to: usize },
    Ct { key: u32, to: usize },
    SetCt { key: u32, from: usize },
    Bitwise { from: usize, to: usize, mask: Vec<u8>, xor: Vec<u8> },
    Compare { from: usize, how: u32, octets: Vec<u8> },
    Lookup { set: String, from: usize, to: Option<usize> },
    Verdict(Verdict),
    Nat { source: bool, ipv6: bool, address: usize, port: Option<usize> },
}

impl Expression {
    /// The expression of a list element.
    pub(crate) fn parse(element: &[u8]) -> Self {
        let element = Attributes(element).only(&[1, 2]);
        let (name, data) = (element.text(1).unwrap(), element.nested(2).unwrap());
        let register = |kind| data.number(kind).map(place);
        let octets = |kind| data.nested(kind).unwrap().only(&[1]).find(1).unwrap().to_vec();
        match &name[..] {
            "meta" => {
                data.only(&[1, 2]);
                Self::Meta { key: data.number(2).unwrap(), to: register(1).unwrap() }
            }
            "payload" => {
                data.only(&[1, 2, 3, 4]);
                let size = |kind| data.number(kind).unwrap() as usize;
                let base = data.number(2).unwrap();
                Self::Payload { base, offset: size(3), octets: size(4), to: register(1).unwrap() }
            }
            "ct" => {
                data.only(&[1, 2, 3, 4]);
                assert!(data.find(3).is_none_or(|direction| direction == [0]), "the original direction");
                let key = data.number(2).unwrap();
                match register(4) {
                    Some(from) => Self::SetCt { key, from },
                    None => Self::Ct { key, to: register(1).unwrap() },
                }
            }
            "bitwise" => {
                data.only(&[1, 2, 3, 4, 5]);
                let (mask, xor) = (octets(4), octets(5));
                assert_eq!((mask.len(), xor.len()), (data.number(3).unwrap() as usize, mask.len()));
                Self::Bitwise { from: register(1).unwrap(), to: register(2).unwrap(), mask, xor }
            }
            "cmp" => {
                data.only(&[1, 2, 3]);
                Self::Compare { from: register(1).unwrap(), how: data.number(2).unwrap(), octets: octets(3) }
            }
            "lookup" => {
                data.only(&[1, 2, 3]);
                Self::Lookup { set: data.text(1).unwrap(), from: register(2).unwrap(), to: register(3) }
            }
            "immediate" => {
                data.only(&[1, 2]);
                assert_eq!(register(1), Some(0), "only verdicts are set");
                let verdict = data.nested(2).unwrap().nested(2).unwrap().only(&[1, 2]);
                let code = i32::from_be_bytes(verdict.find(1).unwrap().try_into().unwrap());
                Self::Verdict(match (code, verdict.text(2)) {
                    (0, None) => Verdict::Drop,
                    (1, None) => Verdict::Accept,
                    (-4, Some(chain)) => Verdict::GoTo(chain),
                    other => panic!("verdict {other:?}"),
                })
            }
            "nat" => {
                data.only(&[1, 2, 3, 5]);
                let (kind, family) = (data.number(1).unwrap(), data.number(2).unwrap());
                assert!(kind <= 1 && [2, 10].contains(&family));
                Self::Nat {
                    source: kind == 0,
                    ipv6: family == 10,
                    address: register(3).unwrap(),
                    port: register(5),
                }
            }
            other => panic!("expression {other}"),
        }
    }
}

/// What a packet has while it passes a chain.
pub(crate) struct Passing<'a> {
    pub(crate) packet: &'a Packet,
    /// The flow that connection tracking found or made.
    pub(crate) flow: Option<&'a mut Flow>,
    pub(crate) direction: Direction,
    registers: [u8; 96],
}

impl<'a> Passing<'a> {
    pub(crate) const fn new(packet: &'a Packet, flow: Option<&'a mut Flow>, direction: Direction) -> Self {
        Self { packet, flow, direction, registers: [0; 96] }
    }

    /// Loads octets into whole registers; the rest of the last one is 0.
    fn load(&mut self, to: usize, octets: &[u8]) {
        let end = to + 4 * words(octets.len());
        self.registers[to..end].fill(0);
        self.registers[to..to + octets.len()].copy_from_slice(octets);
    }

    /// Evaluates one expression. `Ok(None)`: the rule continues; an error: the rule ends.
    pub(crate) fn evaluate(
        &mut self,
        expression: &Expression,
        sets: &BTreeMap<String, Set>,
    ) -> Result<Option<Verdict>, ()> {
        match expression {
            Expression::Meta { key, to } => match key {
                15 => self.load(*to, &[if self.packet.src.is_ipv6() { 10 } else { 2 }]), // NFPROTO
                16 => self.load(*to, &[self.packet.protocol]),                           // L4PROTO
                other => panic!("meta {other}"),
            },
            Expression::Payload { base, offset, octets, to } => {
                let header = match base {
                    1 => self.packet.network(),
                    2 => self.packet.transport(),
                    other => panic!("payload base {other}"),
                };
                let loaded = header.get(*offset..offset + octets).ok_or(())?.to_vec();
                self.load(*to, &loaded);
            }
            Expression::Ct { key, to } => {
                let loaded = self.ct(*key).ok_or(())?;
                self.load(*to, &loaded);
            }
            Expression::SetCt { key, from } => {
                assert_eq!(*key, 3, "the mark");
                let mark = u32::from_ne_bytes(self.registers[*from..from + 4].try_into().unwrap());
                self.flow.as_mut().ok_or(())?.mark = mark;
            }
            Expression::Bitwise { from, to, mask, xor } => {
                let bits = self.registers[*from..].iter().zip(mask).zip(xor);
                let changed: Vec<u8> = bits.map(|((octet, mask), xor)| octet & mask ^ xor).collect();
                self.load(*to, &changed);
            }
            Expression::Compare { from, how, octets } => {
                let have = &self.registers[*from..from + octets.len()];
                let holds = match how {
                    0 => have == octets,
                    1 => have != octets,
                    other => panic!("comparison {other}"),
                };
                return if holds { Ok(None) } else { Err(()) };
            }
            Expression::Lookup { set, from, to } => {
                let set = sets.get(set).unwrap_or_else(|| panic!("no set {set}"));
                let value = set.find(&self.registers[*from..from + set.key()]).ok_or(())?;
                if let Some(to) = to {
                    self.load(*to, value);
                }
            }
            Expression::Verdict(verdict) => return Ok(Some(verdict.clone())),
            Expression::Nat { source, ipv6, address, port } => {
                let octets = |from: usize, many: usize| &self.registers[from..from + many];
                let address = if *ipv6 {
                    IpAddr::from(<[u8; 16]>::try_from(octets(*address, 16)).unwrap())
                } else {
                    IpAddr::from(<[u8; 4]>::try_from(octets(*address, 4)).unwrap())
                };
                let port = port.map(|port| u16::from_be_bytes(octets(port, 2).try_into().unwrap()));
                self.flow.as_mut().ok_or(())?.translate(*source, address, port);
                return Ok(Some(Verdict::Accept));
            }
        }
        Ok(None)
    }

    /// What connection tracking has of the flow's first packet, or of the flow.
    fn ct(&self, key: u32) -> Option<Vec<u8>> {
        let Some(flow) = &self.flow else {
            return (key == 0).then(|| 1_u32.to_ne_bytes().to_vec()); // the state is invalid
        };
        let first = flow.first;
        let v4 = |address| match address {
            IpAddr::V4(address) => Some(address.octets().to_vec()),
            IpAddr::V6(_) => None,
        };
        let v6 = |address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.octets().to_vec()),
        };
        match key {
            0 => Some(flow.state(self.direction).to_ne_bytes().to_vec()),
            3 => Some(flow.mark.to_ne_bytes().to_vec()),
            10 => Some(vec![first.protocol]),
            11 => Some(first.src_port.to_be_bytes().to_vec()),
            12 => Some(first.dst_port.to_be_bytes().to_vec()),
            19 => v4(first.src),
            20 => v4(first.dst),
            21 => v6(first.src),
            22 => v6(first.dst),
            other => panic!("ct {other}"),
        }
    }
}
