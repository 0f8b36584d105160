//! The accepted peers and their identities (RFC 5971 §5.7.3).

use std::time::Duration;

use rcgen::{ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use signalbox_core::Time;
use signalbox_transport::Channel;
use signalbox_transport::identity::fingerprint;
use signalbox_transport::stream::{
    ChannelError, Event, Limits, Revocation, TlsConfig, TlsConfigError, TlsSettings, Versions,
};

use crate::pair::{Ca, Leaf, Pair, WALL_CLOCK_US, config, failure, raw_config, revocations, settings, take};

/// [GIST-5.7.3-01] TLS over a byte stream. [GIST-5.7.3-08] The client sends first. [GIST-5.7.3-09], [GIST-5.7.3-10]
/// Both ends present certificates and get the names of the other. [GIST-5.7.3-07] The suites are AEAD ones. The
/// plaintext does not appear on the wire.
#[test]
fn mutual_with_certificates() {
    let ca = Ca::new();
    let (alice, bob) = (ca.issue(&["a.example", "192.0.2.5"]), ca.issue(&["b.example", "b2.example"]));
    let (alice, bob) = (config(&alice, &ca), config(&bob, &ca));
    let mut pair = Pair::tls(&alice, &bob);
    assert!(!pair.server.poll_transmit(&mut Vec::new()), "the server waits for the client");
    pair.client.send(b"early words").unwrap();
    pair.run();
    let Some(Event::Connected { peer: Some(server) }) = pair.client.poll_event() else { panic!() };
    let Some(Event::Connected { peer: Some(client) }) = pair.server.poll_event() else { panic!() };
    assert_eq!(server.dns, ["b.example", "b2.example"]);
    assert_eq!((client.dns.as_slice(), client.addresses.len()), (&["a.example".to_owned()][..], 1));
    assert_eq!((client.key, server.key), (alice.fingerprint(), bob.fingerprint()));
    assert_eq!(take(&mut pair.server), b"early words");
    pair.client.send(b"confidential").unwrap();
    let wire = pair.client_says();
    assert!(!wire.windows(12).any(|window| window == b"confidential"));
    pair.server.receive(pair.now, &wire).unwrap();
    assert_eq!(take(&mut pair.server), b"confidential");
}

/// [GIST-5.7.3-03] The highest common version; [GIST-5.7.3-04] 1.2 where only that is common. [GIST-5.7.3-02] Older
/// versions are refused, and without a common version the handshake fails.
#[test]
fn versions() {
    let ca = Ca::new();
    let leaf = ca.issue(&["a.example"]);
    let config = |versions| TlsConfig::new(&TlsSettings { versions, ..settings(&leaf, &ca) }).unwrap();
    for (client, server, expected) in [
        (Versions::Both, Versions::Both, Some(0x0304)),
        (Versions::Both, Versions::Only12, Some(0x0303)),
        (Versions::Only12, Versions::Both, Some(0x0303)),
        (Versions::Only13, Versions::Only12, None),
        (Versions::Only12, Versions::Only13, None),
    ] {
        let mut pair = Pair::tls(&config(client), &config(server));
        pair.run();
        if expected.is_some() {
            assert_eq!((pair.client.tls_version(), pair.server.tls_version()), (expected, expected));
            assert!(matches!(pair.server.poll_event(), Some(Event::Connected { peer: Some(_) })));
        } else {
            assert!(matches!(failure(&mut pair.server), Some(ChannelError::Incompatible(_))));
            assert!(matches!(failure(&mut pair.client), Some(ChannelError::Alert { code: 70, .. })));
        }
    }
}

/// A hand-written ClientHello of TLS 1.1. [GIST-5.7.3-02]
#[test]
fn an_old_version_is_refused() {
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0, 0x0a, 1, 0]); // no session id; TLS_RSA_WITH_3DES_EDE_CBC_SHA; no compression
    let mut hello = vec![22, 3, 1];
    hello.extend(u16::try_from(body.len() + 4).unwrap().to_be_bytes());
    hello.extend([1, 0, 0, u8::try_from(body.len()).unwrap()]);
    hello.extend(body);
    let ca = Ca::new();
    let mut server =
        Channel::server(&config(&ca.issue(&["b.example"]), &ca), Limits::default(), Time::ZERO).unwrap();
    assert!(server.receive(Time::ZERO, &hello).is_err());
    assert!(matches!(failure(&mut server), Some(ChannelError::Incompatible(_) | ChannelError::Malformed(_))));
}

