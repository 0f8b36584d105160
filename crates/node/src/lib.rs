//! A node: the protocols of the suite behind one contract, that of [`signalbox_core::node`]. It does no I/O.
//!
//! Each protocol of the suite is a module below `protocols/`; any subset of them runs. A protocol of another crate runs
//! [beside](Extended) them, or alone ([`protocol`]).
//! [`Node`] gives the driver's inputs to the protocols, and passes requests and indications between GIST and its
//! signaling applications until there are none. The outputs that remain are the driver's: packets, streams, route
//! lookups, reservations in the kernel, and events for users.
//!
//! Signaling applications may also run in other processes ([`ApplicationCommand`]). GIST's messaging associations run
//! over TCP streams of the driver, alone or under TLS, and over SCTP. The secrets of TLS come from the system; all other
//! randomness comes from the seed of the node. The daemon, the simulator, a replay and the benchmarks drive the same
//! [`Node`].
//!
//! ```
//! use signalbox_core::node::{Input, Interface, NodeEngine, Output, Route};
//! use signalbox_core::{IfIndex, Time};
//! use signalbox_node::{Command, Config, Node, ping};
//!
//! // GIST and Ping with their defaults.
//! let mut node = Node::new(Config::default(), [7; 32])?;
//! let (now, ifindex, src) = (Time::ZERO, IfIndex(2), "192.0.2.1".parse()?);
//! let (name, addresses) = ("eth0".to_owned(), vec![src]);
//! let interface = Interface { ifindex, name, up: true, mtu: 1500, tunnel: false, addresses };
//! node.handle(now, Input::Interfaces(&[interface]));
//!
//! let request = ping::PingRequest::to("198.51.100.9".parse()?);
//! node.handle(now, Input::Command(Command::Ping { id: 1, command: ping::Command::Start(request) }));
//!
//! // The driver answers route lookups, and sends packets.
//! let route = Route { ifindex, src, gateway: None, mtu: 1500, local: false };
//! let mut sent = Vec::new();
//! loop {
//!     let lookup = match node.poll() {
//!         Some(Output::RouteLookup { id, .. }) => id,
//!         Some(Output::Transmit(packet)) => {
//!             sent.push(packet.dst.to_string());
//!             continue;
//!         }
//!         Some(_) => continue,
//!         None => break,
//!     };
//!     node.handle(now, Input::Route { id: lookup, result: Ok(route) });
//! }
//! assert_eq!(sent, ["198.51.100.9:270"], "GIST's Query looks for the next node on the path");
//! assert!(node.next_deadline().is_some(), "it is sent again if no Response comes");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod changes;
mod channels;
mod composition;
mod config;
pub mod fuzz;
mod groups;
mod node;
pub mod protocol;
mod protocols;
mod routes;
mod streams;
mod view;

pub use changes::{Change, KeptInKernel};
pub use channels::{ChannelConfig, Credentials, Tls};
pub use composition::{Composition, Extended, ExtendedCommand, ExtendedEvent, Place};
pub use config::ConfigError;
pub use node::Node;
pub use protocol::Size;
pub use protocols::{
    ApplicationCommand, ApplicationEvent, ApplicationView, Command, Config, Event, GistConfig, MappingConfig,
    ProtocolId, RegisterError, Suite,
};

/// The types of GIST that users of this crate need.
pub mod gist {
    pub use signalbox_gist::engine::{
        ANY_INTERFACE, AssociationConfig, AssociationState, AssociationView, ChannelId, Config, ConfigError,
        DirectionView, IngressFilter, Installation, OwnAddress, PeerChange, PeerView, PeeringPolicy,
        Registration, Role, RoutingState, SessionView, Transport, Validity,
    };

    /// The authorised peer database.
    pub mod apd {
        pub use signalbox_gist::apd::{Apd, BadDnsName, DnsName, Entry, Name, Scope, Verdict};
    }
}

/// The types of the transport protocols that users of this crate need.
pub mod transport {
    pub use signalbox_transport::sctp::Config as SctpConfig;
    pub use signalbox_transport::stream::{TlsConfig, TlsConfigError, Versions};
}

/// The types of the QoS application that users of this crate need.
pub mod qos {
    pub use signalbox_qos::engine::{
        Aggregate, Answer, CONFLICT, Command, Config, Failure, Flow, Granted, HopGrant, Priority, QosEvent,
        QosRequest, Quality, QueryRequest, Refusal, ReserveRequest, ReverseDirection, Role, Service,
        SessionView, StateKeeping,
    };
}

