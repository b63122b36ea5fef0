//! `adieu node`: a node alone, which joins a server elsewhere.
//!
//! It looks after its pods whether or not the server answers: those of an earlier start go on, and what was asked for
//! meanwhile is done when the server is back.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cli::NodeArgs;
use jiff::Timestamp;
use node::streams;
use tokio::net::TcpListener;
use tracing::warn;

use crate::config::Config;
use crate::control::Control;
use crate::instance::{Instance, require_root};
use crate::machine::Machine;
use crate::membership::Membership;
use crate::memory;
use crate::node_renewal::{self, NodeRenewal};
use crate::notify;
use crate::status::Reporter;
use crate::stop::{self, Signals};
use crate::up::log_at;

/// Where kubelets listen.
const PORT: u16 = 10250;

/// Runs until a signal, `adieu down`, or a failure.
pub(crate) fn run(args: &NodeArgs) -> Result<()> {
    require_root()?;
    let dir = std::path::absolute(&args.data_dir.path).context("--data-dir")?;
    let membership = Membership::resolve(&dir, args.kubeconfig.as_deref(), args.server.as_deref())?;
    let mut settings = args.node.clone();
    match &settings.node_name {
        Some(name) if *name != membership.node => bail!(
            "--node-name: the kubeconfig lets in {:?} only; use that name, or make one for {name:?} with `adieu server add-node {name}`",
            membership.node
        ),
        Some(_) | None => settings.node_name = Some(membership.node.clone()),
    }
    let (listen, address) = addresses(args.node_api, &membership, &dir)?;
    let config = Config::resolve_member(&dir, address, &settings)?;
    log_at(args.verbose);
    let instance = Instance::take(&config.data_dir)?;
    membership.keep(&instance.dir)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(serve(config, instance, membership, (listen, address)))
}

/// Where the node listens, and the address that its server is told.
fn addresses(
    asked: Option<SocketAddr>,
    membership: &Membership,
    dir: &std::path::Path,
) -> Result<(SocketAddr, IpAddr)> {
    match asked {
        Some(asked) if !asked.ip().is_unspecified() => Ok((asked, asked.ip())),
        asked => {
            // A machine whose network is not there yet is still where it was.
            let before = || Config::recall(dir).ok().and_then(|before| before.member);
            let found = membership.way_to_server().or_else(|error| before().ok_or(error));
            let address =
                found.context("cannot tell by which address the server reaches this node; say it with --node-api")?;
            Ok((asked.unwrap_or(SocketAddr::new(address, PORT)), address))
        }
    }
}

async fn serve(
    config: Config,
    instance: Instance,
    membership: Membership,
    (listen, address): (SocketAddr, IpAddr),
) -> Result<()> {
    // Before anyone can know that we are here: a stop asked for during the start is heard at its end.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("cannot listen on {listen}; is another node or kubelet there? choose another with --node-api")
    })?;
    let port = listener.local_addr()?.port();
    let serving = node_renewal::kept_serving(&instance.dir, &membership.node)?;
    membership.shown.replace(&membership.keys, serving.as_ref()).context("cannot use the node's certificates")?;
    let tls = membership.keys.endpoint_config(&membership.shown).context("cannot use the node's certificate")?;
    let control = Control::open(&instance.dir).context("cannot open the control socket")?;
    warn_of_expired_certificate(&membership);
    let renewal = NodeRenewal::new(&instance.dir, membership.clone(), address)?;
    let starting = Machine::start(&config, &instance, membership.client()?, Some(port), None);
    let mut machine = config.remember_during(&instance.dir, starting).await?;
    machine.route_services(membership.client()?, false);
    machine.enforce_policies(membership.client()?, false);
    machine.dns.follow(membership.client()?);
    let streams = tokio::spawn(streams::listen(listener, tls, machine.node.containers()));
    let renewing = tokio::spawn(supervision::within("renewal", renewal.run()));
    // A node serves few; what its start needed goes back all the same.
    let _memory = memory::give_back_after(Arc::default());
    let reporter = Reporter::of_member(
        membership.client()?,
        &membership.server,
        Membership::place(&instance.dir),
        (config.node_name.clone(), machine.leaving()),
    );
    let mut control = control.answer(reporter);
    // Pods are looked after from here on, whether or not the server answers.
    notify::ready(&format!("node {}; its server is {}", config.node_name, membership.server));
    let joined = machine.node.joined();
    let (name, server) = (config.node_name.clone(), membership.server.clone());
    let announcing = tokio::spawn(async move {
        joined.await;
        let ready = format!("adieu node is ready: {name} at {server}\n");
        logging::stdout().say(ready.as_bytes());
    });
    let outcome = stop::when_told(&mut machine, &config, &mut control, &mut signals).await;
    announcing.abort();
    renewing.abort();
    streams.abort();
    machine.node.stop().await;
    outcome
}

fn warn_of_expired_certificate(membership: &Membership) {
    if membership.life.1 <= Timestamp::now().as_second() {
        let node = &membership.node;
        warn!(
            "the node's certificate is over: its pods go on, its server does not let it in; make a new one with `adieu server add-node {node}`"
        );
    }
}
