//! GIST's tables over the control socket.

use std::net::IpAddr;

use signalbox_api::v0;
use signalbox_config::Config;
use signalbox_node::gist::SessionView;
use tonic::Status;

use super::convert;
use crate::requests::{LoopHandle, Replies, must_run};
use crate::view::portion;

/// The calls that belong to GIST; cheap to clone.
#[derive(Clone)]
pub(crate) struct GistTables {
    handle: LoopHandle,
    running: bool,
}

impl GistTables {
    /// Calls of a node of this configuration.
    pub(crate) fn new(handle: &LoopHandle, config: &Config) -> Self {
        Self { handle: handle.clone(), running: config.node.runs("gist") }
    }

    fn must_run(&self) -> Result<(), Status> {
        must_run(
            self.running,
            "this node does not run GIST: add \"gist\" to node.protocols in its configuration",
        )
    }

    /// The sessions that fit the request.
    pub(crate) fn sessions(&self, request: &v0::ListSessionsRequest) -> Result<Replies<v0::Session>, Status> {
        self.must_run()?;
        let filter = convert::session_filter(request)?;
        Ok(self.handle.table(request.limit, move |view, from| {
            portion(view.node.sessions(), from, |row| filter.fits(row), convert::session)
        }))
    }

    /// The peers.
    pub(crate) fn peers(&self) -> Result<Replies<v0::Peer>, Status> {
        self.must_run()?;
        Ok(self.handle.table(0, |view, from| portion(view.node.peers(), from, |_| true, convert::peer)))
    }

    /// The messaging associations.
    pub(crate) fn associations(&self) -> Result<Replies<v0::Association>, Status> {
        self.must_run()?;
        Ok(self
            .handle
            .table(0, |view, from| portion(view.node.associations(), from, |_| true, convert::association)))
    }
}

/// Which sessions are wanted; all conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SessionFilter {
    /// First hexadecimal digits of the identifier, in lower case.
    pub(super) prefix: String,
    /// Signaling application.
    pub(super) nslp: Option<u16>,
    /// Source or destination of the flow.
    pub(super) address: Option<IpAddr>,
}

impl SessionFilter {
    fn fits(&self, row: &SessionView<'_>) -> bool {
        self.nslp.is_none_or(|nslp| row.nslp.0 == nslp)
            && self.address.is_none_or(|address| row.mri.src() == address || row.mri.dst() == address)
            && (self.prefix.is_empty() || row.session.to_string().starts_with(&self.prefix))
    }
}
