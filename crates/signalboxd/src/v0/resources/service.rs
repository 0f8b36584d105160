//! What can be reserved here, over the control socket.

use signalbox_api::v0;
use signalbox_linux::traffic::Capabilities;
use tonic::Status;

use super::convert;
use crate::config::Config;
use crate::protocols;
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
        let reserves = protocols::sections(config).any(|section| section.reserves());
        Self { handle: handle.clone(), reserves }
    }

    /// The interfaces at which there is something to reserve.
    pub(crate) async fn interfaces(&self) -> Result<v0::ListInterfacesResponse, Status> {
        must_run(self.reserves, "this node reserves nothing: add [apps.qos] or [rsvp] to its configuration")?;
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
