//! The API without a node: play kubelet by hand, with any client.
//!
//! `cargo run -p server --example api_only -- DIR [ADDRESS]`, then `KUBECONFIG=DIR/admin.kubeconfig kubectl get ns`.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use server::{NoNodes, Server, ServerConfig, ServiceRange, TokenKey, pki};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("which directory?")?);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:6443").parse()?;
    let keys = pki::ensure(&dir.join("pki"), &[address.ip().to_string()])?;
    let token_key = TokenKey::ensure(&dir.join("pki"))?;
    let listener = TcpListener::bind(address).await?;
    let advertise = listener.local_addr()?;
    let store = store::Store::open(&dir.join("store")).await?;
    let version = format!("v1.36.4+adieu.{}", env!("CARGO_PKG_VERSION"));
    let server = Server::new(ServerConfig {
        store,
        advertise,
        version,
        nodes: Arc::new(NoNodes),
        service_range: ServiceRange::default(),
        token_key,
    })
    .await?;
    server.publish_root_ca(keys.ca_pem());
    keys.write_admin_kubeconfig(&dir.join("admin.kubeconfig"), &format!("https://{advertise}"))?;
    println!("export KUBECONFIG={}", dir.join("admin.kubeconfig").display());
    let stop = async {
        // Without a signal to wait for there is nothing to wait for either.
        let _ = tokio::signal::ctrl_c().await;
    };
    server.serve(listener, keys.server_config()?, stop).await?;
    Ok(())
}
