//! The node's own files on the way of a pod: who waits for the disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use timeline::{Journal, JournalError, Life, Pause, Serving};

/// How the node waits for its disk.
#[derive(Clone)]
pub enum Files {
    /// By threads, so that a slow disk holds up nobody else.
    Threads,
    /// On the spot, after a pause that is told what for: for a world whose clock would run away from a thread.
    InLine(Pause),
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads => "Threads",
            Self::InLine(_) => "InLine",
        })
    }
}

impl Files {
    /// Does something that waits for the disk.
    pub async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?,
            Self::InLine(pause) => {
                pause(what).await;
                work()
            }
        }
    }

    /// Everything in a file.
    pub async fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let path = path.to_owned();
        self.run("files.read", move || std::fs::read(path)).await
    }

    /// Puts `content` in the place of a file, whole; durably, if that is asked for.
    pub async fn replace(&self, path: &Path, draft: PathBuf, content: Vec<u8>, durably: bool) -> io::Result<()> {
        let path = path.to_owned();
        let work = move || {
            let mut file = std::fs::File::create(&draft)?;
            io::Write::write_all(&mut file, &content)?;
            if durably {
                file.sync_data()?;
            }
            std::fs::rename(draft, &path)?;
            // A name is as durable as its folder, and so is the folder's own.
            for folder in path.ancestors().skip(1).take(if durably { 2 } else { 0 }) {
                std::fs::File::open(folder)?.sync_all()?;
            }
            Ok(())
        };
        self.run("files.replace", work).await
    }

    /// Makes a directory and all above it.
    pub async fn make_dir(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.run("files.make_dir", move || std::fs::create_dir_all(path)).await
    }

    /// The names of everything in these directories, sorted.
    pub async fn list(&self, dirs: Vec<PathBuf>) -> io::Result<Vec<String>> {
        let work = move || {
            let mut names = std::collections::BTreeSet::new();
            for dir in dirs {
                for entry in std::fs::read_dir(dir)? {
                    names.extend(entry?.file_name().into_string());
                }
            }
            Ok(names.into_iter().collect())
        };
        self.run("files.list", work).await
    }

    /// Deletes a directory and all below it. What is already gone stays gone.
    pub async fn delete_tree(&self, dir: PathBuf) -> io::Result<()> {
        let work = move || match file_tree::delete_tree(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        self.run("files.delete_tree", work).await
    }

    /// What a path leads to.
    pub async fn file_type(&self, path: &Path) -> io::Result<std::fs::FileType> {
        let path = path.to_owned();
        self.run("files.file_type", move || Ok(std::fs::metadata(path)?.file_type())).await
    }

    /// Opens the journal; what it answers besides has to be polled, if there is anything.
    pub(crate) async fn open_journal(
        &self,
        path: &Path,
        boot_id: &str,
    ) -> Result<(Journal, Vec<Life>, Option<Serving>), JournalError> {
        match self {
            Self::Threads => Journal::open(path, boot_id).await.map(|(journal, lives)| (journal, lives, None)),
            Self::InLine(pause) => Journal::open_in_line(path, boot_id, Arc::clone(pause))
                .map(|(journal, lives, serving)| (journal, lives, Some(serving))),
        }
    }
}
