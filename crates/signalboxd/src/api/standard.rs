//! Services that tools expect of every gRPC server: its health, and the descriptors of its services.

use anyhow::{Context as _, Result};
use tonic_reflection::server::Builder;

use crate::services::Route;

/// `grpc.health.v1.Health`: the daemon as a whole serves as long as it answers.
pub(crate) fn health() -> Route {
    let (_, server) = tonic_health::server::health_reporter();
    Route::to(server)
}

/// `grpc.reflection.v1.ServerReflection`, by which `grpcurl` and others call without the proto files. The details of errors are
/// described too, so that such tools show them.
pub(crate) fn reflection() -> Result<Route> {
    let server = Builder::configure()
        .register_encoded_file_descriptor_set(signalbox_api::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .context("cannot describe the services")?;
    Ok(Route::to(server))
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use prost_reflect::prost::Message as _;
    use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    use crate::rig::{ALL, Rig};

    /// The files that reflection gives for a symbol, or for the name of a file.
    async fn files(rig: &Rig, asked: MessageRequest) -> Vec<FileDescriptorProto> {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(asked.clone()) };
        let mut client = ServerReflectionClient::new(rig.channel.clone());
        let answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
        let answer = answers.into_inner().message().await.unwrap().unwrap();
        let Some(MessageResponse::FileDescriptorResponse(found)) = answer.message_response else {
            panic!("{asked:?} is not described")
        };
        let files = found.file_descriptor_proto.iter();
        files.map(|file| FileDescriptorProto::decode(file.as_slice()).unwrap()).collect()
    }

    /// A tool that knows nothing of `google.rpc` asks as this test does, and shows the details of an error.
    #[tokio::test]
    async fn the_details_of_errors_are_described_with_all_that_they_import() {
        let rig = Rig::new(ALL).await;
        for detail in ["google.rpc.Status", "google.rpc.ErrorInfo", "google.rpc.BadRequest"] {
            let mut file = files(&rig, MessageRequest::FileContainingSymbol(detail.to_owned())).await;
            let mut at = 0;
            while at < file.len() {
                for import in file[at].dependency.clone() {
                    if !file.iter().any(|one| one.name() == import) {
                        file.extend(files(&rig, MessageRequest::FileByFilename(import)).await);
                    }
                }
                at += 1;
            }
            let pool = DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file }).unwrap();
            assert!(pool.get_message_by_name(detail).is_some(), "{detail}");
        }
    }
}
