//! The configuration of pinholes.

use std::fmt;
use std::str::FromStr;

use crate::netlink::nftables::{NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6};

/// The configuration of pinholes in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinholeConfig {
    /// The most pinholes, at most 65,536.
    pub max: u32,
    /// The bit of the mark of connection tracking that flows of pinholes have. The ruleset of the operator accepts it.
    pub mark: u32,
    /// Whether addresses and ports can be translated. Without it, no flow of this node passes through the kernel's NAT.
    pub translate: bool,
    /// The interfaces outside: flows that a mirrored pinhole translates leave by them ([`Pinhole::mirrored`]); empty: by any.
    ///
    /// [`Pinhole::mirrored`]: signalbox_core::pinhole::Pinhole::mirrored
    pub outside: Vec<String>,
    /// Chains of the operator at whose head a rule accepts flows with the mark.
    pub accept_in: Vec<Chain>,
    /// Whether the table belongs to this process where the kernel supports that together with a table that stays when its
    /// owner ends (Linux 6.9). Other programs cannot change or flush it then.
    pub own_table: bool,
}

impl Default for PinholeConfig {
    fn default() -> Self {
        Self {
            max: 65_536,
            mark: 0x1000_0000,
            translate: true,
            outside: Vec::new(),
            accept_in: Vec::new(),
            own_table: true,
        }
    }
}

/// A chain of nftables, written as family, table and name: `inet filter forward`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chain {
    pub(super) family: u8,
    pub(super) table: String,
    pub(super) name: String,
}

impl FromStr for Chain {
    type Err = ChainError;

    fn from_str(text: &str) -> Result<Self, ChainError> {
        let mut words = text.split_whitespace();
        let (Some(family), Some(table), Some(name), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(ChainError);
        };
        let family = match family {
            "inet" => NFPROTO_INET,
            "ip" => NFPROTO_IPV4,
            "ip6" => NFPROTO_IPV6,
            _ => return Err(ChainError),
        };
        Ok(Self { family, table: table.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            NFPROTO_IPV4 => "ip",
            NFPROTO_IPV6 => "ip6",
            _ => "inet",
        };
        write!(f, "{family} {} {}", self.table, self.name)
    }
}

/// A text that names no chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a chain is written as family, table and name, such as \"inet filter forward\"; the family is inet, ip or ip6"
)]
pub struct ChainError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_family_table_and_name() {
        for text in ["inet filter forward", "ip filter DOCKER-USER", "ip6 a b"] {
            assert_eq!(text.parse::<Chain>().unwrap().to_string(), text);
        }
        for text in ["", "filter forward", "bridge filter forward", "ip filter forward x"] {
            assert_eq!(text.parse::<Chain>(), Err(ChainError));
        }
    }
}
