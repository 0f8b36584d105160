//! The protocols of a node. What belongs to one protocol alone stands in its folder: its conversions from
//! and to the types of the API, its gRPC service, and the rows of its tables. Its section of the configuration is in the crate
//! `signalbox-config`.
//!
//! A further protocol is one folder here, and one line in each of the tables of this file.

pub(crate) mod applications;
pub(crate) mod boomerang;
pub(crate) mod casp;
pub(crate) mod gist;
pub(crate) mod mapping;
pub(crate) mod natfw;
pub(crate) mod ping;
pub(crate) mod qos;
pub(crate) mod rsvp;

use anyhow::Result;

use crate::api::opener::Opener;
use crate::api::reserver::Reserver;
use crate::api::{self, Api};
use crate::services::{Route, Services};

/// The protocols that reserve along the path of a flow: `signalbox.v1.Reservations` serves them all.
pub(crate) const RESERVERS: &[&dyn Reserver] =
    &[&qos::reserve::Qos, &rsvp::reserve::Rsvp, &boomerang::reserve::Boomerang, &casp::reserve::Casp];

/// The protocols that open firewalls along the path of a flow: `signalbox.v1.Pinholes` serves them all.
pub(crate) const OPENERS: &[&dyn Opener] = &[&natfw::pinhole::Natfw, &casp::pinhole::Casp];

/// The gRPC services. A call of an unknown service goes to the first one, which refuses it.
pub(crate) fn services(api: &Api) -> Result<Services> {
    let routes = vec![
        Route::to(api::node::server(api)),
        Route::to(api::reservations::server(api)),
        Route::to(api::pinholes::server(api)),
        Route::to(gist::service::server(api)),
        Route::to(ping::service::server(api)),
        Route::to(qos::service::server(api)),
        Route::to(rsvp::service::server(api)),
        Route::to(boomerang::service::server(api)),
        Route::to(casp::service::server(api)),
        Route::to(mapping::service::server(api)),
        api::standard::health(),
        api::standard::reflection()?,
    ];
    Ok(Services::new(routes, api.roles.clone(), api.limits.clone()))
}
