//! Interception of packets of an IP protocol with a Router Alert.
//!
//! The packets take the way of packets to this node, so that the administrator's rules at the hooks prerouting and input
//! judge them. The kernel itself would intercept IPv4 packets in front of the hook forward, where no rule judges what this
//! node takes, and IPv6 packets not at all.
//!
//! IPv6: a rule of nftables marks the protocol's packets with hop-by-hop options, and the route for marked packets
//! leads to this node. Packets whose Router Alert has another value than the protocol's are not marked. IPv4: a rule marks
//! those with a Router Alert of 0.
//!
//! The kernel routes the packets of groups in another way, which leads past the hook input, and forwards them all the same.
//! A second rule therefore replaces the prefix of a group's address by one that no address has: the first octet `ff` of IPv6
//! by [`ALIAS`], and the first four bits of IPv4 by `1111`. [`group`] restores it. IPv6 has no header checksum, RSVP's does not
//! cover the address, and that of the IPv4 header was compared before.
//!
//! The tables belong to netlink sockets of this process, so that the kernel removes them when the daemon ends. Rules
//! without a listening socket would lose the packets.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::{IoConfig, selftest};
use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::nftables::expression::{self, Compare, Header};
use crate::netlink::nftables::{self, Hook, LAST, NFPROTO_IPV4, NFPROTO_IPV6, begin, end};
use crate::netlink::rules::{self, Rule};

/// Prefix of the names of our tables, in families `ip` and `ip6`; the protocol's number follows.
const TABLE: &str = "signalbox_ip";
const CHAIN: &str = "passing";
/// The chain that drops packets of the self-test that lost their mark.
const TESTED: &str = "tested";
/// The id of the error if the kernel does not support owned tables.
pub(super) const UNSUPPORTED: &str = "owned-tables-unsupported";

/// Offset of the destination address in the header.
const DESTINATION_V4: u32 = 16;
const DESTINATION_V6: u32 = 24;

/// The first octet of every group's address in IPv6.
const GROUP: u8 = 0xff;
/// The least and the most value of that octet in IPv4 (224.0.0.0/4), and the bit that makes it one of 240.0.0.0/4.
const GROUPS_V4: [u8; 2] = [224, 239];
const ALIAS_BIT_V4: u8 = 0x10;
/// The value of IPv6's octet while the packet passes this node. No address begins with it (5b00::/8 is not assigned).
const ALIAS: u8 = 0x5b;

/// The group that a packet for this address was sent to, if the rule rewrote its address.
pub(super) fn group(dst: IpAddr) -> IpAddr {
    match dst {
        IpAddr::V6(v6) if v6.octets()[0] == ALIAS => {
            let mut octets = v6.octets();
            octets[0] = GROUP;
            octets.into()
        }
        IpAddr::V4(v4) if v4.octets()[0] >= GROUPS_V4[0] => {
            let mut octets = v4.octets();
            octets[0] &= !ALIAS_BIT_V4;
            octets.into()
        }
        _ => dst,
    }
}

/// The interception of one family: the table exists as long as this value, the routing rule and the route until
/// [`Alert::remove`] or the drop.
pub(super) struct Alert {
    requests: Batch,
    name: String,
    ipv6: bool,
    rule: Rule,
    laid: bool,
}

impl Alert {
    /// Installs table, rule and route for `protocol`, whose Router Alert has `value` with IPv6 and 0 with IPv4. The
    /// interception of another entry may have installed the same rule and route, which are reused.
    pub(super) fn lay(ipv6: bool, protocol: u8, value: u16, config: &IoConfig) -> Result<Self, OpenError> {
        let name = config.scope.name(&format!("{TABLE}{protocol}"));
        let (table, family) = (name.clone(), if ipv6 { "IPv6" } else { "IPv4" });
        let system = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("intercepting raw packets", &error),
            Some(libc::EOPNOTSUPP | libc::EINVAL) => OpenError::new(
                UNSUPPORTED,
                format!("the kernel does not take an nftables table with an owner ({error})"),
                format!(
                    "interception over {family} needs Linux 5.12 or newer with nf_tables; or switch {family} off in the configuration"
                ),
            ),
            Some(libc::EBUSY | libc::EEXIST) => OpenError::new(
                "alerts-in-use",
                format!("the nftables table {table} for {family} belongs to another process ({error})"),
                "stop the other daemon in this network namespace",
            ),
            _ => OpenError::system("intercepting raw packets", &error),
        };
        let mut requests = Batch::open(NETLINK_NETFILTER).map_err(system)?;
        begin(&mut requests);
        if ipv6 {
            compose_v6(&mut requests, &name, (protocol, value), config);
        } else {
            compose_v4(&mut requests, &name, protocol, config);
        }
        end(&mut requests);
        if let Some((_, error)) = requests.send_transaction().map_err(system)?.into_iter().next() {
            return Err(system(error));
        }
        // A failure from here on removes what is installed. Before it, the route may be that of another entry.
        let rule = config.rule();
        let alert = Self { requests, name, ipv6, rule, laid: true };
        rules::add(ipv6, rule).map_err(system)?;
        Ok(alert)
    }

    pub(super) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away()
            .map_err(|error| OpenError::system("removing the interception of raw packets", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        begin(&mut self.requests);
        let family = if self.ipv6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 };
        nftables::delete_table(&mut self.requests, family, &self.name);
        end(&mut self.requests);
        let refused = self.requests.send_transaction()?.into_iter().next().map(|(_, error)| error);
        rules::remove(self.ipv6, self.rule)?;
        refused.filter(|error| error.raw_os_error() != Some(libc::ENOENT)).map_or(Ok(()), Err)
    }
}

