//! The gRPC services of the control socket. A router of tonic's would bring a web framework with it.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

use crate::access::Roles;

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
}

impl Services {
    /// Services that are found by the first part of a call's path; a call that fits no route goes to the first. Callers need
    /// a role.
    pub(crate) fn new(routes: Vec<Route>, roles: Roles) -> Self {
        Self { routes: routes.into(), roles }
    }
}

impl Service<http::Request<Body>> for Services {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Reply {
        if let Err(status) = self.roles.check(&request) {
            return Box::pin(async move { Ok(status.into_http()) });
        }
        let name = request.uri().path().split('/').nth(1);
        let route = self.routes.iter().find(|route| Some(route.name) == name).or(self.routes.first());
        match route {
            Some(route) => (route.call)(request),
            None => Box::pin(async { Ok(http::Response::default()) }),
        }
    }
}
