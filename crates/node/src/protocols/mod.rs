//! The protocols that a node can run. A new one takes its `mod` line and its line in the table here.

#[macro_use]
mod table;
mod instances;

#[cfg(feature = "test-protocol")]
pub(crate) mod beacon;
mod boomerang;
pub(crate) mod casp;
mod gist;
mod gist_nat;
mod natfw;
mod ping;
mod qos;
mod rsvp;

pub use gist::{ApplicationCommand, ApplicationEvent, ApplicationView, GistConfig, RegisterError};

// Module, variant, in words. Outputs are taken in this order.
protocols! {
    gist: Gist, "GIST with its messaging associations (RFC 5971)";
    ping: Ping, "the Ping application";
    qos: Qos, "the QoS application (RFC 5974)";
    rsvp: Rsvp, "RSVP (RFC 2205)";
    boomerang: Boomerang, "Boomerang (draft-bergkvist-boomerang-spec-00)";
    natfw: Natfw, "the NATFW application (RFC 5973)";
    gist_nat: GistNat, "the GIST-aware NAT gateway (RFC 5971 section 7.2)";
    casp: Casp, "CASP (draft-schulzrinne-nsis-casp-01)";
    #[cfg(feature = "test-protocol")] beacon: Beacon, "the test protocol";
}
