//! Why a store cannot be opened, in words a person can act on.

use std::io;
use std::path::PathBuf;

use crate::Revision;
use crate::files::FORMAT;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Someone else has it open.
    #[error(
        "the store {} is open in another process; stop that one first, or give this one a data directory of its own",
        path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// It is not what was written.
    #[error(
        "the store {} is damaged; see what with `adieu store check`, then restore a backup with `adieu store restore`, or keep \
         what can be read with `adieu store repair`",
        path.display()
    )]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It is sound, and ends before what it had reached: it was emptied, cut, or replaced by an older copy.
    #[error(
        "the store {} ends at revision {found}, and had reached {known}: it was emptied, cut or replaced by an older copy. Restore a \
         backup with `adieu store restore`, or go on with what is left with `adieu store repair --accept-loss`",
        path.display()
    )]
    Behind {
        /// The folder.
        path: PathBuf,
        /// How far it comes.
        found: Revision,
        /// How far it had come.
        known: Revision,
    },
    /// It is from the future.
    #[error(
        "the store {} has format {found}, and this version reads up to format {FORMAT}; use the version that wrote it",
        path.display()
    )]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The system did not let us.
    #[error("cannot open the store {}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}
