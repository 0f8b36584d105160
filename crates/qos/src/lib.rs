//! QoS as a signaling application: QoS NSLP (RFC 5974) and the QSPEC that it carries (RFC 5975, RFC 5976).
//!
//! [`wire`] is the octets ([`error`]: what can be wrong with them). [`engine`] and [`qspec`] (feature `engine`) are what
//! a node does with them. The engine uses GIST by the data types of [`signalbox_core::service`] only, so it runs over any
//! implementation of that interface.
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use signalbox_core::node::{Interface, Route};
//! use signalbox_core::service::Request;
//! use signalbox_core::{IfIndex, Time};
//! use signalbox_qos::engine::{Command, Config, Flow, Input, Output, Qos, QosEvent, QosRequest, ReserveRequest};
//! use signalbox_resources::Resources;
//!
//! let links = signalbox_resources::Config::of_link("eth1", "10mbit".parse().unwrap());
//! let mut resources = Resources::new(links, 0, [1; 32]).unwrap();
//! let address = [192, 0, 2, 1].into();
//! let eth1 = Interface {
//!     ifindex: IfIndex(2),
//!     name: "eth1".into(),
//!     up: true,
//!     mtu: 1500,
//!     tunnel: false,
//!     addresses: vec![address],
//! };
//! resources.interfaces(&[eth1]);
//!
//! let mut qos = Qos::new(Config::default(), [7; 32]);
//! let flow = Flow::to([203, 0, 113, 9].into());
//! let command = Command::Reserve(Box::new(ReserveRequest::new(flow, QosRequest::rate(125_000))));
//! qos.handle(Time::ZERO, Input::Command { id: 1, command }, &mut resources);
//! let Some(Output::RouteLookup { id, .. }) = qos.poll() else { panic!("no route is asked for") };
//! let result = Ok(Route { ifindex: IfIndex(2), src: address, gateway: None, mtu: 1500, local: false });
//! qos.handle(Time::ZERO, Input::Route { id, result }, &mut resources);
//!
//! let started = qos.poll();
//! assert!(matches!(started, Some(Output::Event { id: 1, event: QosEvent::Started { .. } })));
//! // The rate is reserved at this node's own link, and GIST is asked to send the RESERVE.
//! assert_eq!(resources.reservations().count(), 1);
//! assert!(matches!(qos.poll(), Some(Output::Request(Request::SendMessage(_)))));
//! # }
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg_attr(not(test), expect(clippy::panic, reason = "a fuzz target fails by a panic"))]
pub mod fuzz;
#[cfg(feature = "engine")]
pub mod qspec;
pub mod wire;

#[cfg(feature = "engine")]
pub use engine::Counters;
