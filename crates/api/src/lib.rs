//! The daemon's interfaces: gRPC messages, clients and servers as generated from `proto/signalbox/v1`:
//! `control.proto` for people and tools, `application.proto` for signaling applications in other processes, `rsvp.proto`
//! for RSVP sessions.
//!
//! The daemon and the command convert to and from these types at their own edge; no other crate uses them.
//! The generated code is checked in, so that a build needs no generator; `make generated` runs the generator after a
//! change of a `.proto` file.
//!
//! A client connects to the daemon's Unix socket and makes calls:
//!
//! ```no_run
//! use signalbox_api::v1;
//! use signalbox_api::v1::control_client::ControlClient;
//! use tonic::transport::Endpoint;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let socket = format!("unix://{}", signalbox_api::DEFAULT_SOCKET);
//! let channel = Endpoint::from_shared(socket)?.connect().await?;
//! let mut control = ControlClient::new(channel);
//! let status = control.get_status(v1::GetStatusRequest {}).await?.into_inner();
//! assert!(!status.node.is_empty());
//! # Ok(())
//! # }
//! ```

/// Where the daemon listens unless its configuration names another path.
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
