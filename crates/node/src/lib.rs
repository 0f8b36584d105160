//! The sans-IO whole of a node: GIST with its signaling applications and RSVP behind one door, the contract of
//! [`signalbox_core::node`].
//!
//! [`Node`] passes what applications ask to GIST and what GIST tells to applications, until neither has
//! anything left to say, and gives out what remains: datagrams, streams, route lookups, and events for users.
//! Applications may also live outside, in other processes ([`ApplicationCommand`]). GIST's messaging associations run over the driver's TCP streams, alone or under TLS, and over SCTP; the
//! secrets of TLS come from the system, everything else that is random from the node's seed. The daemon, the simulator, a replay and a benchmark all drive the same [`Node`].

mod config;
mod node;
mod protocol;
mod protocols;
mod routes;
mod view;

pub use config::ConfigError;
pub use node::Node;
pub use protocols::{
    ApplicationCommand, ApplicationEvent, ApplicationView, ChannelConfig, Command, Config, Credentials,
    Event, GistConfig, ProtocolId, RegisterError, Tls,
};
pub use view::Counter;

/// What this crate's users need of GIST.
pub mod gist {
    pub use signalbox_gist::engine::{
        AssociationConfig, AssociationView, ChannelId, Config, ConfigError, DirectionView, IngressFilter,
        Installation, PeerView, PeeringPolicy, Registration, SessionView, Transport, Validity,
    };

    /// The authorised peer database.
    pub mod apd {
        pub use signalbox_gist::apd::{Apd, BadDnsName, DnsName, Entry, Name, Scope, Verdict};
    }
}

/// What this crate's users need of the transport protocols.
pub mod transport {
    pub use signalbox_transport::sctp::Config as SctpConfig;
    pub use signalbox_transport::stream::{TlsConfig, TlsConfigError, Versions};
}

/// What this crate's users need of the QoS application.
pub mod qos {
    pub use signalbox_qos::engine::{
        Aggregate, Answer, Command, Config, Failure, Flow, Granted, HopGrant, Priority, QosEvent, QosRequest,
        Quality, QueryRequest, Refusal, ReserveRequest, ReverseDirection, Role, Service, SessionView,
        StateKeeping,
    };
}

/// What this crate's users need of RSVP.
pub mod rsvp {
    pub use signalbox_rsvp::engine::{
        Command, Config, ConfigError, FlowRequest, IntegrityKey, InterfaceConfig, Refused, ReservationView,
        ReserveRequest, RsvpEvent, Secret, SenderRequest, SenderView, SessionView, Staged,
    };
    /// What neighbours do for each other on one hop.
    pub mod neighbour {
        pub use signalbox_rsvp::engine::neighbour::{
            Algorithm, AssociationView, AuthenticationFailure, AuthenticationFailures, Config, HelloConfig,
            IntegrityConfig, Interface, KeyUse, Reduction, View,
        };
    }
    pub use signalbox_rsvp::wire::{
        Adspec, EncodeError, ErrorSpec, Filter, FlowSpec, Identity, Overrides, Preemption, RawAdspec,
        Selector, Session, SessionKind, Style, elements, policy_data,
    };
}

/// What this crate's users need of admission control.
pub mod resources {
    pub use signalbox_resources::{Config, ConfigError, GrantId, Rate, Resources};
    pub use signalbox_resources::{config, intserv, token, units, view};
}

/// What this crate's users need of the Ping application.
pub mod ping {
    pub use signalbox_ping::engine::{
        Command, Config, Hop, LostReason, MIN_INTERVAL, PingEvent, PingRequest, Refusal, Reply,
    };
}
