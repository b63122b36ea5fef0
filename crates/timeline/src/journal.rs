//! The writer: records are queued in order, and one writer makes them durable together.
//!
//! The writer is a future that blocks while it writes: a thread of its own runs it, or, where time is simulated, a task.
//!
//! Appending never waits. Whoever awaits an [`Appended`] makes the writer write and sync at once, and everything queued by
//! then rides along; what nobody awaits, or somebody [patiently](Appended::patiently), is written and synced a moment
//! later.
//!
//! A disk that is full, read-only or ill for a while is waited for: the writer tries again, and whoever waits goes on waiting.
//! Room for what has to be recorded while pods end is allocated beforehand. A failure that does not pass is the last
//! word: after it nothing more is written, and everyone is told.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use disk::Reserve;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::compaction::{self, Compaction, CopyBy, CopyError, is_worth_compacting};
use crate::file::Opened;
use crate::index::{Index, Mark};
use crate::life::{Concluded, Life};
use crate::record::{self, Entry, Record};

/// How long a record that nobody awaits may stay in memory.
const LAZY: Duration = Duration::from_millis(50);

/// How long the writer waits before it tries a refused write again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MOST: Duration = Duration::from_secs(1);
/// How often a disk that goes on refusing is told of.
const REMIND: Duration = Duration::from_secs(60);
/// How much room is kept on the disk: for the ends of some thousand pods.
pub(crate) const RESERVE: u64 = 1 << 20;
/// More than so much is not kept in memory for a disk that takes nothing.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Why the journal cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Someone else writes it.
    #[error(
        "the journal {} is in use by another process; stop that one first, or give this one a data directory of its own",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is from the future.
    #[error(
        "the journal {} has records of version {version}, which this version cannot read; use the version that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version found.
        version: u32,
    },
    /// It is something else.
    #[error("{} is not a journal; move it away to start with an empty one", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is not what was written.
    #[error(
        "the journal {} is damaged at byte {offset} ({what}); restore a copy of it, or move it away to forget all pods",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the record starts that cannot be believed.
        offset: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The system did not let us.
    #[error("cannot {doing} the journal {}", path.display())]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

