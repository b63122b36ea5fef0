//! `adieu down`: every pod ends gracefully, then nothing of the instance is left on the machine but its files.

use anyhow::{Context, Result};
use cli::DownArgs;
use node::ShutdownGrace;
use runtime::verbs::*;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::control::{self, ShutdownRequester};
use crate::instance::{Instance, RETRY, require_root};
use crate::machine::Machine;
use crate::membership::Membership;
use crate::platform::Platform;
use crate::up::log_at;

/// Asks the running instance, or does it alone if none runs on the folder.
pub(crate) fn run(args: &DownArgs) -> Result<()> {
    require_root()?;
    let dir = std::path::absolute(&args.data_dir.path)?;
    // Pods end, whether or not anybody reads how.
    let out = logging::stdout();
    let instance = loop {
        // `adieu server` has no pods, and leaves nothing to remember.
        if !Config::is_remembered(&dir) && !Instance::is_taken(&dir)? {
            out.say(format!("nothing to do: nothing of {} is on this machine\n", dir.display()).as_bytes());
            return Ok(());
        }
        if let Some(instance) = Instance::try_take(&dir)? {
            break instance;
        }
        if control::ask_down(&dir, &out)? {
            // Whoever runs `adieu up` next finds the folder free.
            while Instance::try_take(&dir)?.is_none() {
                std::thread::sleep(RETRY);
            }
            out.say(format!("adieu is down; stored objects stay in {}\n", dir.display()).as_bytes());
            return Ok(());
        }
        // The lock is held but nobody listens: it is just starting, or just ending. Wait for either.
        std::thread::sleep(RETRY);
    };
    log_at(0);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(alone(instance))?;
    out.say(format!("adieu is down; stored objects stay in {}\n", dir.display()).as_bytes());
    Ok(())
}

async fn alone(instance: Instance) -> Result<()> {
    let config = Config::recall(&instance.dir)?;
    if config.member.is_some() {
        let membership = Membership::kept(&instance.dir)?;
        let machine = Machine::start(&config, &instance, membership.client()?, None, None).await?;
        let outcome = end_aloud(&machine).await;
        machine.node.stop().await;
        return outcome;
    }
    let plane = Platform::start_plane(&config, &instance, None).await;
    match plane {
        Ok(plane) => {
            let platform = plane.start_machine(&config, &instance).await?;
            let outcome = end_aloud(&platform.machine).await;
            platform.stop().await;
            outcome
        }
        Err(error) => without_store(&config, &instance, &error).await,
    }
}

/// Ends the pods of an instance whose store cannot be used: the node's journal and the runtime know them. What becomes of
/// them is told to nobody; their objects stay as they are.
async fn without_store(config: &Config, instance: &Instance, error: &anyhow::Error) -> Result<()> {
    let text = "adieu: the pods are ended from the node's own records, and their objects stay as they are stored";
    logging::stderr().say(format!("adieu: {error:#}\n{text}\n").as_bytes());
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no API server"))
    });
    // As one whose server is away.
    let config = Config { member: Some(config.node_address()), ..config.clone() };
    let machine = Machine::start(&config, instance, kube::Client::new(silent, "default"), None, None).await?;
    let outcome = end_aloud(&machine).await;
    machine.node.stop().await;
    outcome
}

/// Ends everything, telling whoever started us.
async fn end_aloud(machine: &Machine) -> Result<()> {
    let (told, mut lines) = mpsc::unbounded_channel::<String>();
    let printing = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            logging::stdout().say(format!("{line}\n").as_bytes());
        }
    });
    let outcome = end(machine, |line| drop(told.send(line))).await;
    drop(told);
    let _ = printing.await;
    outcome
}

/// Ends everything for someone who asked over the control socket.
pub(crate) async fn end_everything(machine: &Machine, mut asker: ShutdownRequester) -> Result<()> {
    let (told, mut lines) = mpsc::unbounded_channel::<String>();
    let telling = async {
        while let Some(line) = lines.recv().await {
            asker.tell(&line).await;
        }
        asker
    };
    let ending = async {
        let outcome = end(machine, |line| drop(told.send(line))).await;
        drop(told);
        outcome
    };
    let (outcome, asker) = tokio::join!(ending, telling);
    if outcome.is_ok() {
        asker.done().await;
    }
    outcome
}

async fn end(machine: &Machine, mut tell: impl FnMut(String)) -> Result<()> {
    let mut before = None;
    machine.leaves(true);
    let left = machine
        .node
        .shut_down_pods(ShutdownGrace::FullGrace, |leaving| {
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
