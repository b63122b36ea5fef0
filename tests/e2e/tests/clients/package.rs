//! What `scripts/release` makes: the Debian package and the archive, looked into without installing them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::{adieu, workspace};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

const VERSION: &str = "0.0.1~7.gabc";

/// Runs a program to its end; answers what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {complaints}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The script that makes a release of this program in a folder.
fn release(program: &Path, out: &Path) -> Command {
    let mut script = Command::new(workspace().join("scripts/release"));
    // Quickly: how small the files are is of no interest here.
    script.env("SOURCE_DATE_EPOCH", "1700000000").env("RELEASE_LEVEL", "1");
    script.arg("--binary").arg(program).args(["--version", VERSION]).arg("--out").arg(out);
    script
}

fn only(dir: &Path, suffix: &str) -> Result<PathBuf> {
    let files = fs::read_dir(dir)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let found = files.into_iter().find(|file| file.to_string_lossy().ends_with(suffix));
    found.with_context(|| format!("no {suffix} in {}", dir.display()))
}

/// Of a small stand-in for the program, so that nothing but the packing takes time.
#[test]
fn release_of_the_same_program_is_the_same_whoever_makes_it_and_where() -> Result<()> {
    let dir = TempDir::new()?;
    let program = dir.path().join("program");
    fs::write(
        &program,
        "#!/bin/sh\n[ $1 != man ] || for page in adieu adieu-up; do echo .TH >$2/$page.1; done\necho $2\n",
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    let sums = |name: &str, change: fn(&mut Command) -> &mut Command| {
        let out = dir.path().join(name);
        run(change(&mut release(&program, &out)))?;
        run(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&out))?;
        Ok::<_, anyhow::Error>(fs::read_to_string(out.join("SHA256SUMS"))?)
    };
    let first = sums("first", |script| script)?;
    assert_eq!(first.lines().count(), 2, "{first}");
    assert_eq!(
        sums("second", |script| script.env("TZ", "Asia/Tokyo").env("LC_ALL", "C.UTF-8").env("TMPDIR", "/var/tmp"))?,
        first
    );
    let later = sums("later", |script| script.env("SOURCE_DATE_EPOCH", "1700000001"))?;
    assert_ne!(later, first, "the date is that of SOURCE_DATE_EPOCH");
    Ok(())
}

#[test]
fn package_and_archive_hold_a_program_that_runs_with_all_that_belongs_to_it() -> Result<()> {
    let first = TempDir::new()?;
    run(&mut release(&adieu(), first.path()))?;

    let package = only(first.path(), ".deb")?;
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name));
    assert_eq!((field("Package")?.trim(), field("Version")?.trim()), ("adieu", VERSION));
    let listed = run(Command::new("dpkg-deb").arg("--contents").arg(&package))?;
    ensure!(listed.lines().all(|line| line.contains(" root/root ")), "everything is root's:\n{listed}");
    let root = TempDir::new()?;
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(root.path()))?;
    let at = |path: &str| root.path().join(path);
    for path in [
        "usr/share/bash-completion/completions/adieu",
        "usr/share/zsh/vendor-completions/_adieu",
        "usr/share/fish/vendor_completions.d/adieu.fish",
        "usr/share/man/man1/adieu.1.gz",
        "usr/share/man/man1/adieu-plan.1.gz",
        "usr/share/doc/adieu/copyright",
        "usr/share/doc/adieu/changelog.gz",
        "etc/default/adieu",
    ] {
        ensure!(fs::metadata(at(path)).is_ok_and(|file| file.len() > 0), "{path} is missing:\n{listed}");
    }
    let unit = fs::read_to_string(at("lib/systemd/system/adieu.service"))?;
    ensure!(unit.contains("\nExecStart=/usr/bin/adieu up $ADIEU_OPTIONS\n"), "{unit}");
    ensure!(unit.contains("\nKillMode=process\n") && !unit.contains("/usr/local"), "{unit}");
    let version = run(Command::new(at("usr/bin/adieu")).args(["version", "--client"]))?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for script in ["postinst", "prerm", "postrm"] {
        let mode = fs::metadata(at("DEBIAN").join(script))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{script}");
        run(Command::new("sh").arg("-n").arg(at("DEBIAN").join(script)))?;
    }
    run(Command::new("md5sum").args(["--check", "--quiet", "DEBIAN/md5sums"]).current_dir(root.path()))?;

    let unpacked = TempDir::new()?;
    let archive = only(first.path(), ".tar.gz")?;
    run(Command::new("tar").arg("-xzf").arg(&archive).arg("--strip-components=1").current_dir(unpacked.path()))?;
    for file in ["adieu.service", "LICENSE", "README.md", "INSTALL", "completions/_adieu", "man/adieu-up.1"] {
        ensure!(unpacked.path().join(file).exists(), "the archive has no {file}");
    }
    assert_eq!(run(Command::new(unpacked.path().join("adieu")).args(["version", "--client"]))?, version);
    Ok(())
}

