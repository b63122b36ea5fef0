//! How slow the machine is: what a test must forgive, measured while it runs.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinHandle;

/// How often the machine is asked.
const EVERY: Duration = Duration::from_millis(200);

/// What is forgiven on a machine that does everything at once: less than any mistake that a test looks for.
const LEAST: Duration = Duration::from_millis(1500);

/// How many such delays may stand one behind the other on the way of an end: to wake up, to write it down, to act.
const IN_A_ROW: u32 = 30;

/// Wakes up, and writes a line to the disk, again and again; remembers the longest that this took.
pub struct Pace {
    slowest: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Pace {
    /// Begins to measure.
    pub fn start() -> Result<Self> {
        let slowest = Arc::new(AtomicU64::new(0));
        let (noted, mut file) = (Arc::clone(&slowest), tempfile::tempfile()?);
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(EVERY).await;
                let written = tokio::task::spawn_blocking(move || write(&mut file).map(|()| file)).await;
                let Ok(Ok(same)) = written else { return };
                file = same;
                let late = begun.elapsed().saturating_sub(EVERY);
                noted.fetch_max(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Ok(Self { slowest, task })
    }

    /// How late something may be that is due at a moment.
    pub fn forgives(&self) -> Duration {
        LEAST + IN_A_ROW * Duration::from_millis(self.slowest.load(Ordering::Relaxed))
    }
}

fn write(file: &mut File) -> std::io::Result<()> {
    file.write_all(b"tick\n")?;
    file.sync_data()
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.task.abort();
    }
}
