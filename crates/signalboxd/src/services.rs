//! The gRPC services of the control socket. A router of tonic's would bring a web framework with it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, BoxFuture, Service, http};
use tonic::server::NamedService;

use crate::access::Roles;
use crate::connection::{OpenCall, Peer};
use crate::limits::{Kind, Limits, Place};

type Reply = BoxFuture<http::Response<Body>, Infallible>;

/// One service.
pub(crate) struct Route {
    name: &'static str,
    call: Box<dyn Fn(http::Request<Body>) -> Reply + Send + Sync>,
}

impl Route {
    /// The route to a generated server.
    pub(crate) fn to<S>(server: S) -> Self
    where
        S: NamedService + Clone + Send + Sync + 'static,
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Reply>,
    {
        // A server is a handle: a copy for each call costs nothing, and every server is always ready.
        Self { name: S::NAME, call: Box::new(move |request| server.clone().call(request)) }
    }
}

/// All services; cheap to clone.
#[derive(Clone)]
pub(crate) struct Services {
    routes: Arc<[Route]>,
    roles: Roles,
    limits: Limits,
}

impl Services {
    /// Services that are found by the first part of a call's path; a call that fits no route goes to the first. Callers need
    /// a role and a place.
    pub(crate) fn new(routes: Vec<Route>, roles: Roles, limits: Limits) -> Self {
        Self { routes: routes.into(), roles, limits }
    }

    /// Lets a call in.
    fn admit(&self, request: &http::Request<Body>) -> Result<Arc<Call>, Status> {
        let peer = request.extensions().get::<Peer>();
        let caller = peer.and_then(|peer| peer.caller);
        if peer.is_some_and(|peer| peer.refused) {
            return Err(self.limits.refusal(Kind::Connection, caller));
        }
        self.roles.check(request)?;
        let privileged = peer.is_some_and(|peer| peer.privileged);
        let place = self.limits.call(request.uri().path(), caller, privileged)?;
        Ok(Arc::new(Call { _place: place, _open: peer.map(Peer::call) }))
    }
}

/// A call that was let in. What lives longer than its answer, because a client may come back to it, keeps this too.
#[derive(Debug)]
pub(crate) struct Call {
    _place: Place,
    _open: Option<OpenCall>,
}

/// The answer to a call, whose place is free at its end.
struct Answer {
    body: Body,
    _call: Arc<Call>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Service<http::Request<Body>> for Services {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Reply {
        let call = match self.admit(&request) {
            Ok(call) => call,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        request.extensions_mut().insert(Arc::clone(&call));
        let name = request.uri().path().split('/').nth(1);
        let route = self.routes.iter().find(|route| Some(route.name) == name).or(self.routes.first());
        let Some(route) = route else { return Box::pin(async { Ok(http::Response::default()) }) };
        let reply = (route.call)(request);
        Box::pin(async move { Ok(reply.await?.map(|body| Body::new(Answer { body, _call: call }))) })
    }
}
