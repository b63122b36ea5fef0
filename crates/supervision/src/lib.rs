//! A panic ends the work that it happened in, and nothing else.
//!
//! [`catch`] turns the panic of a piece of work into an answer. [`keep`] and [`keep_on`] start work again that is to go on for
//! ever, later each time it breaks in a row ([`Backoff`]). [`or_abort`] is for the few threads without which nothing can go on:
//! there the process ends and says why. Every panic is counted once, by the part of the program it happened in ([`counts`]).
//! What merely fails waits by the same [`BackoffPolicy`], and is told in one line by [`error_chain`].

mod backoff;
mod count;
mod error_chain;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

pub use backoff::{Backoff, BackoffPolicy};
pub use count::{count_panics, counts};
pub use error_chain::error_chain;

/// What a panic said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Panic {
    /// Its message.
    pub message: String,
}

impl Panic {
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self { message: text.unwrap_or_else(|| "a panic without words".to_owned()) }
    }
}

impl std::fmt::Display for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Panic {}

/// Does the work of `part`: a panic goes on to whoever started it, and is counted as that part's.
pub async fn within<T>(part: &'static str, work: impl Future<Output = T>) -> T {
    count::PART.scope(part, work).await
}

/// Does the work of `part`; a panic is an answer.
pub async fn catch<T>(part: &'static str, work: impl Future<Output = T>) -> Result<T, Panic> {
    let caught = AssertUnwindSafe(count::PART.scope(part, work)).catch_unwind().await;
    caught.map_err(|payload| Panic::of(&*payload))
}

/// Does the work of `part` in this thread; a panic is an answer.
pub fn catch_blocking<T>(part: &'static str, work: impl FnOnce() -> T) -> Result<T, Panic> {
    let caught = catch_unwind(AssertUnwindSafe(|| count::PART.sync_scope(part, work)));
    caught.map_err(|payload| Panic::of(&*payload))
}

/// Does what `start` gives until it ends by itself; starts it anew each time it breaks.
pub async fn keep<F: Future<Output = ()>>(part: &'static str, mut start: impl FnMut() -> F) {
    let mut backoff = Backoff::default();
    while let Err(panic) = catch(part, start()).await {
        rest(part, &panic, &mut backoff).await;
    }
}

/// The same for work that goes on with what it has, such as the end of a channel. What it holds must be fit for use between any
/// two of its steps.
pub async fn keep_on<S>(part: &'static str, mut state: S, mut run: impl FnMut(&mut S) -> BoxFuture<'_, ()>) {
    let mut backoff = Backoff::default();
    // It may break before it has made its first future.
    while let Err(panic) = catch(part, async { run(&mut state).await }).await {
        rest(part, &panic, &mut backoff).await;
    }
}

async fn rest(part: &'static str, panic: &Panic, backoff: &mut Backoff) {
    let wait = backoff.after_panic(Instant::now().into_std());
    tracing::error!(part, %panic, in_a_row = backoff.in_a_row(), ?wait, "a part of the program broke; it is started again");
    tokio::time::sleep(wait).await;
}

/// Does work without which the process is of no use: a panic in it ends the process.
pub fn or_abort<T>(part: &'static str, what: &str, work: impl FnOnce() -> T) -> T {
    match catch_blocking(part, work) {
        Ok(done) => done,
        Err(panic) => {
            let words = format!("adieu: {what} broke: {panic}; nothing can go on without it, so the process ends\n");
            logging::stderr().say(words.as_bytes());
            logging::flush(logging::LAST_LINES);
            std::process::abort()
        }
    }
}

#[cfg(test)]
mod tests;
