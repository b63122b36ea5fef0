//! Who takes part: a user that asks for much, and another that is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::api::server::Server;

pub(crate) const MAPS: &str = "/api/v1/namespaces/load/configmaps";
/// Requests of the measured user at once, and how often each makes one.
const OTHERS: usize = 8;
const PACE: Duration = Duration::from_millis(40);

/// Both users, and what happened to the first.
pub(crate) struct Clients {
    pub(crate) address: String,
    roots: rustls::RootCertStore,
    pub(crate) greedy: String,
    other: String,
    pub(crate) refused: AtomicUsize,
    pub(crate) listed: AtomicUsize,
    pub(crate) not_listed: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) watching: AtomicUsize,
}

/// How requests went.
pub(crate) struct Latencies {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) asked: usize,
    pub(crate) failed: usize,
}

impl Clients {
    /// Makes the users, and the objects.
    pub(crate) async fn prepare(server: &Server, objects: usize) -> Result<Self> {
        let kubeconfig: Value = serde_json::from_slice(&std::fs::read(server.kubeconfig())?)?;
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        let address = cluster["server"].as_str().context("an address")?.trim_start_matches("https://").to_owned();
        let ca = STANDARD.decode(cluster["certificate-authority-data"].as_str().context("a CA")?)?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&ca)?)?;

        let mut admin = server.target.connect().await?;
        let name = |name: &str| json!({ "metadata": { "name": name } });
        admin.ask("POST", "/api/v1/namespaces", name("load").to_string().into()).await?;
        let mut tokens = Vec::new();
        for user in ["greedy", "other"] {
            let accounts = "/api/v1/namespaces/load/serviceaccounts";
            admin.ask("POST", accounts, name(user).to_string().into()).await?;
            let binding = json!({ "metadata": { "name": user },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
                "subjects": [{ "kind": "ServiceAccount", "name": user, "namespace": "load" }] });
            let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/load/rolebindings";
            admin.ask("POST", bindings, binding.to_string().into()).await?;
            let body = admin.open("POST", &format!("{accounts}/{user}/token"), Bytes::from_static(b"{}")).await?;
            let review: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
            tokens.push(review["status"]["token"].as_str().context("a token")?.to_owned());
            admin = server.target.connect().await?;
        }
        let made = Arc::new(AtomicUsize::new(0));
        let clients = stream::iter(0..16).map(|_| {
            let made = Arc::clone(&made);
            async move {
                let mut connection = server.target.connect().await?;
                loop {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    if number >= objects {
                        return anyhow::Ok(());
                    }
                    connection.ask("POST", MAPS, object(&format!("object-{number:06}"))).await?;
                }
            }
        });
        clients.buffer_unordered(16).try_collect::<Vec<()>>().await?;
        let mut tokens = tokens.into_iter();
        let mut token = || tokens.next().context("a token");
        let zero = || AtomicUsize::new(0);
        Ok(Self {
            address,
            roots,
            greedy: token()?,
            other: token()?,
            refused: zero(),
            listed: zero(),
            not_listed: zero(),
            closed: zero(),
            watching: zero(),
        })
    }

    /// What happened.
    pub(crate) fn counts(&self) -> Vec<(&'static str, usize)> {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        vec![
            ("unfinished bodies that were refused or given up by the server", read(&self.refused)),
            ("idle connections that the server closed", read(&self.closed)),
            ("watches that began", read(&self.watching)),
            ("whole lists that were read", read(&self.listed)),
            ("lists that were refused or cut off", read(&self.not_listed)),
        ]
    }

    /// A TLS connection without a certificate.
    pub(crate) async fn connect(&self, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
        let config = rustls::ClientConfig::builder().with_root_certificates(self.roots.clone());
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').context("a port")?.0.to_owned();
        Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(host)?, stream).await?)
    }

    /// Small reads and writes of the other user, for so long.
    pub(crate) async fn others(self: &Arc<Self>, time: Duration) -> Result<Latencies> {
        let deadline = Instant::now() + time;
        let all = (0..OTHERS).map(|who| tokio::spawn(Arc::clone(self).one_other(who, deadline)));
        let (mut times, mut failed) = (Vec::new(), 0);
        for one in all.collect::<Vec<_>>() {
            let (its_times, its_failed) = one.await?;
            times.extend(its_times);
            failed += its_failed;
        }
        times.sort_unstable();
        let at =
            |percent: usize| times.get(times.len() * percent / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
        Ok(Latencies { p50: at(50), p99: at(99), asked: times.len() + failed, failed })
    }

    /// A request that fails counts as failed, and its connection is made anew, as clients do.
    async fn one_other(self: Arc<Self>, who: usize, deadline: Instant) -> (Vec<Duration>, usize) {
        let (mut times, mut failed, mut sender) = (Vec::new(), 0, None);
        let mut due = Instant::now();
        for turn in 0_usize.. {
            due += PACE;
            tokio::time::sleep_until(due.into()).await;
            if Instant::now() >= deadline {
                break;
            }
            let begun = Instant::now();
            match self.ask_once(&mut sender, who, turn).await {
                Ok(()) => times.push(begun.elapsed()),
                Err(error) => {
                    eprintln!("another user's request failed: {error:#}");
                    (sender, failed) = (None, failed + 1);
                }
            }
            due = due.max(Instant::now() - PACE);
        }
        (times, failed)
    }

    async fn ask_once(
        &self,
        sender: &mut Option<http1::SendRequest<Full<Bytes>>>,
        who: usize,
        turn: usize,
    ) -> Result<()> {
        if sender.as_ref().is_none_or(http1::SendRequest::is_closed) {
            let (made, connection) = http1::handshake(TokioIo::new(self.connect(b"http/1.1").await?)).await?;
            tokio::spawn(connection);
            *sender = Some(made);
        }
        let sender = sender.as_mut().context("a connection")?;
        let name = format!("other-{who}-{}", turn / 4);
        let (method, path, body) = match turn % 4 {
            0 => ("POST", MAPS.to_owned(), object(&name)),
            1 | 2 => ("GET", format!("{MAPS}/{name}"), Bytes::new()),
            _ => ("DELETE", format!("{MAPS}/{name}"), Bytes::new()),
        };
        let request = http::Request::builder().method(method).uri(path).header("host", &self.address);
        let request = request.header("authorization", format!("Bearer {}", self.other)).body(Full::new(body))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        // What an earlier failure left out is not missed.
        anyhow::ensure!(status.is_success() || matches!(status.as_u16(), 404 | 409), "{method}: {status}");
        Ok(())
    }
}

fn object(name: &str) -> Bytes {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": "value" } })
        .to_string()
        .into()
}