/// The types of the NATFW application that users of this crate need.
pub mod natfw {
    pub use signalbox_natfw::engine::{
        Code, Command, Config, ConfigError, ExposeRequest, Failure, Granted, HostEvent, HostRequest, Kind,
        Mapping, Middlebox, Natfw, NatfwEvent, OpenBits, OpenRequest, Options, Publish, Refusal, Role,
        SessionView, State, left_binding,
    };
}

/// The types of the front end for PCP and NAT-PMP that users of this crate need.
pub mod mapping {
    pub use signalbox_mapping::engine::{
        Command, Config, ConfigError, Event, Inside, Mapper, MappingId, MappingView, State,
    };
}

/// The types of the GIST-aware NAT gateway that users of this crate need.
pub mod gist_nat {
    pub use signalbox_gist::gateway::{BindingView, Config, ConfigError, Forward, Gateway, Purpose, State};
}

/// The types of RSVP that users of this crate need.
pub mod rsvp {
    pub use signalbox_rsvp::engine::{
        BlockadeView, Command, Config, ConfigError, FlowRequest, IntegrityKey, InterfaceConfig,
        InterfaceView, Refused, RequestView, ReservationView, ReserveRequest, RsvpEvent, Secret,
        SenderRequest, SenderView, SessionView, Staged, UpstreamView,
    };
    /// The types of refresh reduction, Hello and integrity on one hop.
    pub mod neighbor {
        pub use signalbox_rsvp::engine::neighbor::{
            Algorithm, AssociationView, AuthenticationFailure, AuthenticationFailures, Config, HelloConfig,
            HelloState, IntegrityConfig, Interface, KeyUse, OtherClock, Reduction, TYPES, Trust, View,
        };
    }
    pub use signalbox_rsvp::wire::{
        Adspec, EncodeError, ErrorCode, ErrorSpec, Filter, FlowSpec, Identity, Overrides, Preemption,
        RawAdspec, Selector, Session, SessionKind, Style, TrafficControlValue, UserError, elements,
        policy_data,
    };
}

/// The types of Boomerang that users of this crate need.
pub mod boomerang {
    pub use signalbox_boomerang::engine::{
        AggregateView, Aggregation, BoomerangEvent, Command, Config, ConfigError, Counters, DomainKey,
        FlowView, GuessView, Integrity, Reason, Refusal, Rejected, Request, ServiceParameters, SessionState,
        SessionView, Unreachable,
    };
    pub use signalbox_boomerang::wire::{Pass, Rates};
}

/// The types of CASP that users of this crate need.
pub mod casp {
    pub use crate::protocols::casp::{
        CaspConfig as Config, ClientEvent, Command, DNS, DnsConfig, Event, Lost, MIN_INTERVAL, OpenRequest,
        PassageEnd, PassageEvent, PassageFailure, PassageRefusal, PathAmount, PingRefusal, PingRequest,
        RegisterError, ReservationEvent, ReserveFailure, ReserveRefusal, ReserveRequest, Reserved,
        SeriesEvent, ServiceRate, is_domain,
    };
    pub use signalbox_casp::clients::natfw::{
        Config as NatfwConfig, NatfwPackets, NatfwScope, NatfwTerms, PassageView, Role as NatfwRole, RuleView,
    };
    pub use signalbox_casp::clients::qos::{Config as QosConfig, Segment as QosSegment};
    pub use signalbox_casp::engine::{
        ArrivalOf, BranchView, Casp, Config as EngineConfig, ConfigError, ConnectionView, IndicationOf,
        Mechanism, OwnedIndication, OwnedRequest, PeerView, Refused, RequestOf, SendRequestOf, SessionView,
        Transport, VerdictOf,
    };
    pub use signalbox_casp::wire::FlowId;
    pub use signalbox_casp::wire::natfw::NatfwStatus;
    pub use signalbox_casp::wire::ping::Entry;
    pub use signalbox_casp::wire::qos::QosErrorCode;
}

/// The types of admission control that users of this crate need.
pub mod resources {
    pub use signalbox_resources::{Cause, Config, ConfigError, GrantId, Rate, Refusal, Resources, Secret};
    pub use signalbox_resources::{PassageRequest, opening};
    pub use signalbox_resources::{config, decision, intserv, refusal, request, token, units, view};
}

/// The types of the test protocol.
#[cfg(feature = "test-protocol")]
pub mod beacon {
    pub use crate::protocols::beacon::{Command, Config, Event};
}

/// The types of the Ping application that users of this crate need.
pub mod ping {
    pub use signalbox_ping::engine::{
        Command, Config, Format, Hop, LostReason, MIN_INTERVAL, PingEvent, PingRequest, Refusal, Reply,
    };
}
