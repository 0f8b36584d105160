//! Channels under TLS.

use rcgen::KeyPair;

use super::super::*;
use super::rig::{CHANNEL, CLIENT, Command, Reported, Rig, SERVER, TLS, raw_key};

/// A rig whose channel is up, and its name at the server.
fn up() -> (Rig, StreamId) {
    let mut rig = Rig::tls();
    rig.open(Transport::TlsTcp, TLS);
    let [Reported::Connected(CHANNEL, Some(_))] = rig.client.reported()[..] else { panic!() };
    let [Reported::Accepted(theirs, Transport::TlsTcp, Some(_))] = rig.server.reported()[..] else {
        panic!()
    };
    (rig, theirs)
}

fn has_octets(octets: &[u8], reported: &[Reported]) -> bool {
    let got: Vec<u8> = reported
        .iter()
        .flat_map(|h| if let Reported::Octets(_, octets) = h { octets.clone() } else { panic!("{h:?}") })
        .collect();
    got == octets
}

#[test]
fn both_ends_get_the_identity_of_the_other() {
    let [a, b] = [0, 1].map(|_| KeyPair::generate().unwrap());
    let configs = [raw_key(&a, &b), raw_key(&b, &a)];
    let keys = configs.each_ref().map(|tls| tls.load(0).unwrap().fingerprint());
    let [client, server] = configs.map(|tls| ChannelConfig { tls: Some(tls), ..ChannelConfig::default() });
    let mut rig = Rig::with(client, server);
    rig.open(Transport::TlsTcp, TLS);
    let [Reported::Connected(_, Some(server))] = &rig.client.reported()[..] else { panic!() };
    let [Reported::Accepted(_, _, Some(client))] = &rig.server.reported()[..] else { panic!() };
    assert_eq!([client.key, server.key], keys);
    assert_eq!((rig.client.channels.next_deadline(), rig.server.channels.next_deadline()), (None, None));
}

#[test]
fn what_is_sent_for_one_input_leaves_in_one_write() {
    let (mut rig, _) = up();
    for _ in 0..50 {
        rig.client_sends(&[7; 100]);
    }
    let downs = rig.client.downs();
    let [Command::Write(_, octets)] = &downs[..] else { panic!("{} writes", downs.len()) };
    assert!(octets.len() < 50 * 100 + 100, "{} octets: a record for each message", octets.len());
    downs.into_iter().for_each(|down| rig.carry(true, down, TLS));
    assert!(has_octets(&[7; 5000], &rig.server.reported()));
}

