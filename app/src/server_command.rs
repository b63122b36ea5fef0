//! `adieu server`: the API server and the controllers, without a node.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cli::{ServerArgs, ServerCommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use server::{RemoteNodes, pki};
use tracing::{info, warn};

use crate::config::{self, Config};
use crate::control::Control;
use crate::control_plane::{ControlPlane, Records};
use crate::endpoint::Endpoint;
use crate::instance::Instance;
use crate::memory;
use crate::notify;
use crate::status::Reporter;
use crate::stop::Signals;
use crate::up::{log_at, settings};

/// Runs until a signal.
pub(crate) fn run(args: &ServerArgs) -> Result<()> {
    let dir = std::path::absolute(&args.data_dir.path).context("--data-dir")?;
    if let Some(ServerCommand::AddNode { name, server, output }) = &args.command {
        return add_node(&dir, name, server.as_deref(), output.as_deref());
    }
    log_at(args.verbose);
    let records = Records::read(&args.records)?;
    allow_many_descriptors();
    let instance = Instance::take(&dir)?;
    // Its pods may still run, and nobody would look after them.
    if Config::is_remembered(&dir) {
        bail!(
            "{} belongs to a node: use `{}` on it, or `adieu down` first to end its pods, or another --data-dir",
            dir.display(),
            Config::recall(&dir).map_or("adieu up", |config| config.command())
        );
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(serve(args, instance, records))
}

/// Every client is a descriptor. A node does the same, and gives its pods what it was started with.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        warn!(%error, "cannot have more descriptors than at the start");
    }
}

async fn serve(args: &ServerArgs, instance: Instance, records: Records) -> Result<()> {
    // Before anyone can know that we are here: a stop asked for during the start is heard at its end.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let endpoint = Endpoint::bind(args.api, &instance.dir, &args.api_name).await?;
    let address = endpoint.address;
    let control = Control::open(&instance.dir).context("cannot open the control socket")?;
    let root_ca = Some(endpoint.keys.ca_pem());
    let nodes = Arc::new(RemoteNodes::new(endpoint.keys.clone()));
    let mut plane = ControlPlane::start(&instance.dir, address, nodes, root_ca, &records).await?;
    plane.start_controllers(settings(&args.controllers));
    let kubeconfig = endpoint.write_kubeconfig(&instance.dir)?;
    let _memory = memory::give_back_after(plane.server.worked());
    let serving = endpoint.serve(plane.server.clone(), None).await?;
    let ready = format!("adieu server is ready: https://{address}\n  export KUBECONFIG={}\n", kubeconfig.display());
    logging::stdout().say(ready.as_bytes());
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

/// Makes the kubeconfig of a node. The server may run meanwhile; it need not.
fn add_node(dir: &Path, name: &str, server: Option<&str>, output: Option<&Path>) -> Result<()> {
    let name = config::valid_name(name.to_owned())?;
    let place = dir.display();
    let not_yet = || format!("no server has run on {place}; start `adieu server` (or `adieu up`) on it first");
    let keys = pki::read(&dir.join("pki")).with_context(|| format!("cannot read the keys in {place}"))?;
    let keys = keys.with_context(not_yet)?;
    let server = match server {
        Some(server) => server.to_owned(),
        None => {
            let text = std::fs::read(dir.join("admin.kubeconfig")).with_context(not_yet)?;
            let config: Value = serde_json::from_slice(&text).with_context(not_yet)?;
            config["clusters"][0]["cluster"]["server"].as_str().with_context(not_yet)?.to_owned()
        }
    };
    let kubeconfig = keys.node_kubeconfig(&name, &server).context("cannot make the node's certificate")?;
    match output {
        Some(path) => {
            pki::write_kubeconfig(path, &kubeconfig).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(io::stdout(), "node {name} may join {server} with {}", path.display()).context("cannot write")
        }
        None => io::stdout().write_all(kubeconfig.as_bytes()).context("cannot write"),
    }
}
