//! The health check ports of Services: load balancers ask each node whether it has pods of the Service.
//!
//! `externalTrafficPolicy: Local` gives a load balancer a port of every node to ask. The answer is 200 while a local endpoint is
//! ready and stays, and 503 otherwise; also while endpoints that leave are served, so that balancers turn away in time.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::wanted::HealthCheck;

/// How many ask at once at most, how long a question may take, and how long it may be.
const ASKING_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
const QUESTION_BYTES: usize = 4096;
/// How long to wait before a port that is taken is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// The ports that are answered, by who wants them.
#[derive(Debug)]
pub(crate) struct HealthChecks {
    addresses: Vec<IpAddr>,
    asking: Arc<Semaphore>,
    open: BTreeMap<String, (watch::Sender<HealthCheck>, Vec<JoinHandle<()>>)>,
}

impl HealthChecks {
    pub(crate) fn new(addresses: Vec<IpAddr>) -> Self {
        Self { addresses, asking: Arc::new(Semaphore::new(ASKING_MAX)), open: BTreeMap::new() }
    }

    /// Makes an owner's port answer this, or nothing. To be called within a runtime.
    pub(crate) fn set(&mut self, owner: &str, check: Option<HealthCheck>) {
        if let (Some((answer, _)), Some(check)) = (self.open.get(owner), &check)
            && answer.borrow().port == check.port
        {
            answer.send_replace(check.clone());
            return;
        }
        self.close(owner);
        let Some(check) = check else { return };
        let (answer, answers) = watch::channel(check);
        let serve = |address: &IpAddr| tokio::spawn(serve(*address, answers.clone(), self.asking.clone()));
        let tasks = self.addresses.iter().map(serve).collect();
        self.open.insert(owner.to_owned(), (answer, tasks));
    }

    /// Closes the ports of everybody else.
    pub(crate) fn keep_only(&mut self, is_kept: impl Fn(&str) -> bool) {
        let others: Vec<_> = self.open.keys().filter(|owner| !is_kept(owner)).cloned().collect();
        others.iter().for_each(|owner| self.close(owner));
    }

    fn close(&mut self, owner: &str) {
        let closed = self.open.remove(owner);
        closed.into_iter().for_each(|(_, tasks)| tasks.iter().for_each(JoinHandle::abort));
    }
}

impl Drop for HealthChecks {
    fn drop(&mut self) {
        self.open.values().flat_map(|(_, tasks)| tasks).for_each(JoinHandle::abort);
    }
}

async fn serve(address: IpAddr, answers: watch::Receiver<HealthCheck>, asking: Arc<Semaphore>) {
    let at = SocketAddr::new(address, answers.borrow().port);
    let listener = loop {
        match TcpListener::bind(at).await {
            Ok(listener) => break listener,
            Err(error) => {
                let check = answers.borrow().clone();
                tracing::warn!(%error, %at, namespace = check.namespace, service = check.name, "cannot answer health checks");
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            tokio::time::sleep(PATIENCE).await;
            continue;
        };
        // Listeners that wait for somebody take no place from those who are asked.
        let Ok(permit) = asking.clone().try_acquire_owned() else { continue };
        let answer = answer(&answers.borrow());
        tokio::spawn(async move {
            // Whoever does not ask or does not listen is let go.
            let _ = tokio::time::timeout(PATIENCE, respond(connection, answer)).await;
            drop(permit);
        });
    }
}

async fn respond(mut connection: TcpStream, answer: String) -> std::io::Result<()> {
    let mut question: Vec<u8> = Vec::new();
    let mut part = [0; 512];
    while question.len() < QUESTION_BYTES && !question.windows(4).any(|end| end == b"\r\n\r\n") {
        match connection.read(&mut part).await? {
            0 => return Ok(()),
            read => question.extend(&part[..read]),
        }
    }
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await
}

fn answer(check: &HealthCheck) -> String {
    let status = if check.local_endpoints > 0 { "200 OK" } else { "503 Service Unavailable" };
    // Names of namespaces and Services need no quoting: they were checked by the server.
    let body = format!(
        "{{\"service\":{{\"namespace\":\"{}\",\"name\":\"{}\"}},\"localEndpoints\":{},\"serviceProxyHealthy\":true}}",
        check.namespace, check.name, check.local_endpoints
    );
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        check.local_endpoints,
        body.len()
    )
}
