//! The daemon's interfaces: gRPC messages, clients and servers as generated from the proto files.
//!
//! `signalbox.v1` has what all protocols share: the node, reservations, and common types. Each protocol has a package
//! of its own. The daemon and the command convert to and from these types at their own edge; no other crate uses them.
//! The generated code is checked in, so that a build needs no generator; `make generated` runs the generator after a
//! change of a `.proto` file.
//!
#![doc = include_str!("../README.md")]

pub mod openmetrics;
pub mod retry;

/// Where the daemon listens unless its configuration names another path.
pub const DEFAULT_SOCKET: &str = "/run/signalbox/signalboxd.sock";

/// The descriptors of all packages, an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// A module with generated code.
macro_rules! package {
    ($(#[$doc:meta])* $module:ident, $file:literal) => {
        $(#[$doc])*
        #[allow(
            missing_docs,
            unreachable_pub,
            unused_qualifications,
            clippy::cast_possible_truncation,
            clippy::large_enum_variant,
            reason = "generated code"
        )]
        pub mod $module {
            include!(concat!("generated/", $file));
        }
    };
}

package!(
    /// What all protocols share.
    v1, "signalbox.v1.rs"
);

/// GIST (RFC 5971): signaling applications in other processes, and the tables of the node.
pub mod gist {
    package!(
        /// Version 1.
        v1, "signalbox.gist.v1.rs"
    );
}

/// Boomerang (draft-bergkvist-boomerang-spec-00).
pub mod boomerang {
    package!(
        /// Version 1.
        v1, "signalbox.boomerang.v1.rs"
    );
}

/// CASP (draft-schulzrinne-nsis-casp-01).
pub mod casp {
    package!(
        /// Version 1.
        v1, "signalbox.casp.v1.rs"
    );
}

/// Ports that programs ask for by PCP (RFC 6887) and NAT-PMP (RFC 6886).
pub mod mapping {
    package!(
        /// Version 1.
        v1, "signalbox.mapping.v1.rs"
    );
}

/// The Ping NSLP.
pub mod ping {
    package!(
        /// Version 1.
        v1, "signalbox.ping.v1.rs"
    );
}

/// The QoS NSLP (RFC 5974).
pub mod qos {
    package!(
        /// Version 1.
        v1, "signalbox.qos.v1.rs"
    );
}

/// RSVP (RFC 2205).
pub mod rsvp {
    package!(
        /// Version 1.
        v1, "signalbox.rsvp.v1.rs"
    );
}
