//! A gateway allocates nothing for its messages in steady state.

use signalbox_gist::gateway::{Config, Input, Output};

use crate::rig::*;

const FLOWS: u16 = 50;
const VALIDITY: u64 = 30;

/// A gateway with a kernel that makes each binding at once.
struct Node {
    rig: Rig,
    sent: usize,
}

impl Node {
    fn take(&mut self, via: &Via, payload: &[u8]) {
        let Gate { gateway, now, .. } = &mut self.rig.0;
        gateway.handle(*now, Input::Datagram(via.packet(payload)));
        loop {
            let answer = match gateway.poll() {
                Some(Output::Transmit(_)) => {
                    self.sent += 1;
                    continue;
                }
                Some(Output::Open { id, .. }) => Input::Opened { id, result: Ok(()) },
                Some(Output::Find { id, .. }) => Input::Found { id, translation: None },
                Some(Output::Close { .. }) => continue,
                None => break,
            };
            gateway.handle(*now, answer);
        }
    }

    fn take_all(&mut self, messages: &[(Via, Vec<u8>)]) {
        for (via, payload) in messages {
            self.take(via, payload);
        }
    }
}

/// The Query of each flow of the host inside.
fn queries() -> Vec<(Via, Vec<u8>)> {
    let query = |number| encode(&query(udp((HOST, 5000 + number), (FAR, 6000)), HOST));
    (0..FLOWS).map(|number| (q_mode(INSIDE, at(HOST, 270), FAR), query(number))).collect()
}

/// The Response to each Query, as it left.
fn responses(rig: &mut Rig, queries: &[(Via, Vec<u8>)]) -> Vec<(Via, Vec<u8>)> {
    let answer = |(via, payload): &(Via, Vec<u8>)| {
        rig.packet(via, payload);
        let sent = rig.sent();
        (Via::normal(OUTSIDE, at(FAR, 270), sent.src), encode(&response(&sent.message(), FAR)))
    };
    queries.iter().map(answer).collect()
}

/// Refreshing Queries and their Responses allocate nothing, and Queries of new flows nothing either, when tables and buffers
/// have grown to their size.
#[test]
fn messages_allocate_nothing() {
    let rig = Rig::with(Config { queries_of_source: 0, ..config() });
    let mut node = Node { rig, sent: 0 };
    let queries = queries();
    let first = allocation_counter::measure(|| node.take_all(&queries));
    assert!(first.count_total > 0, "they are counted");
    for turn in 1..4 {
        node.rig.until(turn * VALIDITY / 2);
        let responses = responses(&mut node.rig, &queries);
        node.take_all(&responses);
    }
    let responses = responses(&mut node.rig, &queries);
    node.sent = 0;
    let refreshed = allocation_counter::measure(|| {
        for _ in 0..10 {
            node.take_all(&queries);
            node.take_all(&responses);
        }
    });
    assert_eq!((node.sent, refreshed.count_total), (usize::from(FLOWS) * 20, 0));
    node.rig.until(1000);
    assert_eq!(node.rig.gateway.tables()[0].size, 0);
    node.sent = 0;
    let new = allocation_counter::measure(|| node.take_all(&queries));
    assert_eq!((node.sent, new.count_total), (usize::from(FLOWS), 0));
    assert!(node.rig.gateway.tables()[0].size >= u32::from(FLOWS));
}
