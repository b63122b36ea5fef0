//! `adieu up`: everything in one process, until told to stop.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use cli::{ControllerSettings, UpArgs};

use crate::config::Config;
use crate::control::Control;
use crate::control_plane::Records;
use crate::endpoint::Endpoint;
use crate::instance::{Instance, require_root};
use crate::memory;
use crate::notify;
use crate::platform::Platform;
use crate::status::Reporter;
use crate::stop::{self, Signals};

/// Runs until a signal, `adieu down`, or a failure.
pub(crate) fn run(args: &UpArgs) -> Result<()> {
    require_root()?;
    let mut config = Config::resolve(&args.data_dir.path, args.api, &args.node)?;
    config.controllers = settings(&args.controllers);
    log_at(args.verbose);
    let records = Records::read(&args.records)?;
    let instance = Instance::take(&config.data_dir)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(serve(config, instance, records))
}

async fn serve(config: Config, instance: Instance, records: Records) -> Result<()> {
    // Before anyone can know that we are here: a stop asked for during the start is heard at its end.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let api = config.api.context("an instance that is up listens somewhere")?;
    let endpoint = Endpoint::bind(api, &instance.dir, &config.api_names()).await?;
    let address = endpoint.address;
    let control = Control::open(&instance.dir).context("cannot open the control socket")?;
    let resolved = Config { api: Some(address), ..config.clone() };
    let starting = Platform::start(&resolved, &instance, Some(&endpoint.keys), &records);
    let mut platform = config.remember_during(&instance.dir, starting).await?;
    let kubeconfig = endpoint.write_kubeconfig(&instance.dir)?;
    let _memory = memory::give_back_after(platform.plane.server.worked());
    let serving = endpoint.serve(platform.plane.server.clone(), Some(config.inside_address())).await?;
    let ready = format!(
        "adieu is ready: node {} at https://{address}\n  export KUBECONFIG={}\n",
        config.node_name,
        kubeconfig.display()
    );
    logging::stdout().say(ready.as_bytes());
    let node = (config.node_name.clone(), platform.machine.leaving());
    let reporter = Reporter::new(&platform.plane, address, kubeconfig, Some(node));
    let mut control = control.answer(reporter);
    notify::ready(&format!("node {} at https://{address}", config.node_name));

    let outcome = stop::when_told(&mut platform.machine, &config, &mut control, &mut signals).await;
    serving.stop().await;
    platform.stop().await;
    outcome
}

/// How patient the controllers are asked to be.
pub(crate) fn settings(args: &ControllerSettings) -> controllers::Settings {
    let node_grace = Duration::from_secs(args.node_monitor_grace_period);
    controllers::Settings { node_grace, ..controllers::Settings::default() }
}

/// Logs go to standard error: a handful of lines per pod by default.
pub(crate) fn log_at(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::TRACE,
    };
    let colours = crate::wants_colours(&io::stderr());
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(logging::stderr).with_target(false);
    // What cannot be formatted is not worth an end: the alternative is `eprintln!`.
    logs.with_ansi(colours).log_internal_errors(false).init();
}
