//! `adieu store`: look whether the stored objects are whole, copy them, bring them back, keep what is left of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use cli::{StoreArgs, StoreCommand};
use store::{Backup, Rebuilt, Report, Store};

use crate::control;
use crate::control_plane;
use crate::instance::Instance;
use crate::up::log_at;

/// Standard input or output.
const STREAM: &str = "-";

pub(crate) fn run(args: &StoreArgs) -> Result<ExitCode> {
    log_at(0);
    let dir = std::path::absolute(&args.data_dir.path)?;
    match &args.command {
        StoreCommand::Check { encryption_config } => check(&dir, encryption_config.as_deref()),
        StoreCommand::Backup { file } => backup(&dir, file).map(|()| ExitCode::SUCCESS),
        StoreCommand::Restore { file } => restore(&dir, file).map(|()| ExitCode::SUCCESS),
        StoreCommand::Repair { accept_loss, encryption_config } => {
            repair(&dir, *accept_loss, encryption_config.as_deref()).map(|()| ExitCode::SUCCESS)
        }
    }
}

fn place(dir: &Path) -> PathBuf {
    dir.join("store")
}

/// The folder, which nobody serves from meanwhile.
fn take(dir: &Path) -> Result<Instance> {
    if !dir.exists() {
        bail!("there is no {}", dir.display());
    }
    let taken = Instance::try_take(dir)?;
    let advice = "stop it first (Ctrl-C, or `systemctl stop adieu`; its pods keep running)";
    taken.with_context(|| format!("adieu runs on {}; {advice}", dir.display()))
}

fn say(line: &str) {
    // All of it, however slowly it is read; whoever stops reading has seen enough.
    let _ = writeln!(io::stdout(), "{line}");
}

fn check(dir: &Path, encryption_config: Option<&Path>) -> Result<ExitCode> {
    let encryption = control_plane::encryption(encryption_config)?;
    let advice = "while it runs, `adieu store backup FILE` reads everything that is stored";
    let _instance = take(dir).context(advice)?;
    let path = place(dir);
    let report = store::check(&path, &encryption)?;
    if !path.exists() && report.known.is_none() {
        say(&format!("there is no store in {} yet", dir.display()));
        return Ok(ExitCode::SUCCESS);
    }
    if report.is_sound() {
        let (objects, revision) = (report.objects, report.revision);
        say(&format!("{} is sound: {objects} objects at revision {revision}", path.display()));
        tell_encrypted(&report);
        // They are whole, and cannot be read with these keys.
        return Ok(if report.locked.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    say(&format!("{} is damaged: {} objects can be read", path.display(), report.objects));
    tell_damage(&report);
    tell_encrypted(&report);
    say("restore a backup with `adieu store restore FILE`, or keep what can be read with `adieu store repair`");
    Ok(ExitCode::FAILURE)
}

/// By which key how much is encrypted, and what the given keys do not open.
fn tell_encrypted(report: &Report) {
    for (key, objects) in &report.encrypted {
        say(&format!("  encrypted by {key}: {objects} objects"));
    }
    for (key, reason) in &report.locked {
        say(&format!("  not readable: {key}: {reason}"));
    }
}

fn tell_damage(report: &Report) {
    for problem in &report.problems {
        say(&format!("  {problem}"));
    }
    if let Some(known) = report.known {
        let found = report.revision;
        say(&format!("  it ends at revision {found}, and had reached {known}: it was cut, emptied or replaced"));
    }
    for lost in &report.lost {
        say(&format!("  lost: {lost}"));
    }
    for key in &report.doubtful {
        say(&format!("  doubtful: {key} was read from a damaged part, and looks whole"));
    }
}

/// From the running instance if there is one, else from the files.
fn backup(dir: &Path, file: &Path) -> Result<()> {
    if file.as_os_str() == STREAM {
        let mut out = BufWriter::new(io::stdout().lock());
        write_backup(dir, &mut out)?;
        return out.flush().context("cannot write the backup");
    }
    if file.exists() {
        bail!("{} is there already; choose another name", file.display());
    }
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let writing = || format!("cannot write {}", part.display());
    // Secrets are in it: a file that somebody else has made is not written to.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(writing),
        _ => {}
    }
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let mut out = BufWriter::new(out.with_context(writing)?);
    let whole = write_backup(dir, &mut out).and_then(|()| {
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .with_context(writing)?;
        let mut written = BufReader::new(File::open(&part).with_context(writing)?);
        Backup::read(&mut written).context("the backup could not be read back")
    });
    match whole {
        Ok(backup) => {
            fs::rename(&part, file).with_context(|| format!("cannot write {}", file.display()))?;
            say(&format!("{}: {} objects at revision {}", file.display(), backup.len(), backup.revision));
            Ok(())
        }
        Err(error) => {
            let _ = fs::remove_file(&part);
            Err(error)
        }
    }
}

fn write_backup(dir: &Path, out: &mut impl Write) -> Result<()> {
    if !place(dir).exists() {
        bail!("there is no store in {}", dir.display());
    }
    loop {
        if control::ask_backup(dir, out)? {
            return Ok(());
        }
        let Some(_instance) = Instance::try_take(dir)? else {
            // It is just starting, or just ending.
            std::thread::sleep(crate::instance::RETRY);
            continue;
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().build().context("cannot start the async runtime")?;
        let store = runtime.block_on(Store::open(&place(dir))).context("cannot open the store")?;
        return store.backup().write(out).context("cannot write the backup");
    }
}

fn restore(dir: &Path, file: &Path) -> Result<()> {
    let backup = if file.as_os_str() == STREAM {
        Backup::read(&mut io::stdin().lock())
    } else {
        let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        Backup::read(&mut BufReader::new(opened))
    };
    let backup = backup.with_context(|| format!("cannot restore {}", file.display()))?;
    if !dir.exists() {
        // A machine that has nothing yet.
        drop(Instance::take(dir)?);
    }
    let _instance = take(dir)?;
    let taken = backup.revision;
    let rebuilt = store::restore(&place(dir), backup).context("cannot restore; the store is as it was")?;
    say(&format!(
        "restored {} objects as of revision {taken}; revisions go on at {}",
        rebuilt.objects, rebuilt.revision
    ));
    tell_aside(&rebuilt);
    Ok(())
}

fn repair(dir: &Path, accept_loss: bool, encryption_config: Option<&Path>) -> Result<()> {
    let encryption = control_plane::encryption(encryption_config)?;
    let _instance = take(dir)?;
    let path = place(dir);
    let looked = store::check(&path, &encryption).context("cannot look into the store")?;
    let repaired = store::repair(&path, accept_loss, &encryption);
    if repaired.is_err() {
        tell_damage(&looked);
    }
    let (report, rebuilt) = repaired.context("nothing was changed")?;
    let Some(rebuilt) = rebuilt else {
        say(&format!("{} is sound; nothing was changed", path.display()));
        return Ok(());
    };
    tell_damage(&report);
    say(&format!("kept {} objects; revisions go on at {}", rebuilt.objects, rebuilt.revision));
    tell_aside(&rebuilt);
    Ok(())
}

fn tell_aside(rebuilt: &Rebuilt) {
    if let Some(aside) = &rebuilt.aside {
        say(&format!("what was there before is in {}; remove it when it is no longer needed", aside.display()));
    }
}
