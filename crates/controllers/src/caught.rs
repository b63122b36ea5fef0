//! What breaks while one object is seen to is a failure like any other: that object is tried again, and the others go on.

/// Does a part of a controller's work; a panic is an error.
pub(crate) async fn caught<T>(part: &'static str, work: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    supervision::catch(part, work).await.unwrap_or_else(|panic| Err(kube::Error::Service(panic.into())))
}