#[test]
fn more_than_the_channel_buffers_is_sent_whole() {
    let (mut rig, _) = up();
    let message: Vec<u8> = (0..200_000u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for _ in 0..8 {
        rig.client_sends(&message);
    }
    rig.run();
    assert!(has_octets(&message.repeat(8), &rig.server.reported()));
}

#[test]
fn the_end_of_a_channel_is_orderly_after_all_octets() {
    let (mut rig, theirs) = up();
    rig.client_sends(b"last");
    rig.client.channels.close(rig.now, CHANNEL, false);
    rig.run();
    let reported = rig.server.reported();
    let end = Reported::Closed(theirs, Closed::Orderly, false);
    assert_eq!(reported, [Reported::Octets(theirs, b"last".to_vec()), end]);
    assert_eq!((rig.client.channels.len(), rig.server.channels.len()), (0, 0));
    assert_eq!(rig.server.channels.next_deadline(), None);
}

#[test]
fn a_stream_that_stays_after_the_end_of_tls_is_closed_by_us() {
    let (mut rig, theirs) = up();
    rig.client.channels.close(rig.now, CHANNEL, false);
    let [Command::Write(stream, notify), Command::Close(..)] = &rig.client.downs()[..] else { panic!() };
    rig.carry(true, Command::Write(*stream, notify.clone()), TLS);
    assert!(rig.server.reported().is_empty());
    let deadline = rig.server.channels.next_deadline().unwrap();
    let server = &mut rig.server;
    server.channels.timer(deadline, &mut server.reports);
    assert_eq!(server.reported(), [Reported::Closed(theirs, Closed::Orderly, true)]);
    assert!(matches!(server.downs()[..], [.., Command::Close(_, false)]));
    assert_eq!((server.channels.len(), server.channels.next_deadline()), (0, None));
}

#[test]
fn a_stream_cut_without_the_end_of_tls_is_a_loss() {
    let (mut rig, theirs) = up();
    let server = &mut rig.server;
    server.channels.closed(rig.now, StreamId(theirs.0), None, true, &mut server.reports);
    assert_eq!(server.reported(), [Reported::Closed(theirs, Closed::Reset, true)]);
}

#[test]
fn a_key_that_is_not_trusted_is_refused_by_either_end() {
    let [a, b, c] = [0, 1, 2].map(|_| KeyPair::generate().unwrap());
    let config = |own, peer| ChannelConfig { tls: Some(raw_key(own, peer)), ..ChannelConfig::default() };
    // The server is not the one that the client names; the client is not one of those that the server accepts.
    for (client, server) in [((&a, &c), (&b, &a)), ((&a, &b), (&b, &c))] {
        let mut rig = Rig::with(config(client.0, client.1), config(server.0, server.1));
        rig.open(Transport::TlsTcp, TLS);
        let reported = rig.client.reported();
        let end = reported.last().cloned();
        assert!(matches!(end, Some(Reported::Closed(CHANNEL, Closed::Security, _))), "{reported:?}");
        assert!(rig.server.reported().is_empty(), "the user receives no event of it");
        assert_eq!(rig.server.channels.counters.handshakes_failed, 1);
        assert_eq!((rig.client.channels.len(), rig.server.channels.len()), (0, 0));
        assert_eq!(rig.server.channels.next_deadline(), None);
    }
}

#[test]
fn octets_changed_on_the_way_break_the_channel() {
    let (mut rig, theirs) = up();
    rig.client_sends(b"secret");
    let [Command::Write(stream, octets)] = &rig.client.downs()[..] else { panic!() };
    let mut changed = octets.clone();
    *changed.last_mut().unwrap() ^= 1;
    rig.carry(true, Command::Write(*stream, changed), TLS);
    assert_eq!(rig.server.reported(), [Reported::Closed(theirs, Closed::Security, true)]);
    assert_eq!(rig.server.channels.counters.tls_failed, 1);
    rig.run();
    assert!(matches!(rig.client.reported()[..], [Reported::Closed(CHANNEL, Closed::Security, true)]));
}

#[test]
fn back_pressure_passes_both_ways() {
    let (mut rig, theirs) = up();
    let (now, stream) = (rig.now, StreamId(CHANNEL.0));
    let client = &mut rig.client;
    client.channels.drained(now, stream, 70_000, &mut client.reports);
    client.channels.drained(now, stream, 0, &mut client.reports);
    assert_eq!(client.reported(), [Reported::Drained(CHANNEL, 70_000), Reported::Drained(CHANNEL, 0)]);
    let server = &mut rig.server;
    server.channels.read(now, theirs, false, &mut server.reports);
    server.channels.read(now, theirs, true, &mut server.reports);
    let stream = StreamId(theirs.0);
    assert_eq!(server.downs(), [Command::Read(stream, false), Command::Read(stream, true)]);
}

/// A reload ends the channels of peers that the new configuration does not know, and no others.
#[test]
fn peers_are_judged_again_after_a_reload() {
    let [a, b, c] = [0, 1, 2].map(|_| KeyPair::generate().unwrap());
    let [client, server] = [raw_key(&a, &b), raw_key(&b, &a)]
        .map(|tls| ChannelConfig { tls: Some(tls), ..ChannelConfig::default() });
    let mut rig = Rig::with(client, server);
    rig.open(Transport::TlsTcp, TLS);
    rig.client.reported();
    let [Reported::Accepted(theirs, ..)] = rig.server.reported()[..] else { panic!() };
    for (peer, stays) in [(&a, true), (&c, false)] {
        let server = &mut rig.server;
        server.channels.reload(Some(&raw_key(&b, peer)), 0);
        assert!(server.channels.next_deadline().is_some());
        server.channels.timer(rig.now, &mut server.reports);
        assert_eq!(server.channels.next_deadline(), None);
        rig.run_to(TLS);
        if stays {
            assert_eq!((rig.client.reported(), rig.server.reported()), (Vec::new(), Vec::new()));
        }
    }
    assert_eq!(rig.server.reported(), [Reported::Closed(theirs, Closed::Security, true)]);
    assert!(matches!(rig.client.reported()[..], [Reported::Closed(CHANNEL, Closed::Orderly, _)]));
    assert_eq!((rig.server.channels.len(), rig.server.channels.counters.tls_distrusted), (0, 1));
}

/// Channels of peers that are not trusted any more end in parts: the sessions of each begin again when it ends.
#[test]
fn few_channels_end_at_a_time() {
    let [a, b, c] = [0, 1, 2].map(|_| KeyPair::generate().unwrap());
    let [client, server] = [raw_key(&a, &b), raw_key(&b, &a)]
        .map(|tls| ChannelConfig { tls: Some(tls), ..ChannelConfig::default() });
    let mut rig = Rig::with(client, server);
    for number in 0..40 {
        let (now, client) = (rig.now, &mut rig.client);
        let channel = StreamId(2 * number + 1);
        client.channels.open(now, channel, Transport::TlsTcp, [CLIENT, SERVER], TLS, &mut client.reports);
        rig.run_to(TLS);
    }
    assert_eq!(rig.server.channels.len(), 40);
    rig.server.channels.reload(Some(&raw_key(&b, &c)), 0);
    let mut ended = Vec::new();
    while let Some(due) = rig.server.channels.next_deadline() {
        rig.now = rig.now.max(due);
        let (now, server) = (rig.now, &mut rig.server);
        let before = server.channels.counters.tls_distrusted;
        server.channels.timer(now, &mut server.reports);
        ended.push((now, server.channels.counters.tls_distrusted - before));
        // A timer of something else does not make it faster.
        server.channels.timer(now, &mut server.reports);
        assert_eq!(server.channels.counters.tls_distrusted - before, ended.last().unwrap().1);
    }
    assert_eq!(ended.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [16, 16, 8]);
    assert!(ended.is_sorted_by(|(early, _), (late, _)| late.since(*early) >= Duration::from_millis(100)));
    assert_eq!(rig.server.channels.len(), 0);
}
