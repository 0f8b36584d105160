//! The service `Node`: what runs, the interfaces, the metrics and the configuration.

pub(super) mod config;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;

use signalbox_api::v1;
use signalbox_api::v1::node_server::{Node, NodeServer};
use signalbox_core::IfIndex;
use signalbox_linux::traffic::{Capabilities, Policing};
use signalbox_node::resources::view::LinkView;
use signalbox_node::rsvp::neighbor::OtherClock;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::errors::not_running;
use super::pages::ROWS;
use super::{Api, digest, held, reload, types};
use crate::limits::CONFIG_REQUEST;
use crate::metrics::{Snapshot, families};
use crate::requests::Replies;
use crate::view::View;

/// What keeps the node from its work, and an operator can mend.
fn warnings(view: &mut View<'_>) -> Vec<String> {
    let other = view.node.rsvp().and_then(|rsvp| rsvp.neighbors().other_clock(view.now));
    let clock = other.map(|other| clock_warning(&other));
    let here: Vec<_> = view.kernel.interfaces().iter().map(|one| one.name.clone()).collect();
    let links = view.kernel.enforcer().into_iter().flat_map(|enforcer| enforcer.capabilities());
    let waiting = links.filter(|link| !here.contains(&link.name)).map(|link| {
        format!("waiting for the interface {}: nothing is granted there until it comes", link.name)
    });
    clock.into_iter().chain(waiting).collect()
}

fn clock_warning(other: &OtherClock) -> String {
    let (peer, hours) = (other.peer, other.ahead_s.unsigned_abs() / 3600);
    if other.ahead_s < 0 {
        return format!(
            "the clock of the RSVP neighbor {peer} is {hours} h behind this node's: its messages are dropped as replayed until one of the two \
             clocks is set"
        );
    }
    format!(
        "the clock of this node is {hours} h behind that of the RSVP neighbor {peer}: neighbors drop its messages as replayed, and keys count by \
         it; set the clock"
    )
}

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct NodeService {
    api: Api,
    /// The right to check a configuration.
    checks: Arc<Semaphore>,
}

