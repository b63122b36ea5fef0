//! `adieu server`: the API server and the controllers, without a node.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cli::ServerArgs;
use server::NoNodes;
use tracing::info;

use crate::config::Config;
use crate::control::Control;
use crate::control_plane::ControlPlane;
use crate::endpoint::Endpoint;
use crate::instance::Instance;
use crate::notify;
use crate::status::Reporter;
use crate::up::{Signals, log_at};

/// Runs until a signal.
pub(crate) fn run(args: &ServerArgs) -> Result<()> {
    let dir = std::path::absolute(&args.data_dir.path).context("--data-dir")?;
    log_at(args.verbose);
    let instance = Instance::take(&dir)?;
    // Its pods may still run, and nobody would look after them.
    if Config::is_remembered(&dir) {
        bail!(
            "{} belongs to a node: use `adieu up` on it, or `adieu down` first to end its pods, or another --data-dir",
            dir.display()
        );
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(serve(args, instance))
}

async fn serve(args: &ServerArgs, instance: Instance) -> Result<()> {
    // Before anyone can know that we are here: a stop asked for during the start is heard at its end.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let endpoint = Endpoint::bind(args.api, &instance.dir, &[]).await?;
    let address = endpoint.address;
    let control = Control::open(&instance.dir).context("cannot open the control socket")?;
    let root_ca = Some(endpoint.keys.ca_pem());
    let mut plane = ControlPlane::start(&instance.dir, address, Arc::new(NoNodes), root_ca).await?;
    plane.start_controllers();
    let kubeconfig = endpoint.write_kubeconfig(&instance.dir)?;
    let serving = endpoint.serve(plane.server.clone())?;
    // Whoever started us may not be listening any more; that is no reason to end.
    let ready = format!("adieu server is ready: https://{address}\n  export KUBECONFIG={}\n", kubeconfig.display());
    let _ = io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush());
    let reporter = Reporter::new(&plane, address, kubeconfig, None);
    let mut control = control.answer(reporter);
    notify::ready(&format!("API at https://{address}"));
    tokio::select! {
        () = signals.heard() => {}
        // It has no pods that would have to end first.
        asker = control.asked_down() => asker.done().await,
    }
    notify::stopping("connections end", Duration::ZERO);
    info!("stopping");
    serving.stop().await;
    plane.stop().await;
    Ok(())
}
