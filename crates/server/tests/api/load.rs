//! Clients that ask for much and finish nothing: what they can hold is bounded, and others are served.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Api, PATIENCE, configmap};
use crate::transport::{Tls, connect};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// As large as a body may be, about.
const LARGE: usize = 2_900_000;

/// A body of which the last byte never comes. Counts what the connection takes of it.
struct Unfinished {
    left: usize,
    taken: Arc<AtomicUsize>,
}

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let size = (self.left - 1).min(16 * 1024);
        if size == 0 {
            return Poll::Pending;
        }
        self.left -= size;
        self.taken.fetch_add(size, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b' '; size])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// [SE-8] A body is read after its bytes are reserved: unfinished ones hold a few of them in memory, however many there are,
/// those over the limit get 429, and another user's requests go on.
#[tokio::test]
async fn unfinished_bodies_hold_a_bounded_number_of_bytes_and_others_are_served() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"h2").await;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let taken = Arc::new(AtomicUsize::new(0));
    let (refused, mut refusals) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..150 {
        let (mut sender, refused) = (sender.clone(), refused.clone());
        let body = Unfinished { left: LARGE, taken: Arc::clone(&taken) };
        let request = Request::post(format!("https://{}{MAPS}", tls.address)).body(body).unwrap();
        tokio::spawn(async move {
            let answer = sender.send_request(request).await.unwrap();
            refused.send((answer.status(), answer.headers().get("retry-after").cloned())).unwrap();
        });
    }
    // More wait than may: the rest is told so at once.
    let (code, again) = tokio::time::timeout(PATIENCE, refusals.recv()).await.expect("some are refused").unwrap();
    assert_eq!((code.as_u16(), again.unwrap().to_str().unwrap()), (429, "1"));

    let carol = tls.pki.client_certificate("carol", Some("system:masters")).unwrap();
    let stream = connect(&tls, Some(carol), b"h2").await;
    let (mut other, connection) =
        http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for name in ["a", "b", "c"] {
        let body = Full::new(Bytes::from(configmap(name).to_string()));
        let request = Request::post(format!("https://{}{MAPS}", tls.address)).body(body).unwrap();
        let answer =
            tokio::time::timeout(PATIENCE, other.send_request(request)).await.expect("it does not wait").unwrap();
        assert_eq!(answer.status(), 201);
    }
    // Four bodies, and what the connection lets in unread.
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < 16 << 20, "{taken}");
}

/// A user may make as many requests at once on a connection as upstream allows; a node has one for each of its informers.
#[tokio::test]
async fn concurrent_streams_are_limited_by_who_the_client_is() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let bob = tls.pki.client_certificate("bob", None).unwrap();
    let node = tls.pki.client_certificate("system:node:n1", Some("system:nodes")).unwrap();
    for (client, most) in [(None, 100), (Some(bob), 100), (Some(node), 1000), (Some(tls.admin()), 1000)] {
        let mut stream = connect(&tls, client, b"h2").await;
        // The preface, and settings that change nothing.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut settings = vec![0; usize::from(head[2])];
        stream.read_exact(&mut settings).await.unwrap();
        assert_eq!(head[3], 4, "settings come first");
        let told = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).expect("a limit of streams");
        assert_eq!(told[2..], u32::to_be_bytes(most));
    }
}

/// Clients that ask for long answers and take nothing of them are closed, and what they held is free for others.
#[tokio::test]
async fn unread_answer_ends_its_connection_and_frees_its_bytes() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let mut large = configmap("large");
    large["data"] = serde_json::json!({ "text": "x".repeat(1_000_000) });
    api.post(MAPS, &large).await.expect(201);
    let bob = tls.pki.client_certificate("bob", Some("system:masters")).unwrap();
    let stream = connect(&tls, Some(bob), b"h2").await;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) =
        builder.initial_stream_window_size(1024).handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
    let ended = tokio::spawn(connection);
    let request = Request::get(format!("https://{}{MAPS}/large", tls.address)).body(Full::default()).unwrap();
    let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    // Nothing of the body is read: the window stays shut while the server's time passes.
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    tokio::time::resume();
    let ended = tokio::time::timeout(PATIENCE, ended).await.expect("the server closes the connection");
    drop((ended, answer));
}

/// [SE-97] Answers that are short one by one are counted together: whoever leaves too many of them unread is told so, and others
/// are served.
#[tokio::test]
async fn user_who_leaves_many_short_answers_unread_gets_429_and_others_are_served() {
    const LENGTH: usize = 60_000;
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let mut map = configmap("short");
    map["data"] = serde_json::json!({ "text": "x".repeat(LENGTH) });
    api.post(MAPS, &map).await.expect(201);
    let client = async |user: &str, window: u32| {
        let binding = serde_json::json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": user }, "subjects": [{ "kind": "User", "name": user }],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" } });
        let _ = api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
        let certificate = tls.pki.client_certificate(user, None).unwrap();
        let stream = connect(&tls, Some(certificate), b"h2").await;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let builder = builder.initial_stream_window_size(window);
        let (sender, connection) = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    };
    let request = || Request::get(format!("https://{}{MAPS}/short", tls.address)).body(Full::default()).unwrap();
    let (mut unread, mut refused) = (Vec::new(), 0);
    for _ in 0..4 {
        let mut sender = client("bob", 0).await;
        for _ in 0..80 {
            let answer = tokio::time::timeout(PATIENCE, sender.send_request(request())).await.unwrap().unwrap();
            refused += usize::from(answer.status() == 429);
            unread.push(answer);
        }
    }
    let held = (unread.len() - refused) * LENGTH;
    assert!(refused > 0 && held <= 17 << 20, "{refused} refused, {held} bytes are held");
    let mut other = client("carol", 1 << 20).await;
    let answer = tokio::time::timeout(PATIENCE, other.send_request(request())).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    drop(unread);
    // What nobody wants any more counts for nobody.
    let mut again = client("bob", 1 << 20).await;
    let served = async {
        while again.send_request(request()).await.unwrap().status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("bob is served again");
}

/// A body that says that it is too large is refused before a byte of it is read.
#[tokio::test]
async fn body_announced_too_large_is_refused_unread() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let stream = connect(&tls, Some(tls.admin()), b"h2").await;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let taken = Arc::new(AtomicUsize::new(0));
    let body = Unfinished { left: 4 << 20, taken: Arc::clone(&taken) };
    let request = Request::post(format!("https://{}{MAPS}", tls.address)).body(body).unwrap();
    let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
    assert_eq!(answer.status(), 413);
    assert!(taken.load(Ordering::Relaxed) < 1 << 20);
}
