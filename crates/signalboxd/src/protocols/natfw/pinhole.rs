//! Passages of clients by the NATFW NSLP.

use std::net::IpAddr;

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_response::Event;
use signalbox_core::SessionId;
use signalbox_node::natfw::Command as NatfwCommand;
use signalbox_node::{Command, Node, ProtocolId};
use tonic::Status;

use super::{Passages, convert};
use crate::api::opener::{self, Opened, Opener};
use crate::api::pages::walked;
use crate::api::{Api, types};
use crate::view::View;

/// The NATFW application.
pub(crate) struct Natfw;

#[tonic::async_trait]
impl Opener for Natfw {
    fn id(&self) -> ProtocolId {
        ProtocolId::Natfw
    }

    async fn open(
        &self,
        api: &Api,
        open: &v1::PinholeOpen,
        _user: Option<u32>,
    ) -> Result<(Event, Box<dyn Opened>), Status> {
        opener::begin::<Passages>(api, convert::request(open)?, convert::event).await
    }

    fn list(
        &self,
        view: &mut View<'_>,
        from: u32,
        most: usize,
        address: Option<IpAddr>,
    ) -> (Vec<v1::Pinhole>, Option<u32>) {
        let (found, next) = walked(most, |take| {
            view.node.natfw()?.walk(view.now, from, |session| {
                let fits = types::has_end(address, [session.mri.src(), session.mri.dst()]);
                take(fits.then_some(session))
            })
        });
        let ids: Vec<_> = found.iter().map(|session| session.pinhole).collect();
        let seen = view.kernel.pinholes().map(|pinholes| pinholes.read(&ids)).unwrap_or_default();
        let seen = seen.into_iter().chain(core::iter::repeat(None));
        let rows = found.iter().zip(seen).map(|(session, seen)| convert::pinhole(session, seen));
        (rows.collect(), next)
    }

    fn delete(&self, node: &Node, session: SessionId) -> Option<Command> {
        let found = node.natfw()?.has_session(session);
        // No client has this identifier.
        found.then_some(Command::Natfw { id: 0, command: NatfwCommand::Delete(session) })
    }
}
