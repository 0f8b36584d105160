//! RSVP (RFC 2205, processing rules of RFC 2209) and its family: integrated services (RFC 2210), IPsec flows (2207),
//! integrity (2747, 3097), policy data (2750), refresh reduction (2961), Hello (3209), partial preemption (4495).
//!
//! [`wire`] parses and composes messages, [`error`] has their faults, [`client`] is a diagnostic client. The node itself,
//! [`engine`], is behind the feature `engine`; a dissector leaves it off.
//!
//! An application announces a sender, and the engine sends its Path as soon as it has the route:
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use signalbox_core::node::{Interface, Route};
//! use signalbox_core::{IfIndex, Time};
//! use signalbox_resources::{Resources, intserv::TSpec};
//! use signalbox_rsvp::engine::{Command, Config, Input, Output, Rsvp, SenderRequest};
//! use signalbox_rsvp::wire::{Filter, Selector, Session, SessionKind};
//!
//! let eth0 = IfIndex(1);
//! let own = "192.0.2.1".parse().unwrap();
//! let interfaces = [Interface {
//!     ifindex: eth0,
//!     name: "eth0".to_owned(),
//!     up: true,
//!     mtu: 1500,
//!     tunnel: false,
//!     addresses: vec![own],
//! }];
//! let links = signalbox_resources::Config::of_link("*", "10mbit".parse().unwrap());
//! let mut resources = Resources::new(links, 0, [1; 32]).unwrap();
//! resources.interfaces(&interfaces);
//!
//! let mut rsvp = Rsvp::new(Config::default(), [2; 32]).unwrap();
//! let now = Time::from_secs(1);
//! let dest = "198.51.100.7".parse().unwrap();
//! let session = Session { dest, protocol: 17, kind: SessionKind::Ports, port: 5004 };
//! let template = Filter { src: own, selector: Selector::Port(4000) };
//! let sender = SenderRequest::new(template, TSpec::new(10_000.0, 3000.0, f32::INFINITY, 64, 1500).unwrap());
//! rsvp.handle(now, Input::Interfaces(&interfaces), &mut resources);
//! for command in [Command::Session(session), Command::Sender(sender)] {
//!     rsvp.handle(now, Input::Command { id: 1, command }, &mut resources);
//! }
//! let mut lookup = None;
//! while let Some(output) = rsvp.poll() {
//!     if let Output::RouteLookup { id, .. } = output {
//!         lookup = Some(id);
//!     }
//! }
//! let route = Route { ifindex: eth0, src: own, gateway: None, mtu: 1500, local: false };
//! rsvp.handle(now, Input::Route { id: lookup.unwrap(), result: Ok(route) }, &mut resources);
//! assert_eq!(rsvp.counters().paths_sent, 1);
//! assert!(rsvp.poll().is_some(), "the Path");
//! # }
//! ```

#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod client;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
pub mod fuzz;
pub mod wire;
