//! Deletes the files of ended pods in one thread of low priority.
//!
//! Deleting a pod's files is a quarter of the work of ending it, and no client waits for it: the names are free already. While
//! pods are ending, deletion is postponed, so that it does not slow them down. A caller that needs the space asks it to hurry.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;
use tokio::sync::oneshot;

use file_tree::delete_part;

/// About a tenth of a contended processor: enough for fifty pods a second.
const NICENESS: i32 = 10;

/// Deletion starts when no request came for this long.
const QUIET: Duration = Duration::from_millis(100);

/// Deletion is postponed by at most this, so that the disk does not fill up while pods keep ending.
const UNREST_MAX: Duration = Duration::from_secs(1);

/// Files deleted per pod before the next one's turn (some tens of milliseconds), so that millions of files delay no other pod.
const PART_FILES_MAX: u64 = 4096;

/// Handle of the deletion thread. The thread ends after this is dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct DeletionWorker {
    orders: mpsc::Sender<DeletionRequest>,
    thread: Pid,
}

#[derive(Debug)]
enum DeletionRequest {
    Delete {
        path: PathBuf,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Answered when everything requested before is deleted.
    Hurry {
        done: oneshot::Sender<()>,
    },
}

impl DeletionWorker {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let (orders, queue) = mpsc::channel();
        let (says, own_id) = mpsc::channel();
        std::thread::Builder::new().name("deletions".to_owned()).spawn(move || {
            // Whoever starts it waits for this.
            let _ = says.send(gettid());
            collect(queue);
        })?;
        let thread = own_id.recv().map_err(io::Error::other)?;
        Ok(Self { orders, thread })
    }

    /// Deletes a directory and all below it. It is ordered before this returns, and done when the answer is.
    pub(super) fn delete(&self, path: PathBuf) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let ordered = self.orders.send(DeletionRequest::Delete { path, done });
        async move {
            ordered.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            answer.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
        }
    }

    /// Deletes without delay, and returns when everything requested before is deleted or has failed.
    pub(super) async fn hurry(&self) {
        let (done, answer) = oneshot::channel();
        set_niceness(self.thread, 0);
        // A thread that is gone has nothing left to do.
        if self.orders.send(DeletionRequest::Hurry { done }).is_ok() {
            let _ = answer.await;
        }
    }
}

fn collect(queue: mpsc::Receiver<DeletionRequest>) {
    set_niceness(gettid(), NICENESS);
    let mut queued = DeletionQueue::default();
    loop {
        match queued.is_empty() {
            true => match queue.recv() {
                Ok(first) => queued.0.extend(until_quiet(first, &queue)),
                Err(_) => return,
            },
            // Who comes while something large is being deleted does not wait for all of it.
            false => queued.0.extend(queue.try_iter()),
        }
        queued.delete_parts();
    }
}

/// Requested deletions, oldest first.
#[derive(Default)]
struct DeletionQueue(VecDeque<DeletionRequest>);

impl DeletionQueue {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Deletes a part of each. A hurry request is answered when all before it are done.
    fn delete_parts(&mut self) {
        let mut rest = VecDeque::new();
        let mut answered_hurry = false;
        // Whoever does not wait for it needs no answer.
        for order in self.0.drain(..) {
            match order {
                DeletionRequest::Delete { path, done } => match delete_part(&path, PART_FILES_MAX) {
                    Ok(false) => rest.push_back(DeletionRequest::Delete { path, done }),
                    finished => drop(done.send(finished.map(drop))),
                },
                DeletionRequest::Hurry { done } if rest.is_empty() => {
                    answered_hurry = true;
                    let _ = done.send(());
                }
                hurry @ DeletionRequest::Hurry { .. } => rest.push_back(hurry),
            }
        }
        if answered_hurry && !rest.iter().any(|order| matches!(order, DeletionRequest::Hurry { .. })) {
            set_niceness(gettid(), NICENESS);
        }
        self.0 = rest;
    }
}

