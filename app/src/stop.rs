//! Why an instance with pods stops, and how it leaves: with its pods, or without them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use node::Farewell;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{info, warn};

use crate::config::Config;
use crate::control::{Answering, Asker};
use crate::logind::Announcement;
use crate::machine::Machine;
use crate::{down, logind, notify};

/// What init systems and power supplies send.
const SIGPWR: i32 = 30;

/// Why an instance stops.
enum Stop {
    /// A signal: leave the pods running.
    Signal,
    /// `adieu down`: end them first.
    Down(Asker),
    /// The machine goes down: end them within the time it can wait.
    Power,
    /// The same, said by logind, which waits for as long as this is held.
    Announced(Option<OwnedFd>),
}

/// Runs until told to stop or until the node breaks, and lets the pods leave if they have to.
pub(crate) async fn when_told(
    machine: &mut Machine,
    config: &Config,
    control: &mut Answering,
    signals: &mut Signals,
) -> Result<()> {
    let mut logind = config.shutdown.as_ref().map(|budgets| logind::listen(budgets.total(node::FLUSH)));
    let stop = tokio::select! {
        stop = signals.told() => stop,
        asker = control.asked_down() => Stop::Down(asker),
        lock = announced(&mut logind) => Stop::Announced(lock),
        error = machine.node.failed() => return Err(anyhow::Error::new(error).context("the node cannot go on")),
    };
    let farewell = config.shutdown.clone().map(Farewell::Within);
    match stop {
        Stop::Power if farewell.is_none() => {
            warn!("the machine goes down, and no time is set aside for pods; stopping without them");
            Ok(())
        }
        Stop::Power => tokio::select! {
            outcome = power_off(machine, farewell) => outcome,
            () = signals.heard() => {
                warn!("stopping before every pod has left");
                Ok(())
            }
        },
        Stop::Announced(lock) => {
            // What systemd sends meanwhile only says what logind has said already.
            let left = tokio::select! {
                outcome = power_off(machine, farewell) => outcome,
                _ = signals.interrupt.recv() => {
                    warn!("stopping before every pod has left");
                    Ok(())
                }
            };
            // Now the machine may go down. Nobody is to start us again before it has, so we stay until we are told.
            drop(lock);
            left?;
            tokio::select! {
                () = signals.heard() => Ok(()),
                () = called_off(&mut logind) => {
                    Err(anyhow!("the shutdown of the machine was called off when its pods had left; start again to run pods"))
                }
            }
        }
        Stop::Signal => {
            notify::stopping("pods keep running", Duration::ZERO);
            info!("stopping; pods keep running");
            Ok(())
        }
        Stop::Down(asker) => tokio::select! {
            outcome = down::end_everything(machine, asker) => outcome,
            // Whoever does not want to wait may leave the rest to a later `adieu down`.
            () = signals.heard() => {
                warn!("stopping before every pod has left");
                Ok(())
            }
        },
    }
}

/// Resolves with its lock when logind says that the machine goes down.
async fn announced(logind: &mut Option<UnboundedReceiver<Announcement>>) -> Option<OwnedFd> {
    while let Some(news) = next(logind).await {
        if let Announcement::GoingDown(lock) = news {
            return lock;
        }
    }
    std::future::pending().await
}

/// Resolves when logind says that the machine does not go down after all.
async fn called_off(logind: &mut Option<UnboundedReceiver<Announcement>>) {
    while let Some(news) = next(logind).await {
        if let Announcement::CalledOff = news {
            return;
        }
    }
    std::future::pending().await
}

async fn next(logind: &mut Option<UnboundedReceiver<Announcement>>) -> Option<Announcement> {
    logind.as_mut()?.recv().await
}

/// Ends every pod in the order and the time that a shutdown of the machine leaves.
async fn power_off(machine: &Machine, farewell: Option<Farewell>) -> Result<()> {
    let Some(farewell) = farewell else { return Ok(()) };
    if let Farewell::Within(budgets) = &farewell {
        notify::stopping("the machine goes down; pods leave", budgets.total(node::FLUSH));
    }
    info!("the machine goes down; pods leave");
    let left = machine.node.shut_down_pods(farewell, |leaving| info!(?leaving, "pods are leaving")).await;
    left.context("the node stopped before its pods had left")
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
