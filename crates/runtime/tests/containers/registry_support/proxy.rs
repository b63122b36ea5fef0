//! A TCP proxy that cuts, holds or counts what passes through it.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code, reason = "shared by several tests")]
#![allow(missing_docs, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of a connection once its server has sent so many bytes.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    Passes,
    /// Both ends are reset.
    CutAfter(u64),
    /// Nothing moves any more until the proxy is told to go on.
    HeldAfter(u64),
}

/// A proxy in front of a port on loopback; ends with this value.
pub struct Proxy {
    pub address: SocketAddr,
    seen: Arc<Seen>,
    go_on: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

/// What happened, over all connections.
#[derive(Default)]
struct Seen {
    /// Bytes that the server sent.
    passed: AtomicU64,
    cuts: AtomicUsize,
    /// Turns true when a connection is held.
    held: watch::Sender<bool>,
    /// How many connections their clients left while they were held.
    left: watch::Sender<usize>,
}

impl Proxy {
    /// `fate` decides by the number of the connection, from 0.
    pub async fn start(port: u16, fate: impl Fn(usize) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (go_on, waits) = watch::channel(false);
        let seen = Arc::new(Seen::default());
        let sees = seen.clone();
        let task = tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let (sees, waits) = (sees.clone(), waits.clone());
                let fate = fate(number);
                tokio::spawn(async move {
                    // A connection that breaks is what this is for.
                    let _ = pass(client, port, fate, &sees, waits).await;
                });
            }
        });
        Self { address, seen, go_on, task }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn cuts(&self) -> usize {
        self.seen.cuts.load(Ordering::SeqCst)
    }

    pub fn passed(&self) -> u64 {
        self.seen.passed.load(Ordering::SeqCst)
    }

    /// Lets go of what is held, and holds nothing any more.
    pub fn go_on(&self) {
        self.go_on.send_replace(true);
    }

    pub fn has_held(&self) -> bool {
        *self.seen.held.borrow()
    }

    /// Waits until a connection is held.
    pub async fn holds(&self) {
        self.seen.held.subscribe().wait_for(|held| *held).await.unwrap();
    }

    /// Waits until a client has left a connection that is held.
    pub async fn is_left(&self) {
        self.seen.left.subscribe().wait_for(|left| *left > 0).await.unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    client: TcpStream,
    port: u16,
    fate: Fate,
    seen: &Seen,
    mut waits: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut upwards = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
        let _ = to_server.shutdown().await;
    });
    let mut buffer = vec![0; 16 * 1024];
    let mut sent = 0;
    loop {
        let limit = match fate {
            Fate::Passes => u64::MAX,
            Fate::CutAfter(bytes) => bytes,
            Fate::HeldAfter(_) if *waits.borrow() => u64::MAX,
            Fate::HeldAfter(bytes) => bytes,
        };
        let room = usize::try_from(limit.saturating_sub(sent)).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 {
            match fate {
                Fate::HeldAfter(_) => {
                    seen.held.send_replace(true);
                    tokio::select! {
                        _ = waits.wait_for(|go_on| *go_on) => continue,
                        // The client is gone: nothing more is for it.
                        _ = &mut upwards => {
                            seen.left.send_modify(|left| *left += 1);
                            return Ok(());
                        }
                    }
                }
                Fate::CutAfter(_) | Fate::Passes => {
                    seen.cuts.fetch_add(1, Ordering::SeqCst);
                    upwards.abort();
                    return Ok(());
                }
            }
        }
        let read = from_server.read(&mut buffer[..room]).await?;
        if read == 0 {
            upwards.abort();
            return Ok(());
        }
        sent += read as u64;
        seen.passed.fetch_add(read as u64, Ordering::SeqCst);
        to_client.write_all(&buffer[..read]).await?;
    }
}
