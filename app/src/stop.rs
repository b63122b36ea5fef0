//! Why an instance with pods stops, and how it leaves: with its pods, or without them.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use node::ShutdownGrace;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{info, warn};

use crate::config::Config;
use crate::control::{Answering, ShutdownRequester};
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
    Down(ShutdownRequester),
    /// The machine goes down: end them within the time it can wait.
    Power,
    /// The same, said by logind, which waits for as long as this is held.
    Announced(Option<OwnedFd>),
}

/// What becomes of a machine that was to go down.
enum Outlook {
    GoesDown,
    StaysUp,
}

/// Runs until told to stop or until the node breaks, and lets the pods leave if they have to.
pub(crate) async fn when_told(
    machine: &mut Machine,
    config: &Config,
    control: &mut Answering,
    signals: &mut Signals,
) -> Result<()> {
    let mut logind = config.shutdown.as_ref().map(|budgets| logind::listen(budgets.total(node::FLUSH)));
    let shutdown_grace = config.shutdown.clone().map(ShutdownGrace::Within);
    let stop = loop {
        let stop = tokio::select! {
            stop = signals.told() => stop,
            asker = control.asked_down() => Stop::Down(asker),
            lock = announced(&mut logind) => Stop::Announced(lock),
            error = machine.node.failed() => return Err(anyhow::Error::new(error).context("the node cannot go on")),
        };
        let Stop::Announced(lock) = stop else { break stop };
        match shut_down_with_machine(machine, shutdown_grace.clone(), signals, &mut logind, lock).await? {
            Outlook::GoesDown => return Ok(()),
            Outlook::StaysUp => {}
        }
    };
    match stop {
        Stop::Power if shutdown_grace.is_none() => {
            warn!("the machine goes down, and no time is set aside for pods; stopping without them");
            Ok(())
        }
        Stop::Power => {
            report_shutdown_deadline(&shutdown_grace);
            tokio::select! {
                outcome = power_off(machine, shutdown_grace) => outcome,
                () = signals.heard() => {
                    warn!("stopping before every pod has left");
                    Ok(())
                }
            }
        }
        Stop::Signal | Stop::Announced(_) => {
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
    loop {
        if let Announcement::GoingDown(lock) = next(logind).await {
            return lock;
        }
    }
}

/// Lets the pods leave while logind waits, then the machine go down; unless that is called off, before or after.
async fn shut_down_with_machine(
    machine: &Machine,
    shutdown_grace: Option<ShutdownGrace>,
    signals: &mut Signals,
    logind: &mut Option<UnboundedReceiver<Announcement>>,
    lock: Option<OwnedFd>,
) -> Result<Outlook> {
    // systemd takes whoever says that it stops by its word, and ends it some time later: that is not said before it asks.
    notify::status("the machine goes down; pods leave");
    let mut locks = Vec::from_iter(lock);
    let mut told_to_stop = false;
    let mut leaving = pin!(power_off(machine, shutdown_grace.clone()));
    loop {
        tokio::select! {
            outcome = &mut leaving => {
                outcome?;
                break;
            }
            // Only says what logind has said already.
            _ = signals.term.recv(), if !told_to_stop => {
                told_to_stop = true;
                report_shutdown_deadline(&shutdown_grace);
            }
            _ = signals.interrupt.recv() => {
                warn!("stopping before every pod has left");
                return Ok(Outlook::GoesDown);
            }
            news = next(logind) => match news {
                // A logind that was started anew says it again, and waits for the lock it gave.
                Announcement::GoingDown(lock) => locks.extend(lock),
                // Whoever told us to stop waits for that.
                Announcement::CalledOff if told_to_stop => return Ok(Outlook::GoesDown),
                Announcement::CalledOff => return stays_up(machine, signals).await,
            },
        }
    }
    // Now the machine may go down. Nobody is to start us again before it has, so we stay until we are told.
    drop(locks);
    if told_to_stop {
        return Ok(Outlook::GoesDown);
    }
    loop {
        tokio::select! {
            () = signals.heard() => {
                notify::stopping("every pod has left", Duration::ZERO);
                return Ok(Outlook::GoesDown);
            }
            news = next(logind) => match news {
                Announcement::GoingDown(lock) => drop(lock),
                Announcement::CalledOff => return stays_up(machine, signals).await,
            },
        }
    }
}

/// The machine does not go down after all: the node takes on pods again when those who were asked have left.
async fn stays_up(machine: &Machine, signals: &mut Signals) -> Result<Outlook> {
    warn!("the shutdown of the machine was called off");
    tokio::select! {
        resumed = machine.node.call_off_shutdown() => {
            resumed.context("the node stopped before it could go on")?;
            machine.leaves(false);
            notify::status("the machine stays up; pods are taken on again");
            Ok(Outlook::StaysUp)
        }
        () = signals.heard() => Ok(Outlook::GoesDown),
    }
}

/// What logind says next; never, if it is not listened to.
async fn next(logind: &mut Option<UnboundedReceiver<Announcement>>) -> Announcement {
    match logind {
        Some(heard) => match heard.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Tells whoever started us that we end, and how long that may take.
fn report_shutdown_deadline(shutdown_grace: &Option<ShutdownGrace>) {
    if let Some(ShutdownGrace::Within(budgets)) = shutdown_grace {
        notify::stopping("the machine goes down; pods leave", budgets.total(node::FLUSH));
    }
}

/// Ends every pod in the order and the time that a shutdown of the machine leaves.
async fn power_off(machine: &Machine, shutdown_grace: Option<ShutdownGrace>) -> Result<()> {
    let Some(shutdown_grace) = shutdown_grace else { return Ok(()) };
    info!("the machine goes down; pods leave");
    machine.leaves(true);
    let left = machine.node.shut_down_pods(shutdown_grace, |leaving| info!(?leaving, "pods are leaving")).await;
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
