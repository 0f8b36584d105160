//! The daemon's interfaces: gRPC messages, clients and servers as generated from `proto/signalbox/v1`:
//! `control.proto` for people and tools, `application.proto` for signaling applications in other processes.
//!
//! The daemon and the command convert to and from these types at their own edge; they are used nowhere else.
//! The generated code is checked in, so that a build needs no generator; `tools/protogen` makes it anew.

/// Where the daemon listens unless its configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/signalbox/signalboxd.sock";

/// Version 1 of the interface. Within a version fields and calls are only added.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::cast_possible_truncation,
    reason = "generated code"
)]
pub mod v1 {
    include!("generated/signalbox.v1.rs");
}
