//! What an instance has on this machine outside its files: nothing of it may stay after `adieu down`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::Instance;

/// Everything found that belongs to `instance`, one line each.
pub fn find(instance: &Instance) -> Result<Vec<String>> {
    let dir = instance.dir().to_string_lossy().into_owned();
    let id = instance.id()?;
    let mut found = Vec::new();
    processes(&dir, &mut found)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    found.extend(mounts.lines().filter(|line| line.contains(&dir)).map(|line| format!("mount: {line}")));
    directories(Path::new("/sys/fs/cgroup"), &id, &mut found);
    let links = String::from_utf8(Command::new("ip").args(["-o", "addr", "show"]).output()?.stdout)?;
    let gateway = instance.pod_cidr().replace("0.0/16", "0.1");
    let mine = |line: &&str| line.contains(&format!(" {gateway}/")) || line.contains(id.get(..4).unwrap_or(&id));
    found.extend(links.lines().filter(mine).map(|line| format!("address: {line}")));
    let routes = String::from_utf8(Command::new("ip").args(["route", "show"]).output()?.stdout)?;
    let prefix = instance.pod_cidr().trim_end_matches("0.0/16").to_owned();
    found.extend(routes.lines().filter(|line| line.starts_with(&prefix)).map(|line| format!("route: {line}")));
    Ok(found)
}

fn processes(dir: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(dir) {
            found.push(format!("process {}: {words}", entry.file_name().to_string_lossy()));
        }
    }
    Ok(())
}

/// Control groups that carry the instance's id in their name.
fn directories(root: &Path, id: &str, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(format!("cgroup: {}", entry.path().display()));
            }
            directories(&entry.path(), id, found);
        }
    }
}