/// A wrong certificate on either side is refused. [GIST-5.7.3.1-06] A self-signed unknown key;
/// [GIST-5.7.3.1-07] expired, not yet valid, of another anchor, or not meant for the purpose.
#[test]
fn wrong_certificates_are_refused() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let good = config(&ca.issue(&["good.example"]), &ca);
    let usage = |usage| move |params: &mut rcgen::CertificateParams| params.extended_key_usages = vec![usage];
    let old = ca.issue_with(&["x.example"], |params| params.not_after = date_time_ymd(2026, 1, 1));
    let young = ca.issue_with(&["x.example"], |params| params.not_before = date_time_ymd(2028, 1, 1));
    let only_mail = ca.issue_with(&["x.example"], usage(ExtendedKeyUsagePurpose::EmailProtection));
    for bad in [stranger.issue(&["good.example"]), old, young, only_mail] {
        let bad = config(&bad, &ca);
        // The certificate of a server is bad.
        let mut pair = Pair::tls(&good, &bad);
        pair.run();
        assert!(matches!(failure(&mut pair.client), Some(ChannelError::Untrusted(_))));
        let reason = failure(&mut pair.server).unwrap();
        assert!(reason.refused_our_key(), "{reason}");
        // The certificate of a client is bad. The client detects this after it is connected (TLS 1.3).
        let mut pair = Pair::tls(&bad, &good);
        pair.run();
        assert!(matches!(failure(&mut pair.server), Some(ChannelError::Untrusted(_))));
        assert!(failure(&mut pair.client).unwrap().refused_our_key());
        assert!(pair.server.received().is_empty());
    }
    // A certificate for one role is accepted in that role only.
    let only_client = config(&ca.issue_with(&["x.example"], usage(ExtendedKeyUsagePurpose::ClientAuth)), &ca);
    let mut pair = Pair::tls(&only_client, &good);
    pair.run();
    assert!(failure(&mut pair.client).is_none() && failure(&mut pair.server).is_none());
    let mut pair = Pair::tls(&good, &only_client);
    pair.run();
    assert!(matches!(failure(&mut pair.client), Some(ChannelError::Untrusted(_))));
}

/// The time is an input together with the octets: a certificate expires while the node runs.
#[test]
fn certificates_expire_in_our_time() {
    let ca = Ca::new();
    let leaf = ca.issue_with(&["x.example"], |params| params.not_after = date_time_ymd(2027, 2, 1));
    let config = config(&leaf, &ca);
    let mut pair = Pair::tls(&config, &config);
    pair.run();
    assert!(failure(&mut pair.client).is_none());
    let mut pair = Pair::tls(&config, &config);
    pair.now = Time::from_secs(30 * 24 * 3600);
    pair.run();
    assert!(
        matches!(failure(&mut pair.client), Some(ChannelError::Untrusted(reason)) if reason.contains("expired"))
    );
}

/// [GIST-5.7.3.1-07] The wall clock is corrected while the node runs: a handshake that began before has it too.
#[test]
fn a_corrected_clock_counts_from_the_next_octets_on() {
    let ca = Ca::new();
    let leaf = ca.issue_with(&["x.example"], |params| params.not_after = date_time_ymd(2027, 2, 1));
    let config = config(&leaf, &ca);
    let mut pair = Pair::tls(&config, &config);
    config.set_wall_clock(WALL_CLOCK_US + 30 * 24 * 3600 * 1_000_000);
    pair.run();
    assert!(
        matches!(failure(&mut pair.client), Some(ChannelError::Untrusted(reason)) if reason.contains("expired"))
    );
    config.set_wall_clock(WALL_CLOCK_US);
    let mut pair = Pair::tls(&config, &config);
    pair.run();
    assert!(failure(&mut pair.client).is_none() && failure(&mut pair.server).is_none());
}

