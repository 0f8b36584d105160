//! The questions to the daemon. They are those of `signalbox show`.

use std::time::Duration;

use anyhow::{Result, anyhow};
use signalbox_api::boomerang::v1::boomerang_client::BoomerangClient;
use signalbox_api::casp::v1::casp_client::CaspClient;
use signalbox_api::gist::v1::gist_client::GistClient;
use signalbox_api::qos::v1::qos_client::QosClient;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_api::v1::pinholes_client::PinholesClient;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::{boomerang, casp, gist, qos, rsvp, v1};
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use super::entry::{Entry, Tab};
use super::model::{Answers, Listed};
use crate::client::{answer, refusal};
use crate::print::now_unix_us;
use crate::print::table::Page;

/// Most entries of a list: more are no help on a screen.
const ROWS: u32 = 10_000;
/// A daemon that does not answer for so long counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for all that is on the screen with this list. `start`: when the command began.
///
/// # Errors
/// The daemon does not answer, or refuses.
pub(super) async fn ask(channel: Channel, tab: Tab, start: Instant) -> Result<Answers> {
    let all = all(channel, tab, start);
    timeout(PATIENCE, all).await.map_err(|_| anyhow!("no answer in {} s", PATIENCE.as_secs()))?
}

async fn all(channel: Channel, tab: Tab, start: Instant) -> Result<Answers> {
    let mut client = NodeClient::new(channel.clone());
    let node = answer(client.get_node(v1::GetNodeRequest {}).await)?;
    let links = rows(client.list_interfaces(v1::ListInterfacesRequest::default()).await).await?;
    let at = start.elapsed();
    let name_prefixes =
        ["signalbox_messages_received", "signalbox_messages_sent"].map(str::to_owned).to_vec();
    let messages = rows(client.list_metrics(v1::ListMetricsRequest { name_prefixes }).await).await?;
    let runs = |wanted: v1::Protocol| node.protocols.iter().any(|one| one.protocol() == wanted);
    let mut entries = match tab {
        Tab::Links => Vec::new(),
        Tab::Reservations => reservations(channel).await?,
        Tab::Passages => passages(channel).await?,
        Tab::Sessions => sessions(channel, runs).await?,
        Tab::Neighbors => neighbors(channel, runs).await?,
        Tab::Decisions => decisions(client).await?,
    };
    let more = entries.len() > ROWS as usize;
    entries.truncate(ROWS as usize);
    let list = Listed { tab: Some(tab), entries, more };
    Ok(Answers { at, now_unix_us: now_unix_us(), node, links, messages, list })
}

/// All rows of a list. A protocol that the daemon does not run has no rows.
async fn rows<P: Page>(pages: Result<Response<Streaming<P>>, Status>) -> Result<Vec<P::Row>> {
    let mut pages = match pages {
        Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::Unimplemented) => {
            return Ok(Vec::new());
        }
        pages => answer(pages)?,
    };
    let mut rows = Vec::new();
    while let Some(page) = pages.message().await.map_err(refusal)? {
        rows.extend(page.rows());
    }
    Ok(rows)
}

/// One row more than there is room for: then it is known that there are more.
const fn limit() -> Option<u32> {
    Some(ROWS + 1)
}

async fn reservations(channel: Channel) -> Result<Vec<Entry>> {
    let request = v1::ListReservationsRequest { limit: limit(), ..Default::default() };
    let list = rows(ReservationsClient::new(channel).list_reservations(request).await).await?;
    Ok(list.into_iter().map(Entry::Reservation).collect())
}

async fn passages(channel: Channel) -> Result<Vec<Entry>> {
    let request = v1::ListPinholesRequest { limit: limit(), ..Default::default() };
    let list = rows(PinholesClient::new(channel).list_pinholes(request).await).await?;
    Ok(list.into_iter().map(Entry::Passage).collect())
}

async fn decisions(mut client: NodeClient<Channel>) -> Result<Vec<Entry>> {
    let mut pages = answer(client.list_decisions(v1::ListDecisionsRequest::default()).await)?;
    let mut list = Vec::new();
    while let Some(page) = pages.message().await.map_err(refusal)? {
        list.extend(page.decisions.into_iter().map(Entry::Decision));
    }
    // The daemon lists the oldest first.
    list.reverse();
    Ok(list)
}

async fn sessions(channel: Channel, runs: impl Fn(v1::Protocol) -> bool) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    if runs(v1::Protocol::Gist) {
        let request = gist::v1::ListSessionsRequest { limit: limit(), ..Default::default() };
        let list = rows(GistClient::new(channel.clone()).list_sessions(request).await).await?;
        all.extend(list.into_iter().map(Entry::GistSession));
    }
    if runs(v1::Protocol::Qos) {
        let request = qos::v1::ListSessionsRequest { limit: limit(), ..Default::default() };
        let list = rows(QosClient::new(channel.clone()).list_sessions(request).await).await?;
        all.extend(list.into_iter().map(Entry::QosSession));
    }
    if runs(v1::Protocol::Rsvp) {
        let request = rsvp::v1::ListSessionsRequest { limit: limit(), ..Default::default() };
        let list = rows(RsvpClient::new(channel.clone()).list_sessions(request).await).await?;
        all.extend(list.into_iter().map(Entry::RsvpSession));
    }
    if runs(v1::Protocol::Boomerang) {
        let request = boomerang::v1::ListFlowsRequest { limit: limit(), ..Default::default() };
        let list = rows(BoomerangClient::new(channel.clone()).list_flows(request).await).await?;
        all.extend(list.into_iter().map(Entry::BoomerangFlow));
    }
    if runs(v1::Protocol::Casp) {
        let request = casp::v1::ListSessionsRequest { limit: limit(), ..Default::default() };
        let list = rows(CaspClient::new(channel).list_sessions(request).await).await?;
        all.extend(list.into_iter().map(Entry::CaspSession));
    }
    Ok(all)
}

async fn neighbors(channel: Channel, runs: impl Fn(v1::Protocol) -> bool) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    if runs(v1::Protocol::Gist) {
        let request = gist::v1::ListPeersRequest { limit: limit(), ..Default::default() };
        let list = rows(GistClient::new(channel.clone()).list_peers(request).await).await?;
        all.extend(list.into_iter().map(Entry::GistPeer));
    }
    if runs(v1::Protocol::Rsvp) {
        let request = rsvp::v1::ListNeighborsRequest { limit: limit(), ..Default::default() };
        let list = rows(RsvpClient::new(channel.clone()).list_neighbors(request).await).await?;
        all.extend(list.into_iter().map(Entry::RsvpNeighbor));
    }
    if runs(v1::Protocol::Casp) {
        let request = casp::v1::ListPeersRequest { limit: limit(), ..Default::default() };
        let list = rows(CaspClient::new(channel).list_peers(request).await).await?;
        all.extend(list.into_iter().map(Entry::CaspPeer));
    }
    Ok(all)
}
