//! The test protocol on real packets: one folder in the node, one in the daemon, and a line in each table.

use crate::net::row;

/// Beacons of `a` are taken out of forwarding at `r`, which passes them on, and answered at `b`.
#[tokio::test]
async fn a_protocol_of_one_folder_runs_on_real_packets() {
    let hosts = row("beacon", "[beacon]\nto = \"10.78.0.2\"\n").await;
    let [a, r, b] = &hosts;
    // The first ones may pass the router before its daemon runs.
    a.eventually("the router and the far end count it", async || {
        a.counter("signalbox_beacon_nodes", None).await == 2
    })
    .await;
    assert!(a.counter("signalbox_beacon_answers", None).await > 0);
    assert!(r.counter("signalbox_beacon_passed_on", None).await > 0);
    assert!(b.counter("signalbox_beacon_answered", None).await > 0);
}