/// [GIST-5.7.3.1-07] RFC 5280 §5: certificates on a list of their authority are refused, in both roles and versions. Strict
/// nodes also refuse certificates of authorities without a current list.
#[test]
fn revoked_certificates_are_refused() {
    let (ca, other) = (Ca::new(), Ca::named("another anchor"));
    let numbered =
        |number: u64| move |params: &mut rcgen::CertificateParams| params.serial_number = Some(number.into());
    let (good, bad) =
        (ca.issue_with(&["x.example"], numbered(7)), ca.issue_with(&["x.example"], numbered(8)));
    let anchors = Ca { pem: format!("{}{}", ca.pem, other.pem), ..ca };
    let stranger = other.issue_with(&["x.example"], numbered(8));
    let list = revocations(&anchors, &[8, 9]);
    let plain = |leaf| TlsConfig::new(&settings(leaf, &anchors)).unwrap();
    for versions in [Versions::Only12, Versions::Only13] {
        let with = |strict, wall_clock_us| {
            let revocation = Revocation { lists: list.as_bytes(), strict };
            TlsConfig::new(&TlsSettings { revocation, versions, wall_clock_us, ..settings(&good, &anchors) })
                .unwrap()
        };
        let accepts = |node: &TlsConfig, peer: &TlsConfig| {
            let accepted = |client: &TlsConfig, server: &TlsConfig| {
                let mut pair = Pair::tls(client, server);
                pair.run();
                failure(&mut pair.client).is_none() && failure(&mut pair.server).is_none()
            };
            let both = [accepted(node, peer), accepted(peer, node)];
            assert_eq!(both[0], both[1], "the roles differ");
            both[0]
        };
        let (lenient, strict) = (with(false, WALL_CLOCK_US), with(true, WALL_CLOCK_US));
        // What the peer trusts does not matter here.
        let [good, bad, stranger] = [&good, &bad, &stranger].map(plain);
        assert!(accepts(&lenient, &good) && accepts(&strict, &good));
        assert!(!accepts(&lenient, &bad) && !accepts(&strict, &bad));
        // The serial numbers of another authority are others.
        assert!(accepts(&lenient, &stranger) && !accepts(&strict, &stranger));
        // The list has expired.
        let later = WALL_CLOCK_US + 2 * 24 * 3600 * 1_000_000;
        let (lenient, strict) = (with(false, later), with(true, later));
        assert!(accepts(&lenient, &good) && !accepts(&strict, &good));
        assert!(!accepts(&lenient, &bad));
    }
    let broken =
        Revocation { lists: b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", strict: false };
    let error = TlsConfig::new(&TlsSettings { revocation: broken, ..settings(&good, &anchors) }).unwrap_err();
    assert!(matches!(error, TlsConfigError::Revocation(_)), "{error}");
}

/// [GIST-5.7.3.1-08] Raw public keys of the configuration, in both directions.
#[test]
fn mutual_with_raw_keys() {
    let (alice, bob, eve) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let a = raw_config(&alice, &[&eve, &bob]).unwrap();
    let b = raw_config(&bob, &[&alice]).unwrap();
    let mut pair = Pair::tls(&a, &b);
    pair.run();
    let Some(Event::Connected { peer: Some(server) }) = pair.client.poll_event() else { panic!() };
    let Some(Event::Connected { peer: Some(client) }) = pair.server.poll_event() else { panic!() };
    assert_eq!((server.key, client.key), (b.fingerprint(), a.fingerprint()));
    assert_eq!(client.key, fingerprint(&rcgen::PublicKeyData::subject_public_key_info(&alice)));
    assert_eq!(client.dns_names().count(), 0);
    // An unknown key at either end.
    let e = raw_config(&eve, &[&bob]).unwrap();
    let mut pair = Pair::tls(&e, &b);
    pair.run();
    assert!(matches!(failure(&mut pair.server), Some(ChannelError::Untrusted(_))));
    assert!(failure(&mut pair.client).is_some());
    let mut pair = Pair::tls(&b, &e);
    pair.run();
    assert!(matches!(failure(&mut pair.client), Some(ChannelError::Untrusted(_))));
    // One end has a raw key, the other a certificate.
    let ca = Ca::new();
    let x509 = config(&ca.issue(&["x.example"]), &ca);
    for (client, server) in [(&a, &x509), (&x509, &a)] {
        let mut pair = Pair::tls(client, server);
        pair.run();
        assert!(failure(&mut pair.client).is_some() && failure(&mut pair.server).is_some());
    }
}

/// A client without a certificate of a trusted authority is accepted without a name only if that is configured, and
/// never with a bad certificate.
#[test]
fn client_authentication_can_be_optional() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let server = ca.issue(&["s.example"]);
    let lenient = TlsConfig::new(&TlsSettings { require_client: false, ..settings(&server, &ca) }).unwrap();
    let mut pair = Pair::tls(&config(&stranger.issue(&["good.example"]), &ca), &lenient);
    pair.run();
    assert!(matches!(failure(&mut pair.server), Some(ChannelError::Untrusted(_))));
    let mut pair = Pair::tls(&config(&ca.issue(&["c.example"]), &ca), &lenient);
    pair.run();
    assert!(matches!(pair.server.poll_event(), Some(Event::Connected { peer: Some(_) })));
}

