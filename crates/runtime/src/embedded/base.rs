//! The bottom layer of every container: what is mounted upon, where an image does not have it.
//!
//! Made once. Otherwise every container of a small image would make these again in its writable layer.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::shim::records::make_dir;

const DIRECTORIES: [&str; 4] = ["dev", "etc", "proc", "sys"];
const FILES: [&str; 3] = ["etc/hostname", "etc/hosts", "etc/resolv.conf"];

/// Makes the layer, or what is missing of it. Like an image's, it is open to all in a directory that is not.
pub(super) fn make(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        make_dir(above)?;
    }
    for directory in [""].into_iter().chain(DIRECTORIES) {
        let directory = path.join(directory);
        fs::create_dir_all(&directory)?;
        // Whatever this process's umask is: containers' users look in here.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
    }
    for file in FILES {
        let file = path.join(file);
        File::options().create(true).append(true).open(&file)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}
