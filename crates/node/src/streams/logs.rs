//! A container's log as the body of an answer: from where it was asked for, for as long as it was asked for.

use std::collections::VecDeque;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use super::cri::Renderer;
use super::follow::Watch;
use super::query::LogOptions;
use super::{LogSource, StreamError, tail};

/// How much of the file is read at a time.
const READ: usize = 64 * 1024;

/// Opens the log; everything that can fail for a reason worth telling fails here.
pub(super) async fn body(source: LogSource, options: LogOptions) -> Result<Body, StreamError> {
    let wrong = |error| StreamError::internal(format!("cannot open the log {}", source.path.display()), error);
    let files = open(&source, options.tail_lines).await.map_err(wrong)?;
    if files.is_empty() && !options.follow {
        return Ok(Body::empty());
    }
    let reader = LogReader {
        renderer: Renderer::new(&options),
        buffer: BytesMut::with_capacity(READ),
        files,
        growth: None,
        source,
        options,
    };
    let chunks = futures::stream::try_unfold(reader, |mut reader| async move {
        Ok::<_, io::Error>(reader.next().await?.map(|chunk| (chunk, reader)))
    });
    Ok(Body::from_stream(chunks))
}

/// Opens the files of the log, oldest first, each at the right place; none if the log does not exist yet.
async fn open(source: &LogSource, tail_lines: Option<u64>) -> io::Result<VecDeque<File>> {
    let path = source.path.clone();
    let open = move || {
        let mut files = snapshot(&path)?;
        let Some(mut lines) = tail_lines else { return Ok(files) };
        let mut wanted = VecDeque::new();
        while let Some(mut file) = files.pop_back() {
            let (start, found) = tail::start(&file, lines)?;
            file.seek(SeekFrom::Start(start))?;
            wanted.push_front(file);
            lines -= found;
            if lines == 0 {
                break;
            }
        }
        Ok(wanted)
    };
    let files: io::Result<_> = tokio::task::spawn_blocking(open).await.map_err(io::Error::other)?;
    Ok(files?.into_iter().map(File::from_std).collect())
}

/// All files of the log as they are at one moment.
pub(super) fn snapshot(path: &Path) -> io::Result<VecDeque<std::fs::File>> {
    loop {
        let names = runtime_api::log_files(path);
        let opened: io::Result<VecDeque<_>> = names.iter().map(std::fs::File::open).collect();
        // A file that was set aside meanwhile has left its name to another, and changed the names.
        match opened {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(files) if runtime_api::log_files(path) == names => return Ok(files),
            Ok(_) | Err(_) => {}
        }
    }
}

/// The files that follow `last` in the log. If `last` itself has been deleted meanwhile, all that are left do.
async fn successors(path: PathBuf, last: &File) -> io::Result<Vec<File>> {
    let about = last.metadata().await?;
    // Most of the time the file that has the name is the one being read.
    match tokio::fs::metadata(&path).await {
        Ok(now) if is_same(&now, &about) => return Ok(Vec::new()),
        // The whole log was moved, with its pod's end: nothing follows.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        _ => {}
    }
    let files = tokio::task::spawn_blocking(move || snapshot(&path)).await.map_err(io::Error::other)??;
    let mut found = None;
    for (index, file) in files.iter().enumerate() {
        if is_same(&file.metadata()?, &about) {
            found = Some(index);
        }
    }
    Ok(files.into_iter().skip(found.map_or(0, |index| index + 1)).map(File::from_std).collect())
}

fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

struct LogReader {
    source: LogSource,
    options: LogOptions,
    renderer: Renderer,
    /// What is left to read, the file being read first.
    files: VecDeque<File>,
    growth: Option<Watch>,
    buffer: BytesMut,
}

impl LogReader {
    /// The next piece of output; `None` when all that was asked for is out.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.files.is_empty() && !self.appear().await? {
            return Ok(None);
        }
        let mut out = BytesMut::new();
        while !self.renderer.is_spent() {
            // All questions come before the read: what is written after an empty read then wakes the wait below,
            // what was written before the end is read before the end is believed, and a file that has a successor
            // is not written to any more.
            let complete = !self.options.follow || has_ended(&self.source.ended);
            if self.files.len() == 1 && self.options.follow {
                if !complete && self.growth.is_none() {
                    self.growth = Some(match Watch::growth(&self.source.path) {
                        // Set aside, and its successor is not there yet.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Watch::appearance(&self.source.path)?,
                        watch => watch?,
                    });
                }
                self.files.extend(successors(self.source.path.clone(), &self.files[0]).await?);
            }
            self.buffer.clear();
            let file = self.files.front_mut().expect("the last file stays");
            if file.read_buf(&mut self.buffer).await? > 0 {
                self.renderer.push(&self.buffer, &mut out);
                if !out.is_empty() {
                    return Ok(Some(out.freeze()));
                }
            } else if self.files.len() > 1 {
                self.files.pop_front();
                self.growth = None;
            } else if complete {
                return Ok(None);
            } else if let Some(growth) = &self.growth {
                change_or_end(growth, &mut self.source.ended).await?;
                if growth.is_for_appearance() {
                    self.growth = None;
                }
            }
        }
        Ok(None)
    }

    /// Waits for the log; false if the run ended without one.
    async fn appear(&mut self) -> io::Result<bool> {
        loop {
            let ended = has_ended(&self.source.ended);
            let appearance = Watch::appearance(&self.source.path)?;
            // A log that was not there has nothing old in it to leave out.
            self.files = open(&self.source, None).await?;
            if !self.files.is_empty() || ended {
                return Ok(!self.files.is_empty());
            }
            change_or_end(&appearance, &mut self.source.ended).await?;
        }
    }
}

fn has_ended(ended: &watch::Receiver<bool>) -> bool {
    *ended.borrow() || ended.has_changed().is_err()
}

async fn change_or_end(watch: &Watch, ended: &mut watch::Receiver<bool>) -> io::Result<()> {
    tokio::select! {
        changed = watch.changed() => changed,
        // An error is a dropped sender: the end as well.
        _ = ended.wait_for(|ended| *ended) => Ok(()),
    }
}
