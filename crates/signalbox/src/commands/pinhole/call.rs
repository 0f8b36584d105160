//! The call of one passage.

use std::path::Path;

use anyhow::Result;
use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_request::Request;
use signalbox_api::v1::pinholes_client::PinholesClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::client::{self, answer, refusal};

/// The call of one passage. The daemon closes the passage when the call ends.
pub(crate) struct Call {
    requests: mpsc::Sender<v1::OpenPinholeRequest>,
    events: Streaming<v1::OpenPinholeResponse>,
}

impl Call {
    /// Opens the call.
    ///
    /// # Errors
    /// The daemon refused, or does not answer.
    pub(crate) async fn open(socket: &Path, open: v1::PinholeOpen) -> Result<Self> {
        let mut client = PinholesClient::new(client::channel(socket).await?);
        let (requests, stream) = mpsc::channel(2);
        // The channel has room for it.
        let _ = requests.try_send(v1::OpenPinholeRequest { request: Some(Request::Open(open)) });
        let events = answer(client.open_pinhole(ReceiverStream::new(stream)).await)?;
        Ok(Self { requests, events })
    }

    /// The next response; `None`: the daemon ended the call.
    ///
    /// # Errors
    /// The daemon refused, or is gone.
    pub(crate) async fn next(&mut self) -> Result<Option<v1::OpenPinholeResponse>> {
        self.events.message().await.map_err(refusal)
    }

    /// Asks for the end of the passage. If the daemon ended the call, its events show that.
    pub(crate) async fn release(&self) {
        let release = Request::Release(v1::PinholeRelease {});
        let _ = self.requests.send(v1::OpenPinholeRequest { request: Some(release) }).await;
    }
}
