//! Pings over the control socket.

use signalbox_api::v0;
use signalbox_config::Config;
use signalbox_node::ping::Command;
use tonic::Status;

use super::convert;
use crate::protocols::ping::Pings;
use crate::requests::{LoopHandle, Replies, must_run};

/// The calls that belong to Ping; cheap to clone.
#[derive(Clone)]
pub(crate) struct PingService {
    handle: LoopHandle,
    running: bool,
}

impl PingService {
    /// Calls of a node of this configuration.
    pub(crate) fn new(handle: &LoopHandle, config: &Config) -> Self {
        Self { handle: handle.clone(), running: config.node.runs("ping") }
    }

    /// Starts a ping, which stops when the stream of its events is dropped.
    pub(crate) async fn ping(&self, request: v0::PingRequest) -> Result<Replies<v0::PingEvent>, Status> {
        must_run(
            self.running,
            "this node does not run the Ping application: add \"ping\" to node.protocols in its configuration",
        )?;
        let request = convert::ping_request(&request)?;
        let opened = self.handle.open::<Pings>(Command::Start(request)).await?;
        Ok(opened.replies(convert::ping_event))
    }
}