fn set_niceness(thread: Pid, niceness: i32) {
    // A thread that is not let stand back works all the same.
    if let Err(error) = setpriority_process(Some(thread), niceness) {
        tracing::debug!(error = %error, "the deletion thread keeps its normal priority");
    }
}

fn until_quiet(first: DeletionRequest, queue: &mpsc::Receiver<DeletionRequest>) -> Vec<DeletionRequest> {
    let mut orders = vec![first];
    let at_last = Instant::now() + UNREST_MAX;
    let is_hurry = |orders: &[DeletionRequest]| matches!(orders.last(), Some(DeletionRequest::Hurry { .. }));
    while !is_hurry(&orders)
        && let Ok(order) = queue.recv_timeout(QUIET.min(at_last.saturating_duration_since(Instant::now())))
    {
        orders.push(order);
    }
    orders
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn deletion_removes_the_tree_or_returns_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        let deletion_worker = DeletionWorker::start().unwrap();
        deletion_worker.delete(top.clone()).await.unwrap();
        assert!(!top.exists());
        assert_eq!(deletion_worker.delete(top).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// Who is in a hurry waits for all that was ordered before, and for nothing that came later.
    #[test]
    fn small_deletion_does_not_wait_for_a_large_one() {
        let dir = tempfile::tempdir().unwrap();
        let [large, small, late] = ["large", "small", "late"].map(|name| dir.path().join(name));
        for (path, files) in [(&large, 2 * PART_FILES_MAX + 1), (&small, 1), (&late, 1)] {
            fs::create_dir(path).unwrap();
            (0..files).for_each(|n| fs::write(path.join(n.to_string()), "").unwrap());
        }
        let order = |path: &PathBuf| {
            let (done, answer) = oneshot::channel();
            (DeletionRequest::Delete { path: path.clone(), done }, answer)
        };
        let ((first, mut of_large), (second, mut of_small), (third, mut of_late)) =
            (order(&large), order(&small), order(&late));
        let (done, mut all_before) = oneshot::channel();
        let mut queued = DeletionQueue([first, second, DeletionRequest::Hurry { done }].into());
        queued.delete_parts();
        assert!(of_small.try_recv().unwrap().is_ok() && !small.exists());
        assert!(of_large.try_recv().is_err() && all_before.try_recv().is_err());
        queued.0.push_back(third);
        queued.delete_parts();
        assert!(of_late.try_recv().unwrap().is_ok() && !late.exists() && large.exists());
        assert!(all_before.try_recv().is_err());
        queued.delete_parts();
        assert!(of_large.try_recv().unwrap().is_ok() && !large.exists());
        all_before.try_recv().unwrap();
        assert!(queued.is_empty());
    }

    #[tokio::test]
    async fn hurry_waits_until_every_ordered_deletion_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let deletion_worker = DeletionWorker::start().unwrap();
        let paths: Vec<_> = (0..5).map(|n| dir.path().join(n.to_string())).collect();
        for path in &paths {
            fs::create_dir_all(path.join("a")).unwrap();
            drop(deletion_worker.delete(path.clone()));
        }
        deletion_worker.hurry().await;
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        deletion_worker.hurry().await;
    }

    #[tokio::test]
    async fn ordered_deletion_is_done_without_a_waiter() {
        let dir = tempfile::tempdir().unwrap();
        let (first, last) = (dir.path().join("first"), dir.path().join("last"));
        fs::create_dir_all(first.join("a")).unwrap();
        fs::create_dir_all(last.join("a")).unwrap();
        let deletion_worker = DeletionWorker::start().unwrap();
        drop(deletion_worker.delete(first.clone()));
        let deleted = deletion_worker.delete(last.clone());
        drop(deletion_worker);
        deleted.await.unwrap();
        assert!(!first.exists() && !last.exists());
    }
}
