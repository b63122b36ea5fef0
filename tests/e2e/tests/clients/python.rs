//! The Kubernetes client for Python: `tests/e2e/clients/library.py`, by the kubeconfig that people use.

use anyhow::{Result, ensure};
use e2e::{Instance, complaints, workspace};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_finds_nothing_odd() -> Result<()> {
    let instance = Instance::start().await?;
    let python = workspace().join("target/tools/python/bin/python");
    ensure!(python.exists(), "{} is missing; run scripts/setup test", python.display());
    let mut command = Command::new(python);
    command.args(["-W", "error::DeprecationWarning:__main__", "library.py", "--verbose"]);
    command.current_dir(workspace().join("tests/e2e/clients")).env("KUBECONFIG", instance.kubeconfig());
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true).output().await?;
    // unittest tells what it did on standard error.
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "library.py: {}", output.status);
    complaints::ensure_none(&instance, &[])
}
