//! Timelines kept in files, reviewed as prose.

use std::path::Path;

/// Compares `told` with `dir/name.txt`, or writes that file if `UPDATE_TIMELINES` is set.
#[track_caller]
pub fn check(dir: &str, name: &str, told: &str) {
    let path = Path::new(dir).join(name).with_extension("txt");
    if std::env::var_os("UPDATE_TIMELINES").is_some() {
        std::fs::create_dir_all(dir).expect("the folder of timelines can be made");
        std::fs::write(&path, told).expect("a timeline can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; write it with UPDATE_TIMELINES=1", path.display()));
    assert!(kept == told, "{} tells another story than this (UPDATE_TIMELINES=1 keeps it):\n{told}", path.display());
}
