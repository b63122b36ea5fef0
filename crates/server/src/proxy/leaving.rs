//! What is on its way through this server when the server stops.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::body::BoxError;

/// How long a request may still take once the server stops; less than connections have to end well.
const FINISH: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("the server stopped before the answer was whole")]
struct CutOff;

/// When whatever is not done is given up. Never, unless the server stops.
pub(super) async fn by_then(stopping: &CancellationToken) {
    stopping.cancelled().await;
    tokio::time::sleep(FINISH).await;
}

/// An answer that ends as an error if the server cannot wait for its end: half of one must not look like a whole one.
pub(super) fn cut_off(
    body: Incoming,
    stopping: CancellationToken,
) -> impl http_body::Body<Data = Bytes, Error = BoxError> {
    let given_up = Box::pin(async move { by_then(&stopping).await });
    let frames = futures::stream::unfold(Some((body, given_up)), |on_its_way| async move {
        let (mut body, mut given_up) = on_its_way?;
        tokio::select! {
            // First: a backend that never pauses is given up like any other.
            biased;
            () = &mut given_up => Some((Err(CutOff.into()), None)),
            frame = body.frame() => match frame? {
                Ok(frame) => Some((Ok(frame), Some((body, given_up)))),
                Err(error) => Some((Err(error.into()), None)),
            },
        }
    });
    http_body_util::StreamBody::new(frames)
}