/// Wrong settings are refused with the reason.
#[test]
fn broken_settings() {
    let ca = Ca::new();
    let (leaf, other) = (ca.issue(&["a.example"]), ca.issue(&["b.example"]));
    let swapped = Leaf { chain: leaf.chain.clone(), key: other.key.clone() };
    assert!(matches!(TlsConfig::new(&settings(&swapped, &ca)), Err(TlsConfigError::Key(_))));
    let empty = Leaf { chain: String::new(), key: leaf.key.clone() };
    let error = TlsConfig::new(&settings(&empty, &ca)).unwrap_err();
    assert!(matches!(error, TlsConfigError::Pem { what: "certificate chain", .. }), "{error}");
    let keyless = Leaf { chain: leaf.chain.clone(), key: leaf.chain.clone() };
    let error = TlsConfig::new(&settings(&keyless, &ca)).unwrap_err();
    assert!(matches!(error, TlsConfigError::Pem { what: "private key", .. }), "{error}");
    assert!(matches!(raw_config(&KeyPair::generate().unwrap(), &[]), Err(TlsConfigError::Pem { .. })));
}

/// RFC 5971 §5.7.3.1 asks for the authentication of peers; it ends with the certificate that gave it, at its last second.
#[test]
fn a_standing_channel_ends_with_the_certificate_of_its_peer() {
    let ca = Ca::new();
    let short = ca.issue_with(&["x.example"], |params| params.not_after = date_time_ymd(2027, 1, 16));
    let long = ca.issue(&["y.example"]);
    let mut pair = Pair::tls(&config(&long, &ca), &config(&short, &ca));
    pair.run();
    assert!(pair.client.poll_event().is_some() && pair.server.poll_event().is_some());
    // 2027-01-16 00:00:00 is valid, the next second is not.
    let end = Time::from_micros(1_800_057_601_000_000 - WALL_CLOCK_US);
    let mut at = pair.now;
    while at < end {
        let next = pair.client.next_deadline().unwrap();
        assert!(next > at && next <= end && next <= at + Duration::from_secs(3600), "{next}");
        at = next;
        if at < end {
            pair.client.handle_timer(at);
            assert_eq!(pair.client.poll_event(), None, "at {at}");
        }
    }
    pair.client.handle_timer(at);
    let error = failure(&mut pair.client);
    assert!(matches!(&error, Some(ChannelError::Untrusted(why)) if why.contains("expired")), "{error:?}");
    assert_eq!(pair.client.next_deadline(), None);
    // The peer learns that the channel was closed.
    pair.run();
    assert_eq!(pair.server.poll_event(), Some(Event::Closed { unsent: 0 }));
}

/// A list that is read again ends channels that stand, on either side; other channels stay.
#[test]
fn a_standing_channel_ends_when_the_certificate_of_its_peer_is_revoked() {
    let ca = Ca::new();
    let leaf =
        |serial: u64| ca.issue_with(&["x.example"], |params| params.serial_number = Some(serial.into()));
    let leaves = [leaf(7), leaf(8)];
    let list = revocations(&ca, &[8]);
    let with = |leaf: &Leaf| {
        let revocation = Revocation { lists: list.as_bytes(), strict: true };
        TlsConfig::new(&TlsSettings { revocation, ..settings(leaf, &ca) }).unwrap()
    };
    let [before, after] = [leaves.each_ref().map(|leaf| config(leaf, &ca)), leaves.each_ref().map(with)];
    let mut pair = Pair::tls(&before[0], &before[1]);
    let now = pair.now;
    assert!(!pair.client.judge(&after[0], now), "the handshake goes on");
    pair.run();
    assert!(pair.client.poll_event().is_some() && pair.server.poll_event().is_some());
    assert!(pair.server.judge(&after[1], now) && pair.server.poll_event().is_none(), "7 is not revoked");
    assert!(pair.client.judge(&after[0], now));
    let error = failure(&mut pair.client);
    assert!(matches!(&error, Some(ChannelError::Untrusted(why)) if why.contains("evoked")), "{error:?}");
    // A server judges its clients in the same way.
    let mut pair = Pair::tls(&before[1], &before[0]);
    pair.run();
    assert!(pair.client.poll_event().is_some() && pair.server.poll_event().is_some());
    assert!(pair.server.judge(&after[0], now));
    assert!(matches!(failure(&mut pair.server), Some(ChannelError::Untrusted(_))));
    // Keys that the configuration no longer has.
    let keys = [0, 1].map(|_| KeyPair::generate().unwrap());
    let [a, b] = &keys;
    let mut pair = Pair::tls(&raw_config(a, &[b]).unwrap(), &raw_config(b, &[a]).unwrap());
    pair.run();
    assert!(pair.client.poll_event().is_some());
    assert_eq!(pair.client.next_deadline(), None);
    pair.client.judge(&raw_config(a, &[b]).unwrap(), now);
    assert_eq!(pair.client.poll_event(), None);
    pair.client.judge(&raw_config(a, &[a]).unwrap(), now);
    assert!(matches!(failure(&mut pair.client), Some(ChannelError::Untrusted(_))));
}
