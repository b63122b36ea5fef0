//! etcd as a child, and just enough gRPC to write to it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::server::Guard;

/// How long it may take to listen and elect itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running etcd.
pub(crate) struct Etcd {
    child: Guard,
    address: String,
}

impl Etcd {
    pub(crate) async fn start(etcd: &Path, dir: &Path) -> Result<Self> {
        let port = || anyhow::Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?);
        let (client, peer) = (port()?, port()?);
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let mut command = Command::new(etcd);
        command.arg("--data-dir").arg(dir).args(["--log-level", "error", "--name", "bench"]);
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &format!("bench={peer_url}")]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let etcd = Self { child: Guard(child.context("cannot run etcd")?), address: client.to_string() };
        let ready = async {
            loop {
                // There is nothing to wait on but the port itself, and an election after it.
                if let Ok(mut client) = etcd.connect().await
                    && client.put("ready", &[]).await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.context("etcd does not answer")?;
        Ok(etcd)
    }

    pub(crate) fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.0.id())?)
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Client { sender, uri: format!("http://{}/etcdserverpb.KV/Put", self.address) })
    }
}

/// One writer; clones share a connection.
#[derive(Clone)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    uri: String,
}

impl Client {
    pub(crate) async fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let request = http::Request::post(&self.uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(put_request(key.as_bytes(), value)))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let refused = answer.headers().get("grpc-status").cloned();
        let answer = answer.into_body().collect().await?;
        let status = answer.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned().or(refused);
        ensure!(status.as_ref().is_some_and(|status| status == "0"), "etcd answers {status:?}");
        Ok(())
    }
}

/// `PutRequest { key = 1, value = 2 }` as a gRPC message.
fn put_request(key: &[u8], value: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(key.len() + value.len() + 16);
    for (tag, field) in [(0x0a, key), (0x12, value)] {
        message.put_u8(tag);
        let mut length = field.len();
        while length >= 0x80 {
            message.put_u8(0x80 | u8::try_from(length & 0x7f).expect("seven bits"));
            length >>= 7;
        }
        message.put_u8(u8::try_from(length).expect("seven bits"));
        message.put_slice(field);
    }
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.put_slice(&message);
    frame.freeze()
}
