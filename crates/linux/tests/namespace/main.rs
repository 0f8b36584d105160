//! On the real kernel: three namespaces of our own, host – router – host, and packets through them. Needs root;
//! run with `cargo test -p signalbox-linux --features namespace-tests`.

mod helper;
mod intercept;
mod network;
mod privileges;
mod routes;
mod send;
mod topology;
