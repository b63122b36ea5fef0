//! The files of a log: the one being written, and those that were set aside when they were full.

use std::fs;
use std::path::{Path, PathBuf};

/// The name of one that was set aside.
pub fn numbered_log(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// The numbers of the files of a log that were set aside, oldest first.
pub fn log_generations(path: &Path) -> Vec<u64> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let number =
        |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(name)?.strip_prefix('.')?.parse::<u64>().ok();
    let mut numbers: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// All files of a log, oldest first, the one being written last; `current` is [`Containers::log_path`](crate::Containers::log_path).
///
/// Two equal answers mean that none was set aside in between: a number is never given twice.
pub fn log_files(current: &Path) -> Vec<PathBuf> {
    let aside = log_generations(current).into_iter().map(|number| numbered_log(current, number));
    aside.chain(current.exists().then(|| current.to_owned())).collect()
}
