//! Tests on the real kernel: three namespaces of our own, host – router – host, and packets through them. They need
//! root; run them with `cargo test -p signalbox-linux --features namespace-tests`.

mod confine;
mod diagnosis;
mod echo;
mod helped;
mod helper;
mod intercept;
mod kernel_sctp;
mod network;
mod pinhole;
mod pinhole_cost;
mod pinhole_left;
mod pinhole_nat;
mod pinhole_rulesets;
mod privileges;
mod removed;
mod routes;
mod rsvp;
mod sctp;
mod selftest;
mod send;
mod stream_end;
mod stream_failures;
mod streams;
mod taken_over;
mod topology;
mod traffic;
mod traffic_bundles;
mod traffic_cost;
mod traffic_flows;
mod traffic_integrated;
mod traffic_ipsec;
mod traffic_kept;
mod traffic_signaling;
mod valid_mark;
mod vrf;
