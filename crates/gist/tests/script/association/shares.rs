//! What one peer leaves to others.

use signalbox_core::service::{MessageStatus, SendError};
use signalbox_gist::engine::{Input, Transport};
use signalbox_gist::wire::MessageType;

use super::kit::*;
use crate::rig::*;

/// A host that begins messages and does not end them leaves room to others.
#[test]
fn a_source_of_incomplete_messages_leaves_others_theirs() {
    let mut config = tcp_only();
    (config.associations.max_buffered, config.associations.accept_rate) = (1 << 22, 0);
    let mut rig = Rig::with(config);
    let mut begun = bare_data(own().inverted(), SESSION, b"data");
    begun[2..4].fill(0xff);
    begun.resize(200_000, 0);
    for number in 1..=40 {
        let channel = rig.accepted(2 * number, Transport::Tcp);
        rig.octets(channel, &begun);
    }
    let lost = rig.gist.counters().associations_overrun;
    assert!((20..30).contains(&lost), "{lost} of 40");
    rig.out.clear();
    let other = signalbox_gist::engine::ChannelId(5002);
    rig.accepted_of(other, Transport::Tcp, "10.1.7.9", None);
    rig.octets(other, &begun[..10_000]);
    rig.quiet();
    assert_eq!(rig.gist.counters().associations_overrun, lost);
}

/// A host that connects a thousand times a second leaves the rate and the table to others.
#[test]
fn a_source_that_opens_many_associations_leaves_others_theirs() {
    let mut config = tcp_only();
    (config.associations.max, config.associations.accept_rate) = (64, 100);
    let mut rig = Rig::with(config);
    for number in 1..=1000 {
        rig.accepted(2 * number, Transport::Tcp);
    }
    let limited = rig.gist.counters().associations_limited;
    assert!(limited >= 990, "{limited} of 1000");
    rig.out.clear();
    for number in 1..=20 {
        let address = format!("10.1.7.{number}");
        rig.accepted_of(signalbox_gist::engine::ChannelId(5000 + 2 * number), Transport::Tcp, &address, None);
    }
    rig.quiet();
}

/// Peers that do not read have many messages in their queues: a quarter of the room is for messages to others.
#[test]
fn a_peer_that_does_not_read_leaves_room_for_messages_to_others() {
    let mut config = tcp_only();
    (config.associations.max_queued, config.associations.max_queued_total) = (1 << 20, 64 * 1024);
    let mut rig = Rig::with(config);
    let channel = rig.associated();
    let other = rig.responding_associated();
    for channel in [channel, other] {
        rig.handle(Input::ChannelDrained { channel, unsent: 300_000 });
    }
    let mut refused = 0;
    for number in 0..200 {
        rig.numbered(100 + number, &[5; 400], own());
        while let Some((_, out)) = rig.out.pop_front() {
            assert!(matches!(out, Out::Status(_, MessageStatus::Failed(SendError::Overload))), "{out:?}");
            refused += 1;
        }
    }
    let queued = rig.held(channel).unwrap().queued_octets;
    assert!(refused > 0 && (48_000..=49_152).contains(&queued), "{refused}, {queued}");
    rig.reliably(b"slow", through().inverted());
    rig.quiet();
    assert!(rig.held(other).unwrap().queued_octets > 0);
    // It reads, and its messages leave their room to new ones.
    for _ in 0..2 {
        rig.handle(Input::ChannelDrained { channel, unsent: 0 });
        assert_eq!(rig.over().is(MessageType::DATA).channel, channel);
        rig.out.clear();
    }
    assert_eq!(rig.held(channel).unwrap().queued_octets, 0);
}
