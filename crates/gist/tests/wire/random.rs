//! Arbitrary messages, composed and parsed.

use core::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use signalbox_core::{Direction, LooseEnd, Mri, NslpId, PathCoupled, SessionId};
use signalbox_gist::fuzz;
use signalbox_gist::wire::{
    Encapsulation, ErrorClass, ErrorCode, ErrorObject, GistError, Info, InfoType, Infos, List, MaOptions,
    MaProtocolId, Message, MessageType, NatTraversal, Nli, ObjectType, Profile, Replaced, StackConfiguration,
    StackProposal, Translated, mri_encode,
};
use signalbox_wire::Writer;

use crate::support::encode;

fn words(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<[u8; 4]>(), 0..=max).prop_map(|words| words.concat())
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Downstream), Just(Direction::Upstream)]
}

prop_compose! {
    fn path_coupled()(
        (src, dst) in addresses(),
        (src_prefix, dst_prefix, protocol, dscp) in (0..=128_u8, 0..=128_u8, any::<Option<u8>>(), option::of(0..64_u8)),
        (label, spi, src_port, dst_port) in
            (option::of(0..0x10_0000_u32), any::<Option<u32>>(), any::<Option<u16>>(), any::<Option<u16>>()),
        direction in direction(),
    ) -> Mri {
        let host = if src.is_ipv6() { 128 } else { 32 };
        Mri::PathCoupled(PathCoupled {
            src, dst, direction, protocol, dscp,
            src_prefix: src_prefix.min(host),
            dst_prefix: dst_prefix.min(host),
            flow_label: label.filter(|_| src.is_ipv6()),
            spi: spi.filter(|_| protocol.is_some()),
            src_port: src_port.filter(|_| protocol.is_some()),
            dst_port: dst_port.filter(|_| protocol.is_some()),
        })
    }
}

fn mri() -> impl Strategy<Value = Mri> {
    let loose = |((src, dst), direction)| Mri::LooseEnd(LooseEnd { src, dst, direction });
    prop_oneof![4 => path_coupled(), 1 => (addresses(), direction()).prop_map(loose)]
}

/// The original MRI, the translated types, and the objects that NATs did not translate.
type Nat = (Vec<u8>, Vec<u16>, Vec<Vec<u8>>);

/// The parts of a message, owned.
#[derive(Debug, Clone)]
struct Parts {
    hops: u8,
    nslp: u16,
    flags: [bool; 2],
    mri: Mri,
    session: [u8; 16],
    nli: (Vec<u8>, u8, u32, IpAddr),
    cookies: [Vec<u8>; 2],
    profiles: Vec<Vec<u8>>,
    hold_time: u32,
    option_data: Vec<Vec<u8>>,
    data: Vec<u8>,
    nat: Option<Nat>,
    infos: Vec<(u16, Vec<u8>)>,
    comment: Option<String>,
}

prop_compose! {
    fn parts()(
        (hops, nslp, flags, mri, session) in (any::<u8>(), any::<u16>(), any::<[bool; 2]>(), mri(), any::<[u8; 16]>()),
        nli in (vec(any::<u8>(), 0..40), any::<u8>(), 1..=u32::MAX, addresses().prop_map(|a| a.0)),
        cookies in [words(16), words(16)],
        profiles in vec(vec(2..=255_u8, 1..6), 1..5),
        (hold_time, option_data) in (1..=u32::MAX, vec(vec(any::<u8>(), 0..9), 0..4)),
        data in words(300),
        nat in option::of((words(13), vec(any::<u16>(), 0..5), vec(vec(any::<u8>(), 0..9), 0..4))),
        infos in vec((any::<u16>(), words(5)), 0..4),
        comment in option::of("[^\0]{0,12}"),
    ) -> Parts {
        Parts {
            hops, nslp, flags, mri, session, nli, cookies, profiles, hold_time, option_data, data, nat, infos, comment,
        }
    }
}

