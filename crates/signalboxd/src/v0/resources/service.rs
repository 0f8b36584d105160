//! What can be reserved here, over the control socket.

use signalbox_api::v0;
use signalbox_config::Config;
use signalbox_linux::traffic::Capabilities;
use tonic::Status;

use super::convert;
use crate::requests::{LoopHandle, must_run};

/// The calls that belong to resources; cheap to clone.
#[derive(Clone)]
pub(crate) struct ResourceService {
    handle: LoopHandle,
    reserves: bool,
}

impl ResourceService {
    /// Calls of a node of this configuration.
    pub(crate) fn new(handle: &LoopHandle, config: &Config) -> Self {
        Self { handle: handle.clone(), reserves: config.reserves() }
    }

    /// The interfaces at which there is something to reserve.
    pub(crate) async fn interfaces(&self) -> Result<v0::ListInterfacesResponse, Status> {
        must_run(self.reserves, "this node reserves nothing: add \"qos\" or \"rsvp\" to node.protocols")?;
        let query = self.handle.query(|view| {
            let kernel: Vec<Capabilities> =
                view.kernel.enforcer().into_iter().flat_map(|enforcer| enforcer.capabilities()).collect();
            let links = view.node.resources().links();
            let links = links
                .map(|link| convert::interface(&link, kernel.iter().find(|kernel| kernel.name == link.name)));
            links.collect()
        });
        Ok(v0::ListInterfacesResponse { interfaces: query.await? })
    }
}
