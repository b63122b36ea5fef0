//! `adieu down`: every pod ends gracefully, then nothing of the instance is left on the machine but its files.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use cli::DownArgs;
use logging::Outlet;
use node::ShutdownGrace;
use runtime::verbs::*;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::control::{self, DownAnswer, ShutdownRequester};
use crate::control_plane::Records;
use crate::instance::{Instance, RETRY, require_root};
use crate::machine::Machine;
use crate::membership::Membership;
use crate::platform::Platform;
use crate::stop::Signals;
use crate::up::log_at;

/// What shells answer of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// How it went.
enum Down {
    /// Nothing of the instance was on the machine.
    Already,
    /// Nothing is any more.
    Done,
    /// Whoever asked does not want to wait.
    StoppedWaiting,
}

/// Asks the running instance, or does it alone if none runs on the folder.
pub(crate) fn run(args: &DownArgs) -> Result<ExitCode> {
    require_root()?;
    let dir = std::path::absolute(&args.data_dir.path)?;
    // Pods end, whether or not anybody reads how.
    let out = logging::stdout();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    let (place, grace_most) = (dir.display(), args.grace_most());
    let (text, code) = match runtime.block_on(down(&dir, grace_most, &out))? {
        Down::Already => (format!("nothing to do: nothing of {place} is on this machine"), ExitCode::SUCCESS),
        Down::Done => (format!("adieu is down; stored objects stay in {place}"), ExitCode::SUCCESS),
        Down::StoppedWaiting => (
            "not down yet: pods that were asked to leave still do; `adieu down` waits for them, with --now not for long".to_owned(),
            ExitCode::from(INTERRUPTED),
        ),
    };
    out.say(format!("{text}\n").as_bytes());
    Ok(code)
}

async fn down(dir: &Path, grace_most: Option<Duration>, out: &Outlet) -> Result<Down> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let instance = loop {
        // `adieu server` has no pods, and leaves nothing to remember.
        if !Config::is_remembered(dir) && !Instance::is_taken(dir)? {
            return Ok(Down::Already);
        }
        if let Some(instance) = Instance::try_take(dir)? {
            break instance;
        }
        let answer = tokio::select! {
            answer = control::ask_down(dir, grace_most, out) => answer?,
            () = signals.heard() => return Ok(Down::StoppedWaiting),
        };
        if answer == DownAnswer::Done {
            // Whoever runs `adieu up` next finds the folder free.
            while Instance::try_take(dir)?.is_none() {
                tokio::time::sleep(RETRY).await;
            }
            return Ok(Down::Done);
        }
        // The lock is held but nobody listens: it is just starting, or just ending. Wait for either.
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = signals.heard() => return Ok(Down::StoppedWaiting),
        }
    };
    log_at(0);
    tokio::select! {
        outcome = alone(instance, grace(grace_most)) => outcome.map(|()| Down::Done),
        () = signals.heard() => Ok(Down::StoppedWaiting),
    }
}

/// What pods have.
fn grace(most: Option<Duration>) -> ShutdownGrace {
    most.map_or(ShutdownGrace::FullGrace, ShutdownGrace::AtMost)
}

async fn alone(instance: Instance, grace: ShutdownGrace) -> Result<()> {
    let config = Config::recall(&instance.dir)?;
    if config.member.is_some() {
        let membership = Membership::kept(&instance.dir)?;
        let machine = Machine::start(&config, &instance, membership.client()?, None, None).await?;
        let outcome = end_aloud(&machine, grace).await;
        machine.node.stop().await;
        return outcome;
    }
    // Pods end without what is encrypted; it stays as it is.
    let plane = Platform::start_plane(&config, &instance, None, &Records::default()).await;
    match plane {
        Ok(plane) => {
            let platform = plane.start_machine(&config, &instance).await?;
            let outcome = end_aloud(&platform.machine, grace).await;
            platform.stop().await;
            outcome
        }
        Err(error) => without_store(&config, &instance, grace, &error).await,
    }
}

/// Ends the pods of an instance whose store cannot be used: the node's journal and the runtime know them. What becomes of
/// them is told to nobody; their objects stay as they are.
async fn without_store(
    config: &Config,
    instance: &Instance,
    grace: ShutdownGrace,
    error: &anyhow::Error,
) -> Result<()> {
    let text = "adieu: the pods are ended from the node's own records, and their objects stay as they are stored";
    logging::stderr().say(format!("adieu: {error:#}\n{text}\n").as_bytes());
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no API server"))
    });
    // As one whose server is away.
    let config = Config { member: Some(config.node_address()), ..config.clone() };
    let machine = Machine::start(&config, instance, kube::Client::new(silent, "default"), None, None).await?;
    let outcome = end_aloud(&machine, grace).await;
    machine.node.stop().await;
    outcome
}

/// Ends everything, telling whoever started us.
async fn end_aloud(machine: &Machine, grace: ShutdownGrace) -> Result<()> {
    let (told, mut lines) = mpsc::unbounded_channel::<String>();
    let printing = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            logging::stdout().say(format!("{line}\n").as_bytes());
        }
    });
    let outcome = end(machine, grace, |line| drop(told.send(line))).await;
    drop(told);
    let _ = printing.await;
    outcome
}

/// Ends everything for someone who asked over the control socket.
pub(crate) async fn end_everything(machine: &Machine, mut asker: ShutdownRequester) -> Result<()> {
    let grace = grace(asker.grace_most);
    let (told, mut lines) = mpsc::unbounded_channel::<String>();
    let telling = async {
        while let Some(line) = lines.recv().await {
            asker.tell(&line).await;
        }
        asker
    };
    let ending = async {
        let outcome = end(machine, grace, |line| drop(told.send(line))).await;
        drop(told);
        outcome
    };
    let (outcome, asker) = tokio::join!(ending, telling);
    if outcome.is_ok() {
        asker.done().await;
    }
    outcome
}

async fn end(machine: &Machine, grace: ShutdownGrace, mut tell: impl FnMut(String)) -> Result<()> {
    let mut before = None;
    machine.leaves(true);
    let left = machine
        .node
        .shut_down_pods(grace, |leaving| {
            if before.replace(leaving.len()) != Some(leaving.len()) {
                tell(match leaving {
                    [] => "every pod has left".to_owned(),
                    [one] => format!("1 pod is leaving: {one}"),
                    some => format!("{} pods are leaving: {}", some.len(), some.join(", ")),
                });
            }
        })
        .await;
    left.context("some pods are still here; run `adieu down` again")?;
    let services = machine.remove_services().await;
    machine.runtime.tear_down().await.context("cannot remove everything from this machine")?;
    machine.node.tear_down().context("cannot remove everything from this machine")?;
    services?;
    Config::forget(&machine.data_dir)
}
