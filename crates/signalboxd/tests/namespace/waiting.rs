//! A daemon without work waits.

use crate::net::row;

/// Turns of the event loop that one question of a client may cost.
const TURNS: u64 = 20;
const QUESTIONS: u64 = 50;

/// A node that takes no passing packets has no test of the interception: the event loop does not wait for one that never comes.
#[tokio::test]
async fn the_event_loop_of_a_host_waits() {
    for (label, settings) in [("waits", "kernel.intercept = false\n"), ("waitstoo", "")] {
        let [host, _router, _other] = row(label, settings).await;
        host.runs().await;
        let before = host.turns().await;
        for _ in 0..QUESTIONS {
            host.runs().await;
        }
        let turns = host.turns().await - before;
        assert!(turns < TURNS * QUESTIONS, "{turns} turns beside {QUESTIONS} questions, {settings}");
    }
}
