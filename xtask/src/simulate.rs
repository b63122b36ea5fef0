//! Stories of the simulated world, on demand.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Passes everything on to `simulate`; `--release` is for many seeds.
pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<()> {
    let (release, rest): (Vec<String>, Vec<String>) = arguments.partition(|argument| argument == "--release");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["run", "--quiet", "--package", "simulation", "--bin", "simulate"]);
    let status = command.args(release).arg("--").args(rest).status().context("cannot run the simulation")?;
    if !status.success() {
        bail!("a law was broken, or there was nothing to play");
    }
    Ok(())
}
