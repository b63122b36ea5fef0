//! Tells an application over HTTP that its connections are waited for: annotation `adieu.dev/drain-hook: http://:8080/drain`.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use lifecycle::TrafficNews;
use node::traffic::TrafficReporter;
use serde_json::json;

use super::routes::annotation;

/// How often it is tried, and how long one try may take.
const TRIES: u32 = 3;
const TRY: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(200);
/// More of an answer is not read.
const ANSWER_MAX: usize = 4096;

/// Posts to the pod's drain hook, if it has one. An application that answers `done` has nothing left to wait for.
pub(super) async fn notify(addresses: Vec<IpAddr>, pod: Pod, remaining: Duration, reporter: TrafficReporter) {
    let Some(hook) = annotation(&pod, "drain-hook") else { return };
    let uid = pod.metadata.uid.as_deref();
    let told = match addresses.first().map(|address| target(hook, *address)) {
        Some(Ok(to)) => post(to, remaining).await,
        Some(Err(message)) => Err(message),
        None => Err("the pod has no address".to_owned()),
    };
    match told {
        Ok(true) => reporter.report(TrafficNews::AppDone).await,
        Ok(false) => {}
        Err(error) => tracing::warn!(uid, error, "the drain hook of a pod does not answer"),
    }
}

/// What the hook stands for. The host is the pod's own: the node is nobody's messenger to elsewhere.
fn target(hook: &str, pod: IpAddr) -> Result<http::Uri, String> {
    let wrong = || format!("{hook:?} is no address of the pod such as http://:8080/drain");
    let (authority, path) = hook.strip_prefix("http://").ok_or_else(wrong)?.split_once('/').ok_or_else(wrong)?;
    let port: u16 = authority.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(wrong)?;
    let at = std::net::SocketAddr::new(pod, port);
    format!("http://{at}/{path}").parse().map_err(|_| wrong())
}

async fn post(to: http::Uri, remaining: Duration) -> Result<bool, String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match tokio::time::timeout(TRY, post_once(&to, remaining)).await {
            Ok(Ok(is_done)) => return Ok(is_done),
            Ok(Err(error)) => last = error,
            Err(_) => last = format!("no answer within {TRY:?}"),
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Err(last)
}

async fn post_once(to: &http::Uri, remaining: Duration) -> Result<bool, String> {
    let body = json!({ "remainingSeconds": remaining.as_secs() }).to_string();
    let request = http::Request::post(to.clone())
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.into_bytes()))
        .map_err(|error| error.to_string())?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Body>(HttpConnector::new());
    let answer = client.request(request).await.map_err(|error| supervision::error_chain(&error))?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("it answers {status}"));
    }
    let read = Limited::new(answer.into_body(), ANSWER_MAX).collect().await.map_err(|error| error.to_string())?;
    Ok(status == http::StatusCode::OK && read.to_bytes().trim_ascii() == b"done")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn drain_hook_leads_to_the_pod_and_nowhere_else() {
        let pod: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(target("http://:8080/drain?now", pod).unwrap(), "http://10.1.2.3:8080/drain?now");
        assert_eq!(target("http://:80/", "fd00::1".parse().unwrap()).unwrap(), "http://[fd00::1]:80/");
        for wrong in ["http://169.254.169.254:80/", "https://:1/", "http://:x/", "http://:80", "drain", ""] {
            assert!(target(wrong, pod).is_err(), "{wrong}");
        }
    }

    /// Answers every request with this until the test ends; the first is not answered.
    async fn application(answer: &'static str) -> http::Uri {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}/drain", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            drop(listener.accept().await.unwrap());
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = vec![0; 4096];
                let read = stream.read(&mut asked).await.unwrap();
                assert!(asked[..read].starts_with(b"POST /drain HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        to
    }

    /// [TR-54]
    #[tokio::test]
    async fn drain_hook_is_tried_again_and_an_application_may_say_that_it_is_done() {
        let remaining = Duration::from_secs(20);
        let done = application("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n").await;
        assert_eq!(post(done, remaining).await, Ok(true));
        let noted = application("HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\n\r\ndone").await;
        assert_eq!(post(noted, remaining).await, Ok(false));
        let broken = application("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").await;
        assert!(post(broken, remaining).await.unwrap_err().contains("500"));
    }
}
