//! Signals that come while the daemon starts.

use std::time::Duration;

use crate::net::{Host, pair};

/// Starts a daemon that has ended, until its control socket is there.
async fn begin(host: &mut Host) {
    let socket = host.directory.join("sock");
    // A daemon that gave its rights up cannot remove it.
    let _ = std::fs::remove_file(&socket);
    host.start_again();
    while !socket.exists() {
        assert!(host.signal("0"), "it starts");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// (T20) From the moment that the control socket is there, no signal ends the process where it comes: the daemon opens sockets, rules and
/// queues then, which would stay in the kernel. SIGHUP changes nothing, and SIGTERM ends the daemon in order.
#[tokio::test]
async fn a_signal_during_the_start_leaves_nothing_in_the_kernel() {
    let [mut host, _other] = pair("signals").await;
    for _ in 0..3 {
        host.stop();
        begin(&mut host).await;
        while host.connect().await.is_none() {
            assert!(host.signal("HUP"), "SIGHUP ended it");
        }
    }
    host.stop();
    begin(&mut host).await;
    host.stop();
}
