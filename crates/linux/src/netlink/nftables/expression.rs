//! The expressions of a rule. A rule is evaluated from its first expression on and ends at the first comparison that is
//! false. All expressions here use one register; those of [`super::flow`] use several.

use super::{NFTA_DATA_VALUE, NFTA_LIST_ELEM, number, text};
use crate::netlink::Batch;

pub(super) const NFTA_EXPR_NAME: u16 = 1;
pub(super) const NFTA_EXPR_DATA: u16 = 2;
pub(super) const NFT_REG_VERDICT: u32 = 0;
pub(super) const NFT_REG_1: u32 = 1;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;
pub(super) const NFT_META_PRIORITY: u32 = 2;
const NFT_META_MARK: u32 = 3;
const NFT_META_OIF: u32 = 5;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_PKTTYPE: u32 = 19;
const NFT_META_SDIF: u32 = 33;
const NFT_META_SDIFNAME: u32 = 34;
pub(super) const NFT_META_L4PROTO: u32 = 16;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_BITWISE_SREG: u16 = 1;
const NFTA_BITWISE_DREG: u16 = 2;
const NFTA_BITWISE_LEN: u16 = 3;
const NFTA_BITWISE_MASK: u16 = 4;
const NFTA_BITWISE_XOR: u16 = 5;
const NFTA_EXTHDR_DREG: u16 = 1;
const NFTA_EXTHDR_TYPE: u16 = 2;
const NFTA_EXTHDR_OFFSET: u16 = 3;
const NFTA_EXTHDR_LEN: u16 = 4;
const NFTA_EXTHDR_FLAGS: u16 = 5;
const NFTA_EXTHDR_OP: u16 = 6;
const NFT_EXTHDR_F_PRESENT: u32 = 1;
const NFT_EXTHDR_OP_IPV6: u32 = 0;
const NFT_EXTHDR_OP_IPV4: u32 = 2;
/// The type of IPv6's hop-by-hop options header.
const HOP_BY_HOP: u8 = 0;
/// The type of IPv4's option.
const ROUTER_ALERT: u8 = 148;
pub(super) const NFTA_PAYLOAD_DREG: u16 = 1;
pub(super) const NFTA_PAYLOAD_BASE: u16 = 2;
pub(super) const NFTA_PAYLOAD_OFFSET: u16 = 3;
pub(super) const NFTA_PAYLOAD_LEN: u16 = 4;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFTA_PAYLOAD_CSUM_TYPE: u16 = 6;
const NFTA_PAYLOAD_CSUM_OFFSET: u16 = 7;
const NFT_PAYLOAD_CSUM_INET: u32 = 1;
/// Offset of the checksum in the header of IPv4.
const CHECKSUM_V4: u32 = 10;
const NFTA_LIMIT_RATE: u16 = 1;
const NFTA_LIMIT_UNIT: u16 = 2;
const NFTA_LIMIT_BURST: u16 = 3;
const NFTA_LIMIT_TYPE: u16 = 4;
const NFT_LIMIT_PKT_BYTES: u32 = 1;
/// The unit of a rate: seconds.
const SECOND: u64 = 1;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
const NF_DROP: i32 = 0;
const NF_ACCEPT: i32 = 1;
const NFT_GOTO: i32 = -4;
const NFTA_QUEUE_NUM: u16 = 1;
const NFTA_QUEUE_TOTAL: u16 = 2;
const NFTA_QUEUE_FLAGS: u16 = 3;
const NFTA_TARGET_NAME: u16 = 1;
const NFTA_TARGET_REV: u16 = 2;
const NFTA_TARGET_INFO: u16 = 3;
/// Without a program that listens at the queue the packet goes on at once.
const BYPASS: u16 = 1;
const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;
const NFT_FIB_RESULT_OIF: u32 = 1;
const NFT_FIB_RESULT_OIFNAME: u32 = 2;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
const NFTA_FIB_F_SADDR: u32 = 1;
const NFTA_FIB_F_DADDR: u32 = 2;
const NFTA_FIB_F_IIF: u32 = 8;
/// Octets of an interface name in a register.
const NAME: usize = 16;
const NFTA_TPROXY_FAMILY: u16 = 1;
const NFTA_TPROXY_REG_PORT: u16 = 3;

/// A comparison of the register with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Compare {
    Equal = 0,
    NotEqual = 1,
    AtMost = 3,
    Above = 4,
    AtLeast = 5,
}

/// The header from which an offset counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Header {
    Network = 1,
    Transport = 2,
}

