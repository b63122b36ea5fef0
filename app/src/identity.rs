//! Each part speaks to the API as a user of its own, put into the request where no header can forge it.

use std::task::{Context, Poll};

use http::Request;
use server::Identity;
use tower::Service;

/// The API as one user.
#[derive(Clone, Debug)]
pub(crate) struct As<S> {
    service: S,
    identity: Identity,
}

/// A client of `service` that speaks as `user`, a member of `groups`.
pub(crate) fn client<S, B>(service: S, user: &str, groups: &[&str]) -> kube::Client
where
    S: Service<Request<kube::client::Body>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<tower::BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    let identity = Identity::new(user, groups);
    kube::Client::new(As { service, identity }, "default")
}

impl<S, B> Service<Request<B>> for As<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.identity.clone());
        self.service.call(request)
    }
}
