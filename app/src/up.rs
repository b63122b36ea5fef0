//! `adieu up`: everything in one process, until told to stop.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use cli::UpArgs;
use node::Farewell;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::config::Config;
use crate::control::{Answering, Asker, Control};
use crate::endpoint::Endpoint;
use crate::instance::{Instance, require_root};
use crate::platform::Platform;
use crate::status::Reporter;
use crate::{down, notify};

/// What init systems and power supplies send.
const SIGPWR: i32 = 30;

/// Runs until a signal, `adieu down`, or a failure.
pub(crate) fn run(args: &UpArgs) -> Result<()> {
    require_root()?;
    let config = Config::resolve(args)?;
    log_at(args.verbose);
    let instance = Instance::take(&config.data_dir)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(serve(config, instance))
}

/// Why an instance stops.
enum Stop {
    /// A signal: leave the pods running.
    Signal,
    /// `adieu down`: end them first.
    Down(Asker),
    /// The machine goes down: end them within the time it can wait.
    Power,
}

async fn serve(config: Config, instance: Instance) -> Result<()> {
    // Before anyone can know that we are here: a stop asked for during the start is heard at its end.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let api = config.api.context("an instance that is up listens somewhere")?;
    let endpoint = Endpoint::bind(api, &instance.dir, std::slice::from_ref(&config.node_name)).await?;
    let address = endpoint.address;
    let control = Control::open(&instance.dir).context("cannot open the control socket")?;
    let resolved = Config { api: Some(address), ..config.clone() };
    let first = !Config::is_remembered(&instance.dir);
    config.remember()?;
    let mut platform = match Platform::start(&resolved, &instance, Some(endpoint.keys.ca_pem())).await {
        Ok(platform) => platform,
        Err(error) => {
            // A first start that failed has left nothing; its settings are not worth keeping.
            if first {
                Config::forget(&instance.dir)?;
            }
            return Err(error);
        }
    };
    let kubeconfig = endpoint.write_kubeconfig(&instance.dir)?;
    let serving = endpoint.serve(platform.plane.server.clone())?;
    // Whoever started us may not be listening any more; that is no reason to end.
    let ready = format!(
        "adieu is ready: node {} at https://{address}\n  export KUBECONFIG={}\n",
        config.node_name,
        kubeconfig.display()
    );
    let _ = io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush());
    let reporter = Reporter::new(&platform.plane, address, kubeconfig, Some(config.node_name.clone()));
    let mut control = control.answer(reporter);
    notify::ready(&format!("node {} at https://{address}", config.node_name));

    let stop = tokio::select! {
        stop = told_to_stop(&mut control, &mut signals) => stop,
        error = platform.node.failed() => return Err(anyhow::Error::new(error).context("the node cannot go on")),
    };
    let farewell = config.shutdown.clone().map(Farewell::Within);
    let outcome = match stop {
        Stop::Power if farewell.is_none() => {
            warn!("the machine goes down, and no time is set aside for pods; stopping without them");
            Ok(())
        }
        Stop::Power => tokio::select! {
            outcome = power_off(&platform, farewell) => outcome,
            () = signals.heard() => {
                warn!("stopping before every pod has left");
                Ok(())
            }
        },
        Stop::Signal => {
            notify::stopping("pods keep running", Duration::ZERO);
            info!("stopping; pods keep running");
            Ok(())
        }
        Stop::Down(asker) => tokio::select! {
            outcome = down::end_everything(&platform, asker) => outcome,
            // Whoever does not want to wait may leave the rest to a later `adieu down`.
            () = signals.heard() => {
                warn!("stopping before every pod has left");
                Ok(())
            }
        },
    };
    serving.stop().await;
    platform.stop().await;
    outcome
}

/// Ends every pod in the order and the time that a shutdown of the machine leaves.
async fn power_off(platform: &Platform, farewell: Option<Farewell>) -> Result<()> {
    let Some(farewell) = farewell else { return Ok(()) };
    if let Farewell::Within(budgets) = &farewell {
        notify::stopping("the machine goes down; pods leave", budgets.total(node::FLUSH));
    }
    info!("the machine goes down; pods leave");
    let left = platform.node.shut_down_pods(farewell, |leaving| info!(?leaving, "pods are leaving")).await;
    left.context("the node stopped before its pods had left")
}

async fn told_to_stop(control: &mut Answering, signals: &mut Signals) -> Stop {
    tokio::select! {
        stop = signals.told() => stop,
        asker = control.asked_down() => Stop::Down(asker),
    }
}

/// The signals that end us, heard from the moment this is made.
pub(crate) struct Signals {
    term: Signal,
    interrupt: Signal,
    /// The machine is about to lose its power, or goes down.
    power: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            power: signal(SignalKind::from_raw(SIGPWR))?,
        })
    }

    /// Resolves when any of them comes.
    async fn told(&mut self) -> Stop {
        tokio::select! {
            _ = self.term.recv() => Stop::Signal,
            _ = self.interrupt.recv() => Stop::Signal,
            _ = self.power.recv() => Stop::Power,
        }
    }

    /// Resolves when TERM or Ctrl-C comes, or has come since it was last asked.
    pub(crate) async fn heard(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Logs go to standard error: a handful of lines per pod by default.
pub(crate) fn log_at(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::TRACE,
    };
    let colours = crate::wants_colours(&io::stderr());
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_target(false);
    logs.with_ansi(colours).init();
}