/// The rule continues with packets of this protocol, also behind extension headers.
pub(crate) fn protocol(rule: &mut Batch, protocol: u8) {
    load_meta(rule, NFT_META_L4PROTO);
    compare(rule, Compare::Equal, &[protocol]);
}

/// The rule continues with packets that came in by the interface of this name.
pub(crate) fn arrived_by(rule: &mut Batch, name: &str) {
    load_meta(rule, NFT_META_IIFNAME);
    compare_name(rule, name);
}

/// The rule continues with packets that leave by this interface.
pub(crate) fn leaves_by(rule: &mut Batch, name: &str) {
    load_meta(rule, NFT_META_OIFNAME);
    compare_name(rule, name);
}

/// The rule continues with packets that came in by the interface of this name, which a VRF has: they are packets of the VRF's device
/// already. The kernel knows the interface from Linux 5.6 on.
pub(crate) fn arrived_below_by(rule: &mut Batch, name: &str) {
    load_meta(rule, NFT_META_SDIFNAME);
    compare_name(rule, name);
}

/// The rule continues with packets that leave by another interface than that of this number.
pub(crate) fn leaves_elsewhere(rule: &mut Batch, ifindex: u32) {
    load_meta(rule, NFT_META_OIF);
    compare(rule, Compare::NotEqual, &ifindex.to_ne_bytes());
}

/// The rule continues with packets that the routes lead out by the interface of this name.
pub(crate) fn leads_out_by(rule: &mut Batch, name: &str) {
    route(rule, NFT_FIB_RESULT_OIFNAME, NFTA_FIB_F_DADDR);
    compare_name(rule, name);
}

/// The rule continues with packets to an address of this node.
pub(crate) fn leads_here(rule: &mut Batch) {
    route(rule, NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_DADDR);
    compare(rule, Compare::Equal, &u32::from(libc::RTN_LOCAL).to_ne_bytes());
}

/// The rule continues with packets that came in by the interface of the route to their source, or with all others. At the hooks
/// input and forward the kernel knows it from Linux 5.19 on.
pub(crate) fn came_from_its_source(rule: &mut Batch, came: bool) {
    route(rule, NFT_FIB_RESULT_OIF, NFTA_FIB_F_SADDR | NFTA_FIB_F_IIF);
    compare(rule, if came { Compare::NotEqual } else { Compare::Equal }, &[0; 4]);
}

/// Counts the packets that come so far.
pub(crate) fn counter(rule: &mut Batch) {
    append(rule, "counter", |nothing| nothing);
}

/// Loads what the routes say of the addresses in `about`.
fn route(rule: &mut Batch, result: u32, about: u32) {
    append(rule, "fib", |fib| {
        fib.attribute(NFTA_FIB_DREG, &number(NFT_REG_1))
            .attribute(NFTA_FIB_RESULT, &number(result))
            .attribute(NFTA_FIB_FLAGS, &number(about))
    });
}

fn compare_name(rule: &mut Batch, name: &str) {
    let mut octets = [0; NAME];
    // The last octet stays 0, as in the kernel.
    octets.iter_mut().take(NAME - 1).zip(name.bytes()).for_each(|(octet, byte)| *octet = byte);
    compare(rule, Compare::Equal, &octets);
}

/// Loads octets of a header, at an offset and in a number, into the register.
pub(crate) fn load(rule: &mut Batch, header: Header, place: (u32, u32)) {
    payload(rule, NFTA_PAYLOAD_DREG, header, place, None);
}

/// Stores the register into octets of a header.
pub(crate) fn store(rule: &mut Batch, header: Header, place: (u32, u32)) {
    payload(rule, NFTA_PAYLOAD_SREG, header, place, None);
}

/// Loads or stores octets of a header. The kernel adapts the checksum at the offset `checksum` to what it stores.
fn payload(
    rule: &mut Batch,
    register: u16,
    header: Header,
    (offset, octets): (u32, u32),
    checksum: Option<u32>,
) {
    append(rule, "payload", |payload| {
        payload
            .attribute(register, &number(NFT_REG_1))
            .attribute(NFTA_PAYLOAD_BASE, &number(header as u32))
            .attribute(NFTA_PAYLOAD_OFFSET, &number(offset))
            .attribute(NFTA_PAYLOAD_LEN, &number(octets));
        if let Some(checksum) = checksum {
            payload
                .attribute(NFTA_PAYLOAD_CSUM_TYPE, &number(NFT_PAYLOAD_CSUM_INET))
                .attribute(NFTA_PAYLOAD_CSUM_OFFSET, &number(checksum));
        }
        payload
    });
}

