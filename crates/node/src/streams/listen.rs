//! The node API on the network: TLS, and only for whom the given settings let in.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::{Containers, serve_connection};

/// Whoever calls must prove who it is within this.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which usually means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// More callers wait until others are done.
const CALLERS_MOST: usize = 1024;

/// Serves everyone whom `tls` lets in, until it is dropped, which ends every stream.
pub async fn listen<C: Containers>(listener: TcpListener, tls: Arc<rustls::ServerConfig>, containers: Arc<C>) {
    let acceptor = TlsAcceptor::from(tls);
    let mut callers = JoinSet::new();
    loop {
        while callers.try_join_next().is_some() {}
        if callers.len() >= CALLERS_MOST {
            drop(callers.join_next().await);
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(callers.spawn(serve(acceptor.clone(), stream, Arc::clone(&containers)))),
            Err(error) => {
                warn!(%error, "the node API cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve<C: Containers>(acceptor: TlsAcceptor, stream: TcpStream, containers: Arc<C>) {
    // What someone types is one small write.
    let _ = stream.set_nodelay(true);
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve_connection(stream, containers).await,
        Ok(Err(error)) => debug!(%error, "a caller of the node API is not let in"),
        Err(_) => debug!("a caller of the node API did not say in time who it is"),
    }
}