/// The package's last script, about another folder, with the helpers of systemd out of reach.
struct Removal {
    dir: TempDir,
    script: String,
}

impl Removal {
    fn new() -> Result<Self> {
        let dir = TempDir::new()?;
        let script = fs::read_to_string(workspace().join("packaging/debian/postrm"))?;
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("volumes/.trash"))?;
        fs::create_dir_all(data.join("store"))?;
        let script = script.replace("data=/var/lib/adieu\n", &format!("data={}\n", data.display()));
        ensure!(script.contains(&*data.to_string_lossy()), "the script names its folder once");
        for helper in ["deb-systemd-helper", "systemctl"] {
            let path = dir.path().join(helper);
            fs::write(&path, "#!/bin/sh\n")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { dir, script })
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Runs it; answers what it said to whoever removes the package.
    fn run(&self, step: &str) -> Result<String> {
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        let output = Command::new("sh").args(["-c", &self.script, "postrm", step]).env("PATH", path).output()?;
        ensure!(output.status.success(), "{step}: {output:?}");
        Ok(String::from_utf8(output.stderr)?)
    }

    /// A process that looks like that beside a pod of the instance.
    fn shim(&self) -> Result<Shim> {
        // It waits for somebody to write into what it takes for a file.
        mknodat(CWD, self.dir.path().join("shim"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        let pod = self.data().join("pods/uid");
        let mut command = Command::new("/bin/cat");
        command.arg0("adieu").arg("shim").arg(pod).current_dir(self.dir.path()).stdout(Stdio::null());
        Ok(Shim(command.spawn()?))
    }
}

struct Shim(Child);

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn purge_removes_the_data_of_an_instance_that_is_down() -> Result<()> {
    let removal = Removal::new()?;
    assert_eq!(removal.run("remove")?, "");
    ensure!(removal.data().exists(), "a removal keeps it");
    assert_eq!(removal.run("upgrade")?, "");
    assert_eq!(removal.run("purge")?, "");
    ensure!(!removal.data().exists(), "a purge does not");
    assert_eq!(removal.run("purge")?, "", "nor minds that it is gone");
    Ok(())
}

#[test]
fn purge_while_pods_run_keeps_their_data_and_says_so() -> Result<()> {
    let removal = Removal::new()?;
    let shim = removal.shim()?;
    ensure!(removal.run("remove")?.contains("pods keep running"), "a removal says so");
    ensure!(removal.run("purge")?.contains("pods still run"), "a purge says so");
    ensure!(removal.data().join("store").exists(), "and keeps everything");
    drop(shim);
    assert_eq!(removal.run("purge")?, "");
    ensure!(!removal.data().exists());
    Ok(())
}

#[test]
fn purge_keeps_volumes_with_data() -> Result<()> {
    let removal = Removal::new()?;
    fs::create_dir(removal.data().join("volumes/pvc-1"))?;
    ensure!(removal.run("purge")?.contains("persistent volumes"));
    ensure!(removal.data().join("volumes/pvc-1").exists() && removal.data().join("store").exists());
    Ok(())
}