/// Makes records durable for as long as there is a journal to append to. Blocks whoever polls it while it writes.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Awaited right before a write (`journal.write`) and right after it (`journal.written`), where no thread of its own is
/// there to be slow.
pub type Pause = Arc<dyn Fn(&'static str) -> Serving + Send + Sync>;

/// The open journal. Cheap to clone; the last clone dropped writes what is left and closes the file.
#[derive(Clone, Debug)]
pub struct Journal {
    writer: Arc<Writer>,
}

impl Journal {
    /// Opens the journal, or makes it. A record that was never finished is cut off the end; anything else that is wrong is
    /// an error. Answers every life that was not forgotten, in the order they began.
    pub async fn open(path: &Path, boot_id: &str) -> Result<(Self, Vec<Life>), JournalError> {
        let (owned, boot_id) = (path.to_owned(), boot_id.to_owned());
        let opening = tokio::task::spawn_blocking(move || crate::file::open(&owned, &boot_id));
        let opened = opening.await.unwrap_or_else(|gone| std::panic::resume_unwind(gone.into_panic()))?;
        let (mut journal, lives, serving) = Self::over(path, opened, None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|source| JournalError::Io { doing: "serve", path: path.to_owned(), source })?;
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || supervision::or_abort("journal", "the journal's writer", || runtime.block_on(serving)))
            .expect("a thread can be started while the process starts");
        journal.thread = Some(thread);
        Ok((Self { writer: Arc::new(journal) }, lives))
    }

    /// The same without any thread: all is done where it is asked for, and whoever opens it has to poll what is answered
    /// besides. `pause` is awaited around every write.
    pub fn open_in_line(path: &Path, boot_id: &str, pause: Pause) -> Result<(Self, Vec<Life>, Serving), JournalError> {
        let opened = crate::file::open(path, boot_id)?;
        let (writer, lives, serving) = Self::over(path, opened, Some(pause));
        Ok((Self { writer: Arc::new(writer) }, lives, serving))
    }

    fn over(path: &Path, opened: Opened, pause: Option<Pause>) -> (Writer, Vec<Life>, Serving) {
        let Opened { file, end, index, lives, concluded } = opened;
        let shared = Arc::new(Shared::default());
        let copy = if pause.is_some() { CopyBy::Itself } else { CopyBy::Thread };
        let path = path.to_owned();
        let reserve = Reserve::of_bytes(RESERVE);
        let mut keeper =
            JournalFile { path, file, end, index, copy, reserve, compaction: None, later: Vec::new(), least: 0 };
        keeper.renew_reserve();
        let serving = Box::pin(Arc::clone(&shared).serve(keeper, pause));
        (Writer { shared, thread: None, concluded: Mutex::new(concluded) }, lives, serving)
    }

    /// What was still to be told of lives that were over when it was opened. Answered once.
    pub fn take_concluded(&self) -> Vec<Concluded> {
        std::mem::take(&mut *self.writer.concluded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Queues a record behind all before it, and returns at once.
    pub fn append(&self, record: Record) -> Appended {
        let shared = &self.writer.shared;
        let mut queue = shared.lock();
        queue.appended += 1;
        if queue.failure.is_none() {
            let (mark, before) = (Mark::of_record(&record), queue.bytes.len());
            record::frame(&Entry::Of(record), &mut queue.bytes);
            let length = queue.bytes.len() - before;
            queue.marks.push((mark, length));
            if queue.first_since.is_none() {
                queue.first_since = Some(Instant::now());
                shared.changed.notify_one();
            }
        }
        Appended { number: queue.appended, shared: Arc::clone(shared), is_patient: false, answer: None }
    }
}

/// Resolves once its record, and so every record before it, is durable. Awaiting it makes that happen now; dropping it
/// leaves it for later.
#[derive(Debug)]
#[must_use = "await it where the record must be durable, drop it where it need not be"]
pub struct Appended {
    number: u64,
    shared: Arc<Shared>,
    is_patient: bool,
    answer: Option<oneshot::Receiver<Durable>>,
}

impl Appended {
    /// The same, but awaiting it makes nothing happen sooner than it would.
    pub fn patiently(self) -> Self {
        Self { is_patient: true, ..self }
    }
}

type Durable = Result<(), Arc<JournalError>>;

impl Future for Appended {
    type Output = Durable;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Durable> {
        let this = &mut *self;
        let answer = match &mut this.answer {
            Some(answer) => answer,
            None => {
                let mut queue = this.shared.lock();
                if queue.synced >= this.number {
                    return Poll::Ready(Ok(()));
                }
                if let Some(failure) = &queue.failure {
                    return Poll::Ready(Err(Arc::clone(failure)));
                }
                let (tell, answer) = oneshot::channel();
                if this.is_patient {
                    queue.patient.push((this.number, tell));
                } else {
                    queue.waiting.push((this.number, tell));
                    this.shared.changed.notify_one();
                }
                this.answer.insert(answer)
            }
        };
        Pin::new(answer).poll(context).map(|answer| answer.expect("the writer answers everyone before it ends"))
    }
}

/// Ends the writer when the last handle goes.
#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// What was still to be told when it was opened.
    concluded: Mutex<Vec<Concluded>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_one();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the journal's writer ended in a panic");
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
}

/// Records that are written together.
struct Group {
    bytes: Vec<u8>,
    marks: Vec<(Mark, usize)>,
    up_to: u64,
}

/// What the writer does next.
enum Work {
    Write(Group),
    /// Nothing to write, but a copy of the file may take its place.
    Switch,
}

/// What the queue has for the writer.
enum Next {
    Work(Work),
    /// Nothing yet; no longer than so long.
    Wait(Option<Duration>),
    Closed,
}

/// The file, and what is known of it.
struct JournalFile {
    path: PathBuf,
    file: File,
    /// How long it is.
    end: usize,
    index: Index,
    /// Who makes a shorter file.
    copy: CopyBy,
    reserve: Reserve,
    /// A shorter file in the making.
    compaction: Option<Compaction>,
    /// What was written since that was begun.
    later: Vec<(Mark, usize)>,
    /// After a copy that failed: how long the file must become before another is tried.
    least: usize,
}

impl JournalFile {
    /// Makes the bytes durable behind everything before them. Those that it failed for are written again, to the same place.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = u64::try_from(self.end).map_err(io::Error::other)?;
        self.file.write_all_at(bytes, end)?;
        self.file.sync_data()
    }

    /// Takes in what was written.
    fn extend(&mut self, marks: Vec<(Mark, usize)>) {
        for (mark, length) in marks {
            if self.compaction.is_some() {
                self.later.push((mark.clone(), length));
            }
            self.index.take(mark, self.end..self.end + length);
            self.end += length;
        }
    }

    fn renew_reserve(&mut self) {
        self.reserve.renew(&self.file, self.end as u64);
    }

    fn broken(&self, source: io::Error) -> Arc<JournalError> {
        let path = self.path.clone();
        tracing::error!(path = %path.display(), error = %source, "cannot write to the journal");
        Arc::new(JournalError::Io { doing: "write to", path, source })
    }

    /// Begins a copy when the file is worth it, and takes it when it is there. Fails only when it is not known which file
    /// has the name.
    fn compact(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        if let Some(compaction) = self.compaction.take_if(|compaction| compaction.is_over()) {
            let (later, before) = (std::mem::take(&mut self.later), self.end);
            match compaction.finish(&self.path, &self.file, self.end, later) {
                Ok((file, end, index)) => {
                    (self.file, self.end, self.index) = (file, end, index);
                    self.reserve = Reserve::of_bytes(RESERVE);
                    self.renew_reserve();
                    tracing::info!(before, after = end, "the journal was compacted");
                }
                Err(CopyError::Copy(error)) => {
                    // The file is as it was; it is only longer than it had to be.
                    tracing::warn!(%error, "the journal could not be compacted");
                    compaction::give_up(&self.path);
                    self.least = self.end * 2;
                }
                Err(CopyError::Switch(error)) => return Err(error),
            }
        }
        if self.compaction.is_none() && self.end >= self.least && is_worth_compacting(self.end, &self.index) {
            let told = Arc::downgrade(shared);
            let done = Arc::new(move || {
                if let Some(shared) = told.upgrade() {
                    shared.lock().copied = true;
                    shared.changed.notify_one();
                }
            });
            match Compaction::begin((&self.path, &self.file), self.end, &self.index, self.copy, done) {
                Ok(compaction) => self.compaction = Some(compaction),
                Err(error) => {
                    tracing::warn!(%error, "the journal could not be compacted");
                    self.least = self.end * 2;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// Framed records that are not in the file yet.
    bytes: Vec<u8>,
    /// What each of them is, and how long.
    marks: Vec<(Mark, usize)>,
    /// A copy of the file is there.
    copied: bool,
    /// When the oldest of them came.
    first_since: Option<Instant>,
    /// How many records were ever appended, and how many of them are durable.
    appended: u64,
    synced: u64,
    /// Who waits for which record: those for whom it is written at once, and the others.
    waiting: Vec<(u64, oneshot::Sender<Durable>)>,
    patient: Vec<(u64, oneshot::Sender<Durable>)>,
    failure: Option<Arc<JournalError>>,
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole between any two statements, so a panic elsewhere does not make it unusable.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, mut keeper: JournalFile, pause: Option<Pause>) {
        while let Some(work) = self.next_work().await {
            if let Work::Write(Group { bytes, marks, up_to }) = work {
                if let Some(pause) = &pause {
                    pause("journal.write").await;
                }
                let written = self.write(&mut keeper, &bytes).await;
                if written.is_ok() {
                    keeper.extend(marks);
                }
                if let Some(pause) = &pause {
                    pause("journal.written").await;
                }
                self.settle(up_to, written);
                keeper.renew_reserve();
            }
            if self.lock().failure.is_some() {
                continue;
            }
            // Whoever waited has been answered.
            if let Err(source) = keeper.compact(&self) {
                self.settle(0, Err(keeper.broken(source)));
            }
        }
        if let Some(compaction) = keeper.compaction.take() {
            compaction.abandon(&keeper.path);
        }
    }

    /// Writes until the disk takes it. Fails for what does not pass, and when there is no more time or memory to wait with.
    async fn write(&self, keeper: &mut JournalFile, bytes: &[u8]) -> Durable {
        let (since, mut wait, mut told) = (Instant::now(), RETRY_FIRST, None::<Instant>);
        loop {
            let source = match keeper.write(bytes) {
                Ok(()) if told.is_some() => {
                    tracing::info!(refused_for = ?since.elapsed(), "the journal takes records again");
                    return Ok(());
                }
                Ok(()) => return Ok(()),
                Err(source) => source,
            };
            let (is_closing, waiting_bytes) = {
                let queue = self.lock();
                (queue.closing, queue.bytes.len())
            };
            if !disk::passes(&source) || is_closing || waiting_bytes > QUEUE_BYTES_MAX {
                return Err(keeper.broken(source));
            }
            if told.is_none_or(|told| told.elapsed() >= REMIND) {
                told = Some(Instant::now());
                let path = keeper.path.display();
                tracing::error!(%path, error = %source, "the disk does not take the journal's records; pods that end wait for it");
            }
            // Whoever closes the journal does not wait.
            let _ = tokio::time::timeout(wait, self.closing()).await;
            wait = (wait * 2).min(RETRY_MOST);
        }
    }

    async fn closing(&self) {
        while !self.lock().closing {
            self.changed.notified().await;
        }
    }

    /// Waits for something to do: until someone asks for it, the oldest record has waited long enough, or a copy is there.
    async fn next_work(&self) -> Option<Work> {
        loop {
            match self.look() {
                Next::Work(work) => return Some(work),
                Next::Closed => return None,
                // Either way it is looked at again.
                Next::Wait(Some(left)) => drop(tokio::time::timeout(left, self.changed.notified()).await),
                Next::Wait(None) => self.changed.notified().await,
            }
        }
    }

    fn look(&self) -> Next {
        let mut queue = self.lock();
        let overdue = queue.first_since.map(|since| LAZY.saturating_sub(since.elapsed()));
        if !queue.bytes.is_empty() && (queue.closing || !queue.waiting.is_empty() || overdue == Some(Duration::ZERO)) {
            queue.first_since = None;
            let (bytes, marks) = (std::mem::take(&mut queue.bytes), std::mem::take(&mut queue.marks));
            return Next::Work(Work::Write(Group { bytes, marks, up_to: queue.appended }));
        }
        if queue.closing {
            return Next::Closed;
        }
        if std::mem::take(&mut queue.copied) {
            return Next::Work(Work::Switch);
        }
        Next::Wait(overdue)
    }

    fn settle(&self, up_to: u64, outcome: Durable) {
        let mut locked = self.lock();
        let queue = &mut *locked;
        let all = [&mut queue.waiting, &mut queue.patient].into_iter();
        let answered: Vec<_> = match &outcome {
            Ok(()) => {
                queue.synced = up_to;
                all.flat_map(|waiting| waiting.extract_if(.., |(number, _)| *number <= up_to)).collect()
            }
            Err(failure) => {
                queue.failure = Some(Arc::clone(failure));
                (queue.bytes, queue.marks) = (Vec::new(), Vec::new());
                queue.first_since = None;
                all.flat_map(|waiting| waiting.drain(..)).collect()
            }
        };
        drop(locked);
        for (_, tell) in answered {
            // Nobody there any more is fine: the record is as durable as it is.
            let _ = tell.send(outcome.clone());
        }
    }
}
