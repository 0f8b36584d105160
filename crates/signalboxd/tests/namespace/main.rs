//! The daemon as it is, two of them on the real kernel, and signaling applications that use them over their
//! sockets. Needs root; run with `cargo test -p signalboxd --features namespace-tests`.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "tests")]

mod applications;
mod beacon;
mod clean;
mod decisions;
mod firewall;
mod matrix;
mod net;
mod printed;
mod routing;
mod signals;
mod user_requests;
mod waiting;