/// Writes a code point, 0–63, into the header of the packet, which is of this family.
pub(crate) fn write_dscp(rule: &mut Batch, ipv6: bool, dscp: u8) {
    // The first two octets of both headers. What is not of the code point stays: the version, the length and ECN, or the label.
    let (left, value) =
        if ipv6 { (0xf03f, u16::from(dscp & 0x3f) << 6) } else { (0xff03, u16::from(dscp & 0x3f) << 2) };
    load(rule, Header::Network, (0, 2));
    change_bits(rule, &u16::to_be_bytes(left), &value.to_be_bytes());
    payload(rule, NFTA_PAYLOAD_SREG, Header::Network, (0, 2), (!ipv6).then_some(CHECKSUM_V4));
}

/// The rule continues with packets within a rate, in octets a second. The kernel adds the octets of one second at the rate to the burst,
/// in octets.
pub(crate) fn within_rate(rule: &mut Batch, rate: u64, burst: u32) {
    append(rule, "limit", |limit| {
        limit
            .attribute(NFTA_LIMIT_RATE, &rate.to_be_bytes())
            .attribute(NFTA_LIMIT_UNIT, &SECOND.to_be_bytes())
            .attribute(NFTA_LIMIT_BURST, &number(burst))
            .attribute(NFTA_LIMIT_TYPE, &number(NFT_LIMIT_PKT_BYTES))
    });
}

/// Clears the bits of the register that are not in the mask.
pub(crate) fn mask(rule: &mut Batch, mask: &[u8]) {
    change_bits(rule, mask, &vec![0; mask.len()]);
}

/// Clears the bits of the register that are not in the mask, and then inverts those of `invert`.
pub(crate) fn change_bits(rule: &mut Batch, mask: &[u8], invert: &[u8]) {
    append(rule, "bitwise", |bitwise| {
        bitwise
            .attribute(NFTA_BITWISE_SREG, &number(NFT_REG_1))
            .attribute(NFTA_BITWISE_DREG, &number(NFT_REG_1))
            .attribute(NFTA_BITWISE_LEN, &number(u32::try_from(mask.len()).unwrap_or(0)))
            .nest(NFTA_BITWISE_MASK, |data| data.attribute(NFTA_DATA_VALUE, mask))
            .nest(NFTA_BITWISE_XOR, |data| data.attribute(NFTA_DATA_VALUE, invert))
    });
}

/// Compares the register with these octets; the rule continues if it is true.
pub(crate) fn compare(rule: &mut Batch, how: Compare, octets: &[u8]) {
    append(rule, "cmp", |compare| {
        compare
            .attribute(NFTA_CMP_SREG, &number(NFT_REG_1))
            .attribute(NFTA_CMP_OP, &number(how as u32))
            .nest(NFTA_CMP_DATA, |data| data.attribute(NFTA_DATA_VALUE, octets))
    });
}

/// The rule continues with IPv4 packets that have a Router Alert.
pub(crate) fn has_router_alert(rule: &mut Batch) {
    options(rule, ROUTER_ALERT, (0, 1), NFT_EXTHDR_F_PRESENT);
    compare(rule, Compare::Equal, &[1]);
}

/// Loads the value of IPv4's Router Alert, two octets. The rule ends if there is none.
pub(crate) fn router_alert(rule: &mut Batch) {
    options(rule, ROUTER_ALERT, (2, 2), 0);
}

/// The rule continues with IPv6 packets that have hop-by-hop options.
pub(crate) fn has_hop_by_hop(rule: &mut Batch) {
    // Type and offset 0 test whether the header exists.
    options(rule, HOP_BY_HOP, (0, 1), NFT_EXTHDR_F_PRESENT);
    compare(rule, Compare::Equal, &[1]);
}

/// Loads octets of IPv6's hop-by-hop options header. The rule ends if there is none.
pub(crate) fn hop_by_hop(rule: &mut Batch, place: (u32, u32)) {
    options(rule, HOP_BY_HOP, place, 0);
}

fn options(rule: &mut Batch, kind: u8, (offset, octets): (u32, u32), flags: u32) {
    let operation = if kind == ROUTER_ALERT { NFT_EXTHDR_OP_IPV4 } else { NFT_EXTHDR_OP_IPV6 };
    append(rule, "exthdr", |header| {
        header
            .attribute(NFTA_EXTHDR_DREG, &number(NFT_REG_1))
            .attribute(NFTA_EXTHDR_TYPE, &[kind])
            .attribute(NFTA_EXTHDR_OFFSET, &number(offset))
            .attribute(NFTA_EXTHDR_LEN, &number(octets))
            .attribute(NFTA_EXTHDR_FLAGS, &number(flags))
            .attribute(NFTA_EXTHDR_OP, &number(operation))
    });
}