impl Drop for Alert {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, table = self.name, "an interception rule stays behind");
        }
    }
}

/// The table for IPv6, with a chain for packets of the self-test, and this one:
///
/// ```text
/// meta l4proto PROTOCOL @exthdr hbh,2,2 0x0502 @exthdr hbh,4,2 != VALUE accept
/// meta l4proto PROTOCOL exthdr hbh exists ip6 daddr ff00::/8 @nh,192,8 set 0x5b
/// meta l4proto PROTOCOL exthdr hbh exists meta mark set MARK
/// ```
///
/// The first rule accepts Router Alerts of other values, which nodes ignore (RFC 2711 §2.1). It reads the position at
/// which the option stands unless other options precede it.
///
/// The rules of a VRF begin with a comparison of the device. The second and that of the self-test are left out: packets to a group pass
/// the hook prerouting as those of their interface only.
fn compose_v6(requests: &mut Batch, name: &str, (protocol, value): (u8, u16), config: &IoConfig) {
    let IoConfig { mark, scope, .. } = config;
    chain(requests, name, NFPROTO_IPV6, (Hook::Prerouting, scope.priority(config.priority)));
    rule(requests, (name, CHAIN), (NFPROTO_IPV6, protocol), |rule| {
        scope.packets(rule);
        expression::hop_by_hop(rule, (2, 2));
        expression::compare(rule, Compare::Equal, &[5, 2]);
        expression::hop_by_hop(rule, (4, 2));
        expression::compare(rule, Compare::NotEqual, &value.to_be_bytes());
        expression::accept(rule);
    });
    if scope.is_all() {
        rule(requests, (name, CHAIN), (NFPROTO_IPV6, protocol), |rule| {
            expression::has_hop_by_hop(rule);
            destination(rule, DESTINATION_V6);
            expression::compare(rule, Compare::Equal, &[GROUP]);
            expression::immediate(rule, &[ALIAS]);
            expression::store(rule, Header::Network, (DESTINATION_V6, 1));
        });
    }
    rule(requests, (name, CHAIN), (NFPROTO_IPV6, protocol), |rule| {
        scope.packets(rule);
        expression::has_hop_by_hop(rule);
        expression::mark(rule, *mark);
    });
    if !scope.is_all() {
        return;
    }
    // Those of IPv4 without a mark do not leave either: the kernel gives what it would forward to the socket.
    nftables::base_chain(requests, NFPROTO_IPV6, (name, TESTED), "filter", (Hook::Prerouting, LAST));
    nftables::rule(requests, NFPROTO_IPV6, (name, TESTED), |rule| {
        selftest::guard(rule, true, protocol, *mark);
    });
}

/// The table for IPv4, with one chain:
///
/// ```text
/// meta l4proto PROTOCOL ip option ra value 0 ip daddr 224.0.0.0/4 @nh,128,8 set @nh,128,8 | 0x10
/// meta l4proto PROTOCOL ip option ra value 0 meta mark set MARK
/// ```
///
/// The kernel ignores alerts of other values, too. In a VRF it intercepts packets to groups itself, as the first rule is left out there.
fn compose_v4(requests: &mut Batch, name: &str, protocol: u8, config: &IoConfig) {
    let IoConfig { mark, scope, .. } = config;
    chain(requests, name, NFPROTO_IPV4, (Hook::Prerouting, scope.priority(config.priority)));
    if scope.is_all() {
        rule(requests, (name, CHAIN), (NFPROTO_IPV4, protocol), |rule| {
            alert_v4(rule);
            destination(rule, DESTINATION_V4);
            expression::compare(rule, Compare::AtLeast, &[GROUPS_V4[0]]);
            expression::compare(rule, Compare::AtMost, &[GROUPS_V4[1]]);
            expression::change_bits(rule, &[!ALIAS_BIT_V4], &[ALIAS_BIT_V4]);
            expression::store(rule, Header::Network, (DESTINATION_V4, 1));
        });
    }
    rule(requests, (name, CHAIN), (NFPROTO_IPV4, protocol), |rule| {
        scope.packets(rule);
        alert_v4(rule);
        expression::mark(rule, *mark);
    });
}

/// The rule continues with packets whose Router Alert is 0.
fn alert_v4(rule: &mut Batch) {
    expression::router_alert(rule);
    expression::compare(rule, Compare::Equal, &[0, 0]);
}

/// Appends a table of ours with one chain at a hook, with a priority.
fn chain(requests: &mut Batch, name: &str, family: u8, at: (Hook, i32)) {
    nftables::table(requests, family, name, libc::NLM_F_EXCL, true);
    nftables::base_chain(requests, family, (name, CHAIN), "filter", at);
}

/// Appends a rule for a protocol, also behind extension headers, which `rest` completes.
fn rule(
    requests: &mut Batch,
    place: (&str, &str),
    (family, protocol): (u8, u8),
    rest: impl FnOnce(&mut Batch),
) {
    nftables::rule(requests, family, place, |rule| {
        expression::protocol(rule, protocol);
        rest(rule);
    });
}

/// Loads the first octet of the destination into the register.
fn destination(rule: &mut Batch, offset: u32) {
    expression::load(rule, Header::Network, (offset, 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_comes_by_its_alias() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(group(ip("5b3e::1:1")), ip("ff3e::1:1"));
        assert_eq!(group(ip("248.1.2.3")), ip("232.1.2.3"));
        assert_eq!(group(ip("255.255.255.255")), ip("239.255.255.255"));
        for other in ["ff3e::1", "2001:db8::5b", "10.1.2.3", "91.1.2.3", "223.1.2.3", "232.1.2.3"] {
            assert_eq!(group(ip(other)), ip(other));
        }
    }
}
