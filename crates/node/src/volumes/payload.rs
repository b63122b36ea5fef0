//! Files that change all at once: the directory layout of volumes whose content comes from the API.
//!
//! ```text
//! VOLUME/..2026_11_15_..../key        the files
//! VOLUME/..data -> ..2026_11_15_...   replaced by a rename, so that a reader sees all old files or all new ones
//! VOLUME/key -> ..data/key            what programs open
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// One file of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct File {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
    /// Root, unless somebody else is the only one who may read it.
    pub(super) owner: Option<u32>,
}

/// The files of a volume by their path in it, and whose group they are.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Payload {
    pub(super) files: BTreeMap<String, File>,
    pub(super) group: Option<u32>,
}

impl Payload {
    /// Whether a volume was made here before.
    pub(super) fn is_written(volume: &Path) -> bool {
        volume.join(DATA).exists()
    }

    /// Makes the volume hold exactly these files. A volume that does already is not touched.
    pub(super) fn write(&self, volume: &Path, now: jiff::Timestamp) -> io::Result<()> {
        if let Some(bad) = self.files.keys().find(|path| !stays_inside(path)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{bad:?} is not a path inside the volume"),
            ));
        }
        fs::create_dir_all(volume)?;
        self.open_to_group(volume, 0o755)?;
        let before = fs::read_link(volume.join(DATA)).ok().map(|name| volume.join(name));
        if before.as_deref().is_some_and(|dir| self.is_in(dir)) {
            return self.link(volume);
        }
        let stamp = now.strftime("..%Y_%m_%d_%H_%M_%S.%f").to_string();
        let fresh = volume.join(&stamp);
        fs::create_dir(&fresh)?;
        self.open_to_group(&fresh, 0o755)?;
        for (path, file) in &self.files {
            let target = fresh.join(path);
            for above in target.ancestors().skip(1).take_while(|above| *above != fresh).collect::<Vec<_>>().iter().rev()
            {
                fs::create_dir_all(above)?;
                self.open_to_group(above, 0o755)?;
            }
            fs::write(&target, &file.content)?;
            self.open_to_group(&target, file.mode)?;
            if file.owner.is_some() {
                chown(&target, file.owner, None)?;
            }
        }
        // A link that an earlier agent did not live to rename.
        let _ = fs::remove_file(volume.join(NEXT));
        symlink(&stamp, volume.join(NEXT))?;
        fs::rename(volume.join(NEXT), volume.join(DATA))?;
        self.link(volume)?;
        self.sweep(volume, &stamp)
    }

    /// Whether a directory holds exactly these files.
    fn is_in(&self, dir: &Path) -> bool {
        let mut found = BTreeMap::new();
        read_below(dir, dir, &mut found).is_ok()
            && found.len() == self.files.len()
            && self.files.iter().all(|(path, file)| {
                found.get(path).is_some_and(|(content, mode, owner)| {
                    *content == file.content
                        && *mode == self.shared_mode(file.mode, false)
                        && file.owner.is_none_or(|asked| asked == *owner)
                })
            })
    }

    /// Makes the names that programs open, and takes away those that lead nowhere any more.
    fn link(&self, volume: &Path) -> io::Result<()> {
        let wanted: BTreeSet<&str> = self.files.keys().filter_map(|path| path.split('/').next()).collect();
        for name in &wanted {
            let (link, target) = (volume.join(name), Path::new(DATA).join(name));
            if fs::read_link(&link).is_ok_and(|found| found == target) {
                continue;
            }
            let next = volume.join(format!("..next-{name}"));
            let _ = fs::remove_file(&next);
            symlink(&target, &next)?;
            fs::rename(&next, &link)?;
        }
        for entry in fs::read_dir(volume)?.flatten() {
            let name = entry.file_name();
            let ours = fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(DATA));
            if ours && !name.to_str().is_some_and(|name| wanted.contains(name)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Deletes former generations. Whoever has a file of one open keeps it.
    fn sweep(&self, volume: &Path, current: &str) -> io::Result<()> {
        for entry in fs::read_dir(volume)?.flatten() {
            let former = entry.file_name().to_str().is_some_and(|name| name.starts_with("..2") && name != current);
            if former && entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn open_to_group(&self, path: &Path, mode: u32) -> io::Result<()> {
        let directory = path.is_dir();
        if let Some(group) = self.group {
            chown(path, None, Some(group))?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(self.shared_mode(mode, directory)))
    }

    /// A group that was asked for may read, whatever the mode says of others.
    fn shared_mode(&self, mode: u32, directory: bool) -> u32 {
        match (self.group.is_some(), directory) {
            (false, _) => mode,
            (true, false) => mode | 0o440,
            (true, true) => mode | 0o2550,
        }
    }
}

fn stays_inside(path: &str) -> bool {
    !path.is_empty() && !path.starts_with("..") && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Content, mode and owner.
type Found = BTreeMap<String, (Vec<u8>, u32, u32)>;

fn read_below(root: &Path, dir: &Path, found: &mut Found) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            read_below(root, &path, found)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            let about = fs::metadata(&path)?;
            found.insert(name.to_owned(), (fs::read(&path)?, about.mode() & 0o7777, about.uid()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |content: &str| File { content: content.as_bytes().to_vec(), mode: 0o644, owner: None };
        Payload { files: files.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect(), group: None }
    }

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn names(volume: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(volume).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with("..2"));
        names.sort();
        names
    }

    #[test]
    fn files_change_all_at_once_and_an_open_directory_stays_whole() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        payload(&[("a", "1"), ("b/c", "1"), ("old", "x")]).write(&volume, at(1)).unwrap();
        assert_eq!(names(&volume), ["..data", "a", "b", "old"]);
        let generation = fs::read_link(volume.join("..data")).unwrap();
        payload(&[("a", "1"), ("b/c", "1"), ("old", "x")]).write(&volume, at(2)).unwrap();
        assert_eq!(fs::read_link(volume.join("..data")).unwrap(), generation, "nothing changed, nothing is touched");
        payload(&[("a", "2"), ("b/c", "2"), ("new", "y")]).write(&volume, at(3)).unwrap();
        assert_eq!(names(&volume), ["..data", "a", "b", "new"]);
        let text = |name: &str| fs::read_to_string(volume.join(name)).unwrap();
        assert_eq!((text("a"), text("b/c"), text("new")), ("2".into(), "2".into(), "y".into()));
        let generations = fs::read_dir(&volume).unwrap().flatten().filter(|e| e.file_type().unwrap().is_dir()).count();
        assert_eq!(generations, 1, "former generations are deleted");
    }

    #[test]
    fn volume_write_after_a_crash_completes_the_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        payload(&[("a", "1")]).write(dir.path(), at(1)).unwrap();
        // Died before the rename, and after it but before the names.
        fs::create_dir(dir.path().join("..2020_01_01")).unwrap();
        symlink("..2020_01_01", dir.path().join("..data_tmp")).unwrap();
        fs::remove_file(dir.path().join("a")).unwrap();
        payload(&[("a", "1")]).write(dir.path(), at(2)).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
        payload(&[("a", "2")]).write(dir.path(), at(3)).unwrap();
        assert_eq!(names(dir.path()), ["..data", "a"]);
    }

    #[test]
    fn volume_path_that_escapes_or_names_internals_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "a/../../x", "/x", "..data", "..data/x", "a//b", ""] {
            assert!(payload(&[(path, "x")]).write(dir.path(), at(1)).is_err(), "{path}");
        }
    }

    #[test]
    fn volume_files_are_readable_by_their_fs_group() {
        let dir = tempfile::tempdir().unwrap();
        let mut secret = payload(&[("key", "x")]);
        secret.group = Some(4711);
        secret.files.get_mut("key").unwrap().mode = 0o400;
        secret.write(dir.path(), at(1)).unwrap();
        let about = fs::metadata(dir.path().join("key")).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!((about.mode() & 0o7777, about.gid()), (0o440, 4711));
    }
}
