//! What `adieu up` refuses to start without: it says what is missing and what to do, and leaves no pod range or link behind.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use e2e::{Instance, leftovers};

fn ensure_refused(output: &Output, words: &[&str]) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(words.iter().all(|word| said.contains(word)), "{said:?} without {words:?}");
    ensure!(said.lines().count() == 1 && said.starts_with("adieu: "), "one line says it all: {said}");
    Ok(())
}

/// Whoever is not root is told before anything is made.
#[test]
fn adieu_without_root_says_so() -> Result<()> {
    // Where anybody may go; the tree itself may be root's alone.
    let place = tempfile::Builder::new().prefix("adieu-refusal-").tempdir()?;
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777))?;
    let program = place.path().join("adieu");
    // By another process: a child of this one could keep it open for writing, and what is written to is not run.
    let copied = Command::new("install").args(["-m", "755"]).arg(e2e::adieu()).arg(&program).status()?;
    ensure!(copied.success(), "no program; build it with scripts/build");
    for command in ["up", "node", "down"] {
        let folder = place.path().join(command);
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        nobody.arg(command).arg("--data-dir").arg(&folder);
        ensure_refused(&nobody.output()?, &["containers need root", "sudo"]).context(command)?;
        ensure!(!folder.exists(), "{command} has made its folder");
    }
    Ok(())
}

/// Without control groups nobody could be sure that all of a container has ended. Where none are mounted it mounts what
/// it needs, unless it may not.
#[test]
fn adieu_without_cgroups_says_so() -> Result<()> {
    let place = tempfile::Builder::new().prefix("adieu-refusal-").tempdir()?;
    // A machine without them: nobody else's mounts change.
    let mut without = Command::new("unshare");
    let script = "umount --recursive /sys/fs/cgroup; \
                  for at in $(awk '$3 == \"cgroup2\" { print $2 }' /proc/mounts); do umount \"$at\"; done; \
                  exec timeout 60 setpriv --bounding-set -sys_admin --inh-caps -sys_admin \"$@\"";
    without.args(["--mount", "sh", "-c", script, "sh"]);
    without.arg(e2e::adieu()).args(["up", "--data-dir"]).arg(place.path());
    without.args(["--api", "127.0.0.1:0", "--pod-cidr", "10.99.0.0/16", "--node-name", "without"]);
    ensure_refused(&without.output()?, &["no cgroup2 hierarchy is mounted", "mount -t cgroup2 none /sys/fs/cgroup"])
}

/// What others have is named, with the option that asks for something else.
#[tokio::test(flavor = "multi_thread")]
async fn taken_address_range_or_name_is_refused_and_named() -> Result<()> {
    let instance = Instance::start().await?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let taken = taken.local_addr()?.to_string();
    let place = tempfile::Builder::new().prefix("adieu-refusal-").tempdir()?;
    let refused = |api: &str, cidr: &str, name: &str| {
        let mut command = Command::new(e2e::adieu());
        command.args(["up", "--api", api, "--pod-cidr", cidr, "--node-name", name, "--data-dir"]).arg(place.path());
        command.output()
    };
    ensure_refused(&refused(&taken, "10.99.0.0/16", "other")?, &["cannot listen on", &taken, "--api"])?;
    let cidr = instance.pod_cidr();
    ensure_refused(&refused("127.0.0.1:0", cidr, "other")?, &[cidr, "is not free", "--pod-cidr"])?;
    // Nobody ends what never began.
    let id = std::fs::read_to_string(place.path().join("instance"))?;
    ensure!(!leftovers::has_control_group(id.trim()), "a control group is left of one that could not begin");
    let second = instance.adieu(&["up"]).output().await?;
    ensure_refused(&second, &["another adieu runs on", "--data-dir"])
}
