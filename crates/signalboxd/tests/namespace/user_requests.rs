//! What users of a node ask for, by each protocol.

use std::net::IpAddr;

use signalbox_api::ping::v1::ping_client::PingClient;
use signalbox_api::ping::v1::{PingRequest, PingResponse};
use signalbox_api::v1::pinholes_client::PinholesClient;
use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_response::Event;
use signalbox_api::v1::{
    FlowSpec, OpenPinholeRequest, OpenPinholeResponse, PinholeAction, PinholeOpen, Protocol, ReserveOpen,
    ReserveRequest, ReserveResponse, TokenBucket, open_pinhole_request, reserve_request,
};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::net::LONG;

const UDP: u32 = 17;

/// What users of a node ask for; the applications of GIST send Queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserRequest {
    Qos,
    Rsvp,
    Boomerang,
    Casp,
    /// A CREATE of NATFW.
    Create,
    /// An EXTERNAL of NATFW.
    External,
    /// A CREATE of CASP's client for firewalls.
    CaspCreate,
    Ping,
}

/// A call, which stands as long as it is kept.
pub(crate) enum Call {
    Reservation { events: Streaming<ReserveResponse> },
    Pinhole { _events: Streaming<OpenPinholeResponse> },
    Ping { _events: Streaming<PingResponse> },
}

impl Call {
    /// Waits for what becomes of a reservation, and whether it is granted.
    pub(crate) async fn granted(&mut self) -> bool {
        let Self::Reservation { events } = self else { panic!("no reservation") };
        loop {
            let next = tokio::time::timeout(LONG, events.message()).await.expect("an event comes");
            match next.unwrap().expect("the call goes on").event {
                Some(Event::Started(_)) => {}
                Some(Event::Granted(_)) => return true,
                Some(Event::Failed(_)) => return false,
                other => panic!("{other:?}"),
            }
        }
    }
}

impl UserRequest {
    /// Asks for a flow of UDP.
    pub(crate) async fn begin(
        self,
        node: &Channel,
        [src, dst]: [IpAddr; 2],
        port: u16,
    ) -> Result<Call, Status> {
        let flow = FlowSpec {
            source: Some(src.to_string()),
            destination: Some(dst.to_string()),
            ip_protocol: Some(UDP),
            source_port: Some(4000),
            destination_port: Some(port.into()),
            ..FlowSpec::default()
        };
        match self {
            Self::Qos => reserve(node, Protocol::Qos, flow).await,
            Self::Rsvp => reserve(node, Protocol::Rsvp, flow).await,
            Self::Boomerang => reserve(node, Protocol::Boomerang, flow).await,
            Self::Casp => reserve(node, Protocol::Casp, flow).await,
            Self::Create => open(node, PinholeOpen { flow: Some(flow), ..PinholeOpen::default() }).await,
            Self::CaspCreate => {
                let protocol = Protocol::Casp.into();
                open(node, PinholeOpen { protocol, flow: Some(flow), ..PinholeOpen::default() }).await
            }
            Self::External => {
                let flow = FlowSpec { source: None, destination: Some(src.to_string()), ..flow };
                let action = PinholeAction::Expose.into();
                let towards = Some(dst.to_string());
                open(node, PinholeOpen { action, flow: Some(flow), towards, ..PinholeOpen::default() }).await
            }
            Self::Ping => {
                let request = PingRequest { flow: Some(flow), ..PingRequest::default() };
                let events = PingClient::new(node.clone()).ping(request).await?.into_inner();
                Ok(Call::Ping { _events: events })
            }
        }
    }
}

async fn reserve(node: &Channel, protocol: Protocol, flow: FlowSpec) -> Result<Call, Status> {
    let traffic = TokenBucket { rate_octets_per_s: 8000, ..TokenBucket::default() };
    let open = ReserveOpen {
        protocol: protocol.into(),
        flow: Some(flow),
        traffic: Some(traffic),
        ..ReserveOpen::default()
    };
    let request = ReserveRequest { request: Some(reserve_request::Request::Open(open)) };
    let events =
        ReservationsClient::new(node.clone()).reserve(tokio_stream::once(request)).await?.into_inner();
    Ok(Call::Reservation { events })
}

async fn open(node: &Channel, open: PinholeOpen) -> Result<Call, Status> {
    let request = OpenPinholeRequest { request: Some(open_pinhole_request::Request::Open(open)) };
    let events =
        PinholesClient::new(node.clone()).open_pinhole(tokio_stream::once(request)).await?.into_inner();
    Ok(Call::Pinhole { _events: events })
}
