//! Bodies of the fuzz targets: properties that hold for all octets. The targets in `fuzz/` are one line each; the tests
//! replay `fuzz/corpus` through the same functions.
//!
//! Every function panics if its property does not hold.

#![expect(clippy::panic, reason = "a fuzz target reports a broken property by a panic")]

use signalbox_resources::intserv::{Latency, LocalTerms, Path};

use crate::wire::{
    self, Class, Identity, LocalService, LocalServices, Message, MessageType, Overrides, Preemption,
    RawAdspec, checksum_is_valid, policy_data,
};

#[cfg(feature = "kit")]
mod engine;

#[cfg(feature = "kit")]
pub use engine::rsvp_engine;

/// A message that parses is composed again, parses to the same values, and is stable; all its parts can be read. An
/// error of a message that does not parse has an offset inside. Input: a whole message; it is tried as it is and with
/// length and checksum corrected.
pub fn rsvp_message(octets: &[u8]) {
    one(octets);
    let mut patched = octets.to_vec();
    if let (Ok(length), Some(header)) = (u16::try_from(octets.len()), patched.first_chunk_mut::<8>()) {
        let [l1, l0] = length.to_be_bytes();
        [header[2], header[3], header[6], header[7]] = [0, 0, l1, l0];
        header[0] = 0x10 | (header[0] & 0x0f);
        one(&patched);
    }
}

fn one(octets: &[u8]) {
    let message = match Message::parse(octets) {
        Ok(message) => message,
        Err(error) => {
            assert!(error.offset <= octets.len().max(8), "{error}: beyond {} octets", octets.len());
            return;
        }
    };
    for sub in message.sub_messages() {
        assert!(sub.len() < octets.len());
        rsvp_message(sub);
    }
    look(&message);
    if message.refusal.is_some() || message.kind == MessageType::BUNDLE {
        return;
    }
    let once = recompose(&message);
    assert!(checksum_is_valid(&once));
    match Message::parse(&once) {
        Ok(again) => {
            assert_eq!((again.session, again.e_police), (message.session, message.e_police));
            assert_eq!((again.hop, again.refresh_period), (message.hop, message.refresh_period));
            assert_eq!((again.error, again.style), (message.error, message.style));
            assert_eq!((again.confirm, again.sender), (message.confirm, message.sender));
            assert_eq!((again.message_id, again.hello), (message.message_id, message.hello));
            assert_eq!(again.challenge, message.challenge);
            assert_eq!((again.diagnostic(), again.route()), (message.diagnostic(), message.route()));
            assert!(again.responses().eq(message.responses()), "diagnostics");
            assert!(again.flows().eq(message.flows()), "flow descriptors");
            assert!(again.acks().eq(message.acks()), "acknowledgments");
            assert_eq!(recompose(&again), once, "composing is stable");
        }
        Err(error) => panic!("{error}: our own message is not understood"),
    }
}

/// Reads the parts that are parsed on request.
fn look(message: &Message<'_>) {
    if let Some(Err(fault)) = message.sender_tspec.map(|tspec| tspec.read()) {
        assert!(!fault.to_string().is_empty());
    }
    for flow in message.flows() {
        if let Some(Err(fault)) = flow.flowspec.map(|flowspec| flowspec.read()) {
            assert!(!fault.to_string().is_empty());
        }
    }
    if let Some(adspec) = message.adspec {
        compose(adspec);
    }
    for policy in message.policy() {
        if let Ok(options) = policy.options() {
            options.filters().for_each(drop);
        }
        if let Ok(elements) = policy.elements() {
            for element in elements {
                let (preemption, identity) = (Preemption::of(&element), Identity::of(&element));
                let made = policy_data(preemption, identity.as_slice()).unwrap_or_default();
                let again: Vec<_> = wire::elements(&made).collect();
                assert_eq!(again.iter().find_map(Preemption::of), preemption);
                assert_eq!(again.iter().find_map(Identity::of), identity);
            }
        }
    }
    for list in message.lists() {
        assert!(list.ids().next().is_some(), "an empty list cannot be parsed");
    }
    if let Some(scope) = message.scope {
        scope.senders().for_each(drop);
    }
    if let Some(select) = message.select() {
        assert!(select.kinds().all(|kind| select.selects(kind)));
    }
    for response in message.responses() {
        response.objects().for_each(|object| _ = object.read());
    }
    message.kept().for_each(drop);
    for object in message.objects() {
        let _ = object.read();
    }
}

fn recompose(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    match message.compose(&mut octets) {
        Ok(()) => octets,
        Err(error) => panic!("{error}: {message:?}"),
    }
}

/// An ADSPEC that parses can be advanced by a hop and then has the hop's values; one that does not parse leaves no
/// octets. Input: the contents of the object.
pub fn rsvp_adspec(octets: &[u8]) {
    let Some(length) = u16::try_from(octets.len()).ok().and_then(|length| length.checked_add(4)) else {
        return;
    };
    if length % 4 != 0 {
        return;
    }
    let object = [&length.to_be_bytes()[..], &[Class::ADSPEC.0, 2], octets].concat();
    if let Some(adspec) = RawAdspec::from_octets(&object) {
        compose(adspec);
    }
}

fn compose(adspec: RawAdspec<'_>) {
    let overrides = Overrides { mtu: Some(1000), ..Overrides::default() };
    let service = LocalService { overrides, terms: LocalTerms { c: 1500, d: 80 }, reshapes: false };
    let local = LocalServices {
        general: Path::hop(1_250_000, Latency(10), 1500),
        guaranteed: Some(service),
        controlled_load: None,
    };
    let mut out = Vec::new();
    match (adspec.read(), adspec.advance(&local, &mut out)) {
        (Ok(before), Ok(())) => {
            let after = RawAdspec::from_octets(&out).and_then(|after| after.read().ok());
            let Some(after) = after else { panic!("our own ADSPEC is not understood: {out:02x?}") };
            assert_eq!(after.general, before.general.composed(&local.general));
            assert_eq!(after.guaranteed.is_some(), before.guaranteed.is_some());
            if let (Some(after), Some(before)) = (after.guaranteed, before.guaranteed) {
                assert_eq!(after.terms, Some(before.terms.unwrap_or_default().plus(service.terms)));
                assert!(after.overrides.mtu.is_some_and(|mtu| mtu <= 1000));
            }
            assert!(after.controlled_load.is_none_or(|controlled| controlled.broken), "not done here");
        }
        // A fragment is at most 256 KiB less one word.
        (Ok(_), Err(_)) => assert!(octets_near_limit(&adspec)),
        (Err(_), Ok(())) => {}
        (Err(_), Err(_)) => assert!(out.is_empty(), "nothing is left behind"),
    }
}

fn octets_near_limit(adspec: &RawAdspec<'_>) -> bool {
    adspec.octets().len() > usize::from(u16::MAX) - 64
}
