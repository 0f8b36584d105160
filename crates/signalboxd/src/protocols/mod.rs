//! The protocols of a node. What belongs to one protocol alone stands in its folder: its section of the
//! configuration, its conversions from and to the types of the API, its gRPC service, and the rows of its tables.
//!
//! A further protocol is one folder here, and one line in each of the tables of this file.

pub(crate) mod applications;
#[cfg(feature = "test-protocol")]
pub(crate) mod beacon;
pub(crate) mod gist;
pub(crate) mod ping;
pub(crate) mod qos;
pub(crate) mod rsvp;

use signalbox_api::v0::control_server::ControlServer;

use crate::api::reserver::Reserver;
use crate::api::{self, Api};
use crate::config::Config;
use crate::config::section::{Present, Section};
use crate::services::{Route, Services};
use crate::v0;

/// The protocols that reserve along the path of a flow: `signalbox.v1.Reservations` serves them all.
pub(crate) const RESERVERS: &[&dyn Reserver] = &[&qos::reserve::Qos, &rsvp::reserve::Rsvp];

/// The gRPC services. A call of an unknown service goes to the first one, which refuses it.
pub(crate) fn services(api: &Api, config: &Config) -> Services {
    Services::new(vec![
        Route::to(api::node::server(api)),
        Route::to(api::reservations::server(api)),
        Route::to(gist::service::server(api)),
        Route::to(ping::service::server(api)),
        Route::to(qos::service::server(api)),
        Route::to(rsvp::service::server(api)),
        Route::to(ControlServer::new(v0::control::Control::new(&api.handle, config))),
        Route::to(v0::applications::service::server(&api.handle, config)),
        Route::to(v0::rsvp::service::server(&api.handle, config)),
    ])
}

/// Sections of the configuration that belong to protocols, by way of [`Present::section`] or
/// [`Present::section_mut`].
macro_rules! sections {
    ($config:ident, $get:ident) => {
        [
            $config.gist.$get(),
            $config.apps.ping.$get(),
            $config.apps.qos.$get(),
            $config.rsvp.$get(),
            #[cfg(feature = "test-protocol")]
            $config.beacon.$get(),
        ]
    };
}

/// The sections of the protocols that run.
pub(crate) fn sections(config: &Config) -> impl Iterator<Item = &dyn Section> {
    sections!(config, section).into_iter().flatten().filter(|section| section.enabled())
}

/// The sections of the protocols that run, to be completed from the files that they name.
pub(crate) fn sections_mut(config: &mut Config) -> impl Iterator<Item = &mut dyn Section> {
    sections!(config, section_mut).into_iter().flatten().filter(|section| section.enabled())
}
