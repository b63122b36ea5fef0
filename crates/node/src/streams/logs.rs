//! A container's log as the body of an answer: from where it was asked for, for as long as it was asked for.

use std::io::{self, Seek, SeekFrom};

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
    let file = open(&source, &options).await.map_err(wrong)?;
    if file.is_none() && !options.follow {
        return Ok(Body::empty());
    }
    let reader = LogReader {
        renderer: Renderer::new(&options),
        buffer: BytesMut::with_capacity(READ),
        file,
        growth: None,
        source,
        options,
    };
    let chunks = futures::stream::try_unfold(reader, |mut reader| async move {
        Ok::<_, io::Error>(reader.next().await?.map(|chunk| (chunk, reader)))
    });
    Ok(Body::from_stream(chunks))
}

/// Opens the file at the right place; `None` if it does not exist.
async fn open(source: &LogSource, options: &LogOptions) -> io::Result<Option<File>> {
    let (path, lines) = (source.path.clone(), options.tail_lines);
    let open = move || {
        let mut file = match std::fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if let Some(lines) = lines {
            let start = tail::start(&file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Some(File::from_std(file)))
    };
    tokio::task::spawn_blocking(open).await.map_err(io::Error::other)?
}

struct LogReader {
    source: LogSource,
    options: LogOptions,
    renderer: Renderer,
    file: Option<File>,
    growth: Option<Watch>,
    buffer: BytesMut,
}

impl LogReader {
    /// The next piece of output; `None` when all that was asked for is out.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.file.is_none() && !self.appear().await? {
            return Ok(None);
        }
        let file = self.file.as_mut().expect("the file has appeared");
        let mut out = BytesMut::new();
        while !self.renderer.is_spent() {
            // Both questions come before the read: what is written after an empty read then wakes the wait below,
            // and what was written before the end is read before the end is believed.
            let complete = !self.options.follow || has_ended(&self.source.ended);
            if !complete && self.growth.is_none() {
                self.growth = Some(Watch::growth(&self.source.path)?);
            }
            self.buffer.clear();
            if file.read_buf(&mut self.buffer).await? > 0 {
                self.renderer.push(&self.buffer, &mut out);
                if !out.is_empty() {
                    return Ok(Some(out.freeze()));
                }
            } else if complete {
                return Ok(None);
            } else if let Some(growth) = &self.growth {
                change_or_end(growth, &mut self.source.ended).await?;
            }
        }
        Ok(None)
    }

    /// Waits for the file; false if the run ended without one.
    async fn appear(&mut self) -> io::Result<bool> {
        loop {
            let ended = has_ended(&self.source.ended);
            let appearance = Watch::appearance(&self.source.path)?;
            // A file that was not there has nothing old in it to leave out.
            let whole = LogOptions { tail_lines: None, ..self.options.clone() };
            self.file = open(&self.source, &whole).await?;
            if self.file.is_some() || ended {
                return Ok(self.file.is_some());
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