/// Checks messages of every type and encapsulation with these parts, composed and parsed.
fn check(parts: &Parts) {
    use Encapsulation::{Association, Normal, QMode};
    let types: Vec<_> = parts.nat.iter().flat_map(|n| n.1.iter().copied().map(Translated)).collect();
    let left: Vec<_> = parts.nat.iter().flat_map(|n| n.2.iter().map(|o| Replaced(o))).collect();
    let nat = parts.nat.as_ref().map(|n| NatTraversal {
        octets: &[],
        original_mri: &n.0,
        translated: List::of(&types),
        replaced: List::of(&left),
    });
    let profiles: Vec<_> = parts.profiles.iter().map(|p| Profile(p)).collect();
    // The options are for a protocol in the profile, so that the objects agree.
    let options: Vec<_> = (1_u8..)
        .zip(profiles.iter().zip(&parts.option_data))
        .map(|(n, (p, data))| MaOptions {
            protocol: MaProtocolId(p.0[0]),
            profile: n,
            disabled: n % 2 == 0,
            data,
        })
        .collect();
    let infos: Vec<_> =
        parts.infos.iter().map(|(kind, value)| Info::Other { kind: InfoType(kind | 0x100), value }).collect();
    let mut mri_octets = Vec::new();
    mri_encode(&parts.mri, &mut Writer::new(&mut mri_octets)).unwrap();
    for (kind, encapsulation) in [
        (MessageType::QUERY, QMode),
        (MessageType::RESPONSE, Normal),
        (MessageType::RESPONSE, Association),
        (MessageType::CONFIRM, Normal),
        (MessageType::CONFIRM, Association),
        (MessageType::DATA, Normal),
        (MessageType::DATA, QMode),
        (MessageType::DATA, Association),
        (MessageType::ERROR, Normal),
        (MessageType::ERROR, Association),
        (MessageType::MA_HELLO, Association),
    ] {
        let mut m = Message::new(kind, NslpId(parts.nslp), parts.hops);
        let handshake = matches!(kind, MessageType::QUERY | MessageType::RESPONSE | MessageType::CONFIRM);
        m.header.s = parts.flags[0];
        m.header.c |= encapsulation == QMode;
        m.header.e = kind == MessageType::DATA && parts.flags[1];
        m.nat_traversal = nat.filter(|_| kind != MessageType::CONFIRM && kind != MessageType::MA_HELLO);
        if handshake || kind == MessageType::DATA {
            m.mri = Some(parts.mri.into());
            m.session = Some(SessionId(parts.session));
            m.nslp_data = Some(&parts.data);
            if encapsulation == QMode && matches!(parts.mri, Mri::LooseEnd(_)) {
                m.mri = Some(parts.mri.with_direction(Direction::Downstream).into());
            }
        }
        if handshake || encapsulation.is_datagram() || kind == MessageType::ERROR {
            let (peer_identity, ip_ttl, validity_ms, interface) = &parts.nli;
            let (ip_ttl, validity_ms, interface) = (*ip_ttl, *validity_ms, *interface);
            m.nli = Some(Nli { peer_identity, ip_ttl, validity_ms, interface });
        }
        if handshake {
            m.query_cookie = (kind != MessageType::CONFIRM).then_some(&parts.cookies[0][..]);
            m.responder_cookie = (kind != MessageType::QUERY).then_some(&parts.cookies[1][..]);
            m.header.r |= kind == MessageType::RESPONSE;
            m.stack_proposal = Some(StackProposal { profiles: List::of(&profiles) });
            m.stack_configuration =
                Some(StackConfiguration { hold_time_ms: parts.hold_time, options: List::of(&options) });
        }
        if kind == MessageType::ERROR {
            m.error = Some(ErrorObject {
                error: GistError { class: ErrorClass(parts.hops), code: ErrorCode(parts.nslp), subcode: 1 },
                d_mode: parts.flags[0],
                q_mode: parts.flags[0] && parts.flags[1],
                header: *parts.session.first_chunk().unwrap(),
                session: parts.flags[1].then_some(SessionId(parts.session)),
                mri_octets: parts.flags[0].then_some(&mri_octets[..]),
                infos: Infos::of(&infos),
                comment: parts.comment.as_deref(),
            });
        }
        if kind == MessageType::MA_HELLO {
            m.hello_id = Some(parts.hold_time);
            m.header.r = parts.flags[1];
        }
        let octets = encode(&m).unwrap();
        let parsed = Message::parse(&octets, encapsulation).unwrap();
        assert_eq!(parsed, m);
        assert_eq!(encode(&parsed).unwrap(), octets);
        let error = Message::parse(&octets[..octets.len() - 4], encapsulation).unwrap_err();
        assert_ne!(error.object, Some(ObjectType(0xfff)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// GIST-5.1-01 GIST-5.1-02: a composed message is parsed to an equal one.
    #[test]
    fn there_and_back(parts in parts()) {
        check(&parts);
    }

    #[test]
    fn any_octets(octets in vec(any::<u8>(), 0..200)) {
        fuzz::gist_message(&octets);
        fuzz::gist_error_object(&octets);
        fuzz::gist_mri(&octets);
    }

    /// Octets that resemble objects after a valid header: they reach deeper code than random octets.
    #[test]
    fn any_objects(kind in 0..6_u8, c in any::<bool>(), flags in any::<u8>(), objects in vec((0..12_u16, words(14)), 0..8)) {
        let mut octets = vec![1, 9, 0, 0, 0, 1, kind | u8::from(c) << 7, flags];
        for (kind, value) in &objects {
            octets.extend(kind.to_be_bytes());
            octets.extend(u16::try_from(value.len() / 4).unwrap().to_be_bytes());
            octets.extend(value);
        }
        crate::support::fix_length(&mut octets);
        fuzz::gist_message(&octets);
    }
}