/// Loads these octets into the register.
pub(crate) fn immediate(rule: &mut Batch, value: &[u8]) {
    append(rule, "immediate", |immediate| {
        immediate
            .attribute(NFTA_IMMEDIATE_DREG, &number(NFT_REG_1))
            .nest(NFTA_IMMEDIATE_DATA, |data| data.attribute(NFTA_DATA_VALUE, value))
    });
}

/// Sets the mark of the packet.
pub(crate) fn mark(rule: &mut Batch, mark: u32) {
    immediate(rule, &mark.to_ne_bytes());
    set_meta(rule, NFT_META_MARK, NFT_REG_1);
}

/// Sets the priority of the packet: at a link with classes, the number of its class.
pub(crate) fn priority(rule: &mut Batch, class: u32) {
    immediate(rule, &class.to_ne_bytes());
    set_meta(rule, NFT_META_PRIORITY, NFT_REG_1);
}

/// Sets the mark of a packet of a VRF's device to the number of the interface by which it came in, at the hooks input and forward.
pub(crate) fn mark_below(rule: &mut Batch) {
    load_meta(rule, NFT_META_SDIF);
    set_meta(rule, NFT_META_MARK, NFT_REG_1);
}

/// The rule continues with packets that have this mark.
pub(crate) fn has_mark(rule: &mut Batch, mark: u32) {
    load_meta(rule, NFT_META_MARK);
    compare(rule, Compare::Equal, &mark.to_ne_bytes());
}

/// The rule continues with packets that do not have this mark.
pub(crate) fn lacks_mark(rule: &mut Batch, mark: u32) {
    load_meta(rule, NFT_META_MARK);
    compare(rule, Compare::NotEqual, &mark.to_ne_bytes());
}

/// The rule continues with packets whose frame was for all stations of the link.
pub(crate) fn was_broadcast(rule: &mut Batch) {
    load_meta(rule, NFT_META_PKTTYPE);
    compare(rule, Compare::Equal, &[libc::PACKET_BROADCAST]);
}

fn load_meta(rule: &mut Batch, key: u32) {
    load_meta_into(rule, key, NFT_REG_1);
}

/// Loads something of the packet that is not in its headers into a register.
pub(super) fn load_meta_into(rule: &mut Batch, key: u32, register: u32) {
    append(rule, "meta", |meta| {
        meta.attribute(NFTA_META_DREG, &number(register)).attribute(NFTA_META_KEY, &number(key))
    });
}

/// Sets it to a register.
pub(super) fn set_meta(rule: &mut Batch, key: u32, register: u32) {
    append(rule, "meta", |meta| {
        meta.attribute(NFTA_META_KEY, &number(key)).attribute(NFTA_META_SREG, &number(register))
    });
}

/// How a packet gets into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// By the expression of nftables.
    Expression,
    /// By the target of iptables, for kernels without the expression.
    Target,
}

/// Passes the packet to the program that listens at a queue. Without one it goes on at once.
pub(crate) fn queue(rule: &mut Batch, queue: u16, how: Queueing) {
    match how {
        Queueing::Expression => append(rule, "queue", |data| {
            data.attribute(NFTA_QUEUE_NUM, &queue.to_be_bytes())
                .attribute(NFTA_QUEUE_TOTAL, &1_u16.to_be_bytes())
                .attribute(NFTA_QUEUE_FLAGS, &BYPASS.to_be_bytes())
        }),
        // The structure xt_NFQ_info_v3, of which the length is a multiple of 8.
        Queueing::Target => append(rule, "target", |data| {
            let info: Vec<u8> = [queue, 1, BYPASS, 0].into_iter().flat_map(u16::to_ne_bytes).collect();
            data.attribute(NFTA_TARGET_NAME, &text("NFQUEUE"))
                .attribute(NFTA_TARGET_REV, &number(3))
                .attribute(NFTA_TARGET_INFO, &info)
        }),
    }
}

/// Connection tracking does not follow the packet.
pub(crate) fn untracked(rule: &mut Batch) {
    append(rule, "notrack", |nothing| nothing);
}

/// Gives the packet to the socket of this host at `port`. The rule ends if there is none.
pub(crate) fn redirect(rule: &mut Batch, family: u8, port: u16) {
    immediate(rule, &port.to_be_bytes());
    append(rule, "tproxy", |tproxy| {
        tproxy
            .attribute(NFTA_TPROXY_FAMILY, &number(family.into()))
            .attribute(NFTA_TPROXY_REG_PORT, &number(NFT_REG_1))
    });
}

