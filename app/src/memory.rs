//! Memory goes back to the system when the work is done that needed it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// The work is done when nothing came for this long.
const QUIET: Duration = Duration::from_secs(5);
/// Where work never ends, memory is given back this often.
const AT_MOST: Duration = Duration::from_secs(20);

/// Gives memory back after the start, and after the work that `worked` tells of. Never looks at a process that does nothing.
pub(crate) fn give_back_after(worked: Arc<Notify>) -> MemoryTask {
    MemoryTask(tokio::spawn(supervision::keep("memory", move || {
        let worked = Arc::clone(&worked);
        async move {
            loop {
                until_quiet(&worked).await;
                // A moment of a thread that may wait, as others' allocations may wait for it.
                let _ = tokio::task::spawn_blocking(runtime::memory::give_back).await;
                worked.notified().await;
            }
        }
    })))
}

async fn until_quiet(worked: &Notify) {
    let last = Instant::now() + AT_MOST;
    while timeout_at(last.min(Instant::now() + QUIET), worked.notified()).await.is_ok() && Instant::now() < last {}
}

/// Ends with whoever started it.
pub(crate) struct MemoryTask(JoinHandle<()>);

impl Drop for MemoryTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
