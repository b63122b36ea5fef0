//! A bounded queue of lines and the thread that writes them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes that wait to be written.
const BYTES_MAX: usize = 512 * 1024;
/// Most lines that wait; a short line costs more than its bytes.
const LINES_MAX: usize = 4096;
/// A longer line is cut.
const LINE_MAX: usize = 32 * 1024;
/// The writer needs little.
const STACK: usize = 64 * 1024;

/// Takes lines without waiting, and writes them when somebody reads. Cheap to clone.
#[derive(Clone)]
pub struct Outlet(Arc<Queue>);

struct Queue {
    name: &'static str,
    state: Mutex<State>,
    /// Rung when a line comes, and when all are written.
    changed: Condvar,
}

struct State {
    /// Until the writer's thread takes it.
    sink: Option<Box<dyn Write + Send>>,
    /// There is such a thread. The machine may have had none to give.
    started: bool,
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// A line is being written.
    writing: bool,
    /// All that were dropped, and those that the log has not told yet.
    dropped: u64,
    untold: u64,
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Outlet {
    /// Writes to `sink`, in a thread called `name` that begins with the first line and lives as long as the process.
    pub fn new(name: &'static str, sink: impl Write + Send + 'static) -> Self {
        let (lines, sink) = (VecDeque::new(), Some(Box::new(sink) as _));
        let state = State { sink, started: false, lines, bytes: 0, writing: false, dropped: 0, untold: 0 };
        Self(Arc::new(Queue { name, state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Takes a line with its end, or drops it if too much waits. Never waits for a reader.
    pub fn say(&self, line: &[u8]) {
        let line: Box<[u8]> = match line.get(..LINE_MAX) {
            Some(begin) if line.len() > LINE_MAX => [begin, b"...\n"].concat().into(),
            _ => line.into(),
        };
        let mut state = self.0.lock();
        if state.lines.len() >= LINES_MAX || state.bytes + line.len() > BYTES_MAX {
            return state.drop_line();
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        if !state.started {
            self.start(&mut state);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Without a thread lines wait, and the next one tries again.
    fn start(&self, state: &mut State) {
        let queue = Arc::clone(&self.0);
        let spawned = thread::Builder::new().name(self.0.name.to_owned()).stack_size(STACK).spawn(move || {
            let sink = queue.lock().sink.take();
            if let Some(sink) = sink {
                queue.write(sink);
            }
        });
        // Seen as being written from here on, so that a flush waits for a thread that has not run yet.
        state.started = spawned.is_ok();
        state.writing = state.started;
    }

    /// Waits until all lines are written, at most `limit`. `false` if some are left.
    pub(crate) fn flush_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.0.lock();
        loop {
            if state.lines.is_empty() && !state.writing {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether nothing waits: the next line is written at once.
    pub(crate) fn flows(&self) -> bool {
        let state = self.0.lock();
        state.lines.is_empty() && !state.writing
    }

    /// How many lines were dropped.
    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

/// Every write is one line, and succeeds.
impl Write for Outlet {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    fn drop_line(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
        self.untold = self.untold.saturating_add(1);
    }
}

impl Queue {
    /// Nothing is done under this lock that takes time or can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes line after line, for ever.
    fn write(&self, mut sink: Box<dyn Write + Send>) {
        loop {
            let (line, untold) = self.next();
            let told = match untold {
                0 => Ok(()),
                _ => sink.write_all(format!("adieu: {untold} lines were dropped here: nobody read them\n").as_bytes()),
            };
            let is_told = told.is_ok();
            let written = told.and_then(|()| sink.write_all(&line));
            let mut state = self.lock();
            if !is_told {
                state.untold = state.untold.saturating_add(untold);
            }
            if written.is_err() {
                state.drop_line();
            }
        }
    }

    /// The next line, and how many were dropped and not told before it.
    fn next(&self) -> (Box<[u8]>, u64) {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing = true;
                return (line, std::mem::take(&mut state.untold));
            }
            state.writing = false;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests;
