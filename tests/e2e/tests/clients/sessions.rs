//! Everything people do with kubectl, with three generations of it: the sessions in `tests/e2e/sessions`.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::{Instance, Kubectl, Session, complaints};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many sessions are played at once: each command is a process of its own, and most of its time is spent in it.
const AT_ONCE: usize = 3;

/// `SESSION=name` plays only sessions whose names contain it.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_does_what_people_expect() -> Result<()> {
    // Some nodes of these sessions are only data: nobody is to notice that they say nothing.
    let instance = Instance::start_with(&["--node-monitor-grace-period", "3600"]).await?;
    let wanted = std::env::var("SESSION").unwrap_or_default();
    let mut sessions = Session::all(&e2e::workspace().join("tests/e2e/sessions"))?;
    sessions.retain(|session| session.name.contains(&wanted));
    ensure!(!sessions.is_empty(), "no session is called {wanted}");
    let (sessions, turns) = (Arc::new(sessions), Arc::new(Semaphore::new(AT_ONCE)));
    let mut playing = JoinSet::new();
    for kubectl in Kubectl::all(&instance)?.into_iter().map(Arc::new) {
        let minor = kubectl.minor().await?;
        for at in 0..sessions.len() {
            let (kubectl, sessions, turns) = (kubectl.clone(), sessions.clone(), turns.clone());
            playing.spawn(async move {
                let _turn = turns.acquire_owned().await?;
                let session = &sessions[at];
                let outcome = session.play(&kubectl, &format!("{}-{minor}", session.name)).await;
                outcome.map(|skipped| (minor, skipped)).with_context(|| format!("{} with 1.{minor}", session.name))
            });
        }
    }
    let mut problems = Vec::new();
    for outcome in playing.join_all().await {
        match outcome {
            Ok((minor, skipped)) => skipped.iter().for_each(|it| println!("1.{minor} cannot: {it}")),
            Err(problem) => problems.push(format!("{problem:#}")),
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n\n"));
    complaints::ensure_none(&instance, &[])
}