/// The generated server with this service.
pub(crate) fn server(api: &Api) -> NodeServer<NodeService> {
    NodeServer::new(NodeService { api: api.clone(), checks: Arc::new(Semaphore::new(1)) })
        .max_decoding_message_size(CONFIG_REQUEST)
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn get_node(
        &self,
        _: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::GetNodeResponse>, Status> {
        let facts = &self.api.facts;
        let fixed = v1::GetNodeResponse {
            name: facts.node.clone(),
            vrf: facts.vrf.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_unix_us: facts.start_unix_us,
            pid: std::process::id(),
            config_digest: digest(&self.api.config.get()),
            ..v1::GetNodeResponse::default()
        };
        let node = self.api.handle.query(move |view| {
            let nslp = |id| view.node.nslps().find(|(owner, _)| *owner == id).map(|(_, nslp)| nslp.0.into());
            let protocols = view.node.sizes().map(|(id, size)| v1::ProtocolStatus {
                protocol: types::protocol(id).into(),
                nslp_id: nslp(id),
                sessions: size.sessions.into(),
                peers: size.peers.map(Into::into),
            });
            let applications = view.node.applications();
            let interception = view.kernel.interception().map(|known| v1::InterceptionStatus {
                faults: known.faults(),
                untried: known.untried().to_vec(),
            });
            v1::GetNodeResponse {
                interception,
                protocols: protocols.collect(),
                applications: applications
                    .map(|application| v1::ApplicationStatus { nslp_id: application.nslp.0.into() })
                    .collect(),
                warnings: warnings(view),
                time_unix_us: types::unix_us(),
                ..fixed
            }
        });
        node.await.map(Response::new)
    }

    async fn get_config(
        &self,
        _: Request<v1::GetConfigRequest>,
    ) -> Result<Response<v1::GetConfigResponse>, Status> {
        let config = self.api.config.get();
        let digest = digest(&config);
        Ok(Response::new(v1::GetConfigResponse { toml: config.effective(), digest }))
    }

    async fn check_config(
        &self,
        request: Request<v1::CheckConfigRequest>,
    ) -> Result<Response<v1::CheckConfigResponse>, Status> {
        let toml = request.into_inner().toml;
        let force = self.api.config.get();
        // The client chooses how long a check takes: it runs beside the calls of others, one at a time.
        let turn = Arc::clone(&self.checks).acquire_owned().await;
        let check = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            config::check(&toml, &force)
        });
        let checked = check.await.map_err(|error| Status::internal(format!("the check failed: {error}")))?;
        Ok(Response::new(checked))
    }

    async fn reload_config(
        &self,
        _: Request<v1::ReloadConfigRequest>,
    ) -> Result<Response<v1::ReloadConfigResponse>, Status> {
        reload::reload(&self.api).await.map(Response::new)
    }

    type WatchEventsStream = Replies<v1::WatchEventsResponse>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        watch::watch(&self.api.handle, request.into_inner()).await.map(Response::new)
    }

    type ListDecisionsStream = Replies<v1::ListDecisionsResponse>;

    async fn list_decisions(
        &self,
        request: Request<v1::ListDecisionsRequest>,
    ) -> Result<Response<Self::ListDecisionsStream>, Status> {
        let v1::ListDecisionsRequest { protocols, outcomes } = request.into_inner();
        self.api.decisions.catch_up().await;
        let decisions = self.api.decisions.list(|row| {
            (protocols.is_empty() || protocols.contains(&row.protocol))
                && (outcomes.is_empty() || outcomes.contains(&row.outcome))
        });
        let pages: Vec<_> = decisions
            .chunks(ROWS)
            .map(|page| Ok(v1::ListDecisionsResponse { decisions: page.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pages))))
    }

    type ListStandingRequestsStream = Replies<v1::ListStandingRequestsResponse>;

    async fn list_standing_requests(
        &self,
        _: Request<v1::ListStandingRequestsRequest>,
    ) -> Result<Response<Self::ListStandingRequestsStream>, Status> {
        let requests = self.api.standing.list();
        let pages: Vec<_> = requests
            .chunks(ROWS)
            .map(|page| Ok(v1::ListStandingRequestsResponse { requests: page.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pages))))
    }

    type ListMetricsStream = Replies<v1::ListMetricsResponse>;

    async fn list_metrics(
        &self,
        request: Request<v1::ListMetricsRequest>,
    ) -> Result<Response<Self::ListMetricsStream>, Status> {
        let prefixes = request.into_inner().name_prefixes;
        let snapshot = self.api.handle.query(|view| Snapshot::take(view)).await?;
        let mut families = families(snapshot);
        families.retain(|family| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| family.name.starts_with(prefix))
        });
        let answer = v1::ListMetricsResponse { time_unix_us: types::unix_us(), families };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(answer)))))
    }

    type ListInterfacesStream = Replies<v1::ListInterfacesResponse>;

    async fn list_interfaces(
        &self,
        request: Request<v1::ListInterfacesRequest>,
    ) -> Result<Response<Self::ListInterfacesStream>, Status> {
        if !self.api.facts.reserves {
            return Err(not_running("a protocol that reserves"));
        }
        let wanted = request.into_inner().interface;
        let handle = self.api.handle.clone();
        let (pages, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut from = Some(IfIndex::NONE);
            // Without the kernel's answer the rows lack this number only.
            let sent = signalbox_linux::sent_octets().unwrap_or_default();
            while let Some(start) = from {
                let wanted = wanted.clone();
                let query = handle.query(move |view| interfaces(view, start, wanted.as_deref())).await;
                let page = query.map(|(mut interfaces, next)| {
                    from = next;
                    for row in &mut interfaces {
                        let index = row.interface.as_ref().map(|interface| IfIndex(interface.index));
                        row.sent_octets = index.and_then(|index| sent.get(&index).copied());
                    }
                    v1::ListInterfacesResponse { interfaces }
                });
                let failed = page.is_err();
                // A client that is gone needs no answer.
                if pages.send(page).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// Interfaces from a number on, and the number of the next one.
fn interfaces(
    view: &mut View<'_>,
    from: IfIndex,
    wanted: Option<&str>,
) -> (Vec<v1::Interface>, Option<IfIndex>) {
    let kernel: HashMap<String, Capabilities> = view
        .kernel
        .enforcer()
        .into_iter()
        .flat_map(|enforcer| enforcer.capabilities())
        .map(|one| (one.name.clone(), one))
        .collect();
    let mut links = view.node.resources().links_from(from);
    let rows = links
        .by_ref()
        .take(ROWS)
        .filter(|link| wanted.is_none_or(|wanted| link.name == wanted))
        .map(|link| {
            let known = view.kernel.interfaces().iter().find(|known| known.ifindex == link.ifindex);
            let addresses = known.into_iter().flat_map(|known| &known.addresses).map(ToString::to_string);
            v1::Interface { addresses: addresses.collect(), ..interface(&link, kernel.get(link.name)) }
        })
        .collect();
    (rows, links.next().map(|link| link.ifindex))
}

/// An interface with what the kernel enforces there.
pub(crate) fn interface(link: &LinkView<'_>, kernel: Option<&Capabilities>) -> v1::Interface {
    v1::Interface {
        enforcement: kernel.map(|kernel| v1::Enforcement {
            queues: kernel.queues,
            policing: match kernel.policing {
                Policing::None => v1::Policing::None,
                Policing::TokenBucket => v1::Policing::TokenBucket,
                Policing::ClassCeiling => v1::Policing::ClassCeiling,
            }
            .into(),
            marking: kernel.marking,
            classes: kernel.classes.0.into(),
            classes_taken: kernel.classes.1.into(),
            missing: kernel.lacking.clone(),
        }),
        ..held::interface(link)
    }
}

#[cfg(test)]
mod tests;