/// Accepts the packet.
pub(crate) fn accept(rule: &mut Batch) {
    verdict(rule, NF_ACCEPT, None);
}

/// Drops the packet.
pub(crate) fn drop(rule: &mut Batch) {
    verdict(rule, NF_DROP, None);
}

/// Continues in another chain, and does not return.
pub(crate) fn go_to(rule: &mut Batch, chain: &str) {
    verdict(rule, NFT_GOTO, Some(chain));
}

fn verdict(rule: &mut Batch, code: i32, chain: Option<&str>) {
    append(rule, "immediate", |immediate| {
        immediate
            .attribute(NFTA_IMMEDIATE_DREG, &number(NFT_REG_VERDICT))
            .nest(NFTA_IMMEDIATE_DATA, |data| verdict_data(data, code, chain))
    });
}

fn verdict_data<'a>(data: &'a mut Batch, code: i32, chain: Option<&str>) -> &'a mut Batch {
    data.nest(NFTA_DATA_VERDICT, |verdict| {
        verdict.attribute(NFTA_VERDICT_CODE, &code.to_be_bytes());
        match chain {
            Some(chain) => verdict.attribute(NFTA_VERDICT_CHAIN, &text(chain)),
            None => verdict,
        }
    })
}

/// Appends the verdict to continue in another chain as the value of an element.
pub(super) fn go_to_data<'a>(data: &'a mut Batch, chain: &str) -> &'a mut Batch {
    verdict_data(data, NFT_GOTO, Some(chain))
}

pub(super) fn append(rule: &mut Batch, name: &str, data: impl FnOnce(&mut Batch) -> &mut Batch) {
    rule.nest(NFTA_LIST_ELEM, |element| {
        element.attribute(NFTA_EXPR_NAME, &text(name)).nest(NFTA_EXPR_DATA, data)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::codec::{Attributes, NESTED, attribute, find};
    use crate::netlink::nftables::tests::{composed, expressions};
    use crate::netlink::nftables::{NFPROTO_INET, rule};

    fn of_rule(compose: impl FnOnce(&mut Batch)) -> Vec<(String, Vec<u8>)> {
        let requests = composed(|requests| rule(requests, NFPROTO_INET, ("t", "c"), compose));
        expressions(&requests[0].1)
    }

    #[test]
    fn a_code_point_leaves_the_other_bits_of_both_headers() {
        let changed = |ipv6| {
            let all = of_rule(|rule| write_dscp(rule, ipv6, 46));
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["payload", "bitwise", "payload"]);
            let data =
                |kind| find(Attributes(find(Attributes(&all[1].1), kind).unwrap()), 1).unwrap().to_vec();
            (data(NFTA_BITWISE_MASK), data(NFTA_BITWISE_XOR), find(Attributes(&all[2].1), 6).is_some())
        };
        // IPv4: version and length, and ECN. The checksum follows.
        assert_eq!(changed(false), (vec![0xff, 3], vec![0, 46 << 2], true));
        // IPv6: the version, and ECN with the flow label.
        assert_eq!(changed(true), (vec![0xf0, 0x3f], vec![46 >> 2, 0x80], false));
    }

    #[test]
    fn a_rate_is_in_octets_a_second() {
        let expected = [
            attribute(1, &4000_u64.to_be_bytes()),
            attribute(2, &1_u64.to_be_bytes()),
            attribute(3, &12_000_u32.to_be_bytes()),
            attribute(4, &1_u32.to_be_bytes()),
        ];
        let limit = of_rule(|rule| within_rate(rule, 4000, 12_000));
        assert_eq!(limit, [("limit".to_owned(), expected.concat())]);
    }

    #[test]
    fn a_class_is_a_number_in_the_order_of_this_machine() {
        let all = of_rule(|rule| priority(rule, 0x5342_0003));
        let value = attribute(1, &0x5342_0003_u32.to_ne_bytes());
        let immediate = [attribute(1, &[0, 0, 0, 1]), attribute(2 | NESTED, &value)];
        // The register that is stored, and where: the priority.
        let meta = [attribute(2, &[0, 0, 0, 2]), attribute(3, &[0, 0, 0, 1])];
        let expected = [("immediate", immediate.concat()), ("meta", meta.concat())];
        assert_eq!(all, expected.map(|(name, data)| (name.to_owned(), data)));
    }
}
