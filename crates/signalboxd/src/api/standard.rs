//! Services that tools expect of every gRPC server: its health, and the descriptors of its services.

use anyhow::{Context as _, Result};
use tonic_reflection::server::Builder;

use crate::services::Route;

/// `grpc.health.v1.Health`: the daemon as a whole serves as long as it answers.
pub(crate) fn health() -> Route {
    let (_, server) = tonic_health::server::health_reporter();
    Route::to(server)
}

/// `grpc.reflection.v1.ServerReflection`, by which `grpcurl` and others call without the proto files.
pub(crate) fn reflection() -> Result<Route> {
    let server = Builder::configure()
        .register_encoded_file_descriptor_set(signalbox_api::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .context("cannot describe the services")?;
    Ok(Route::to(server))
}
