//! What is caught, what is counted, and how long whatever broke rests.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::mpsc;

use super::*;

#[tokio::test]
async fn work_that_panics_answers_what_the_panic_said() {
    let broken: Result<u8, Panic> = catch("test-words", async { panic!("there is something") }).await;
    assert_eq!(broken.unwrap_err().message, "there is something");
    assert_eq!(catch("test-words", async { 7 }).await, Ok(7));
}

#[tokio::test]
async fn panics_are_counted_once_by_the_part_they_happen_in() {
    count_panics();
    count_panics();
    let of = |part: &str| counts().iter().find(|(name, _)| *name == part).map_or(0, |(_, count)| *count);
    for _ in 0..3 {
        let broken = catch("test-counted", async {
            tokio::task::yield_now().await;
            panic!("counted")
        })
        .await;
        assert_eq!(broken, Err::<(), _>(Panic { message: "counted".to_owned() }));
    }
    assert_eq!(of("test-counted"), 3);
    assert_eq!(of("test-silent"), 0);
}

#[tokio::test]
async fn work_that_breaks_is_started_again_until_it_ends_by_itself() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    keep("test-kept", move || {
        let tries = counted.clone();
        async move {
            assert!(tries.fetch_add(1, Ordering::Relaxed) > 1, "not yet");
        }
    })
    .await;
    assert_eq!(tries.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn work_with_a_channel_loses_only_the_message_it_broke_on() {
    let (tell, told) = mpsc::channel(8);
    for number in [1, 13, 2] {
        tell.send(number).await.unwrap();
    }
    drop(tell);
    let (seen, mut heard) = mpsc::unbounded_channel();
    keep_on("test-channel", (told, seen), |(told, seen)| {
        async move {
            while let Some(number) = told.recv().await {
                assert_ne!(number, 13, "unlucky");
                seen.send(number).unwrap();
            }
        }
        .boxed()
    })
    .await;
    assert_eq!((heard.recv().await, heard.recv().await, heard.recv().await), (Some(1), Some(2), None));
}

#[test]
fn rests_double_up_to_half_a_minute_and_begin_anew_after_a_calm_time() {
    let mut backoff = Backoff::default();
    let mut now = tokio::time::Instant::now().into_std();
    let mut rests = Vec::new();
    for _ in 0..40 {
        let wait = backoff.after_panic(now);
        rests.push(wait);
        now += wait;
    }
    assert_eq!(rests[..4], [100, 200, 400, 800].map(Duration::from_millis));
    assert!(rests.is_sorted());
    assert_eq!(rests[39], Duration::from_secs(30));
    assert_eq!(backoff.in_a_row(), 40);
    assert_eq!(backoff.after_panic(now + Duration::from_secs(120)), Duration::from_millis(100));
}

#[test]
fn pause_doubles_with_every_failure_and_begins_anew_after_a_success() {
    let policy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(2));
    let mut backoff = policy.start();
    let pauses: Vec<u128> = (0..6).map(|_| backoff.after_failure().as_millis()).collect();
    assert_eq!(pauses, [200, 400, 800, 1600, 2000, 2000]);
    backoff.reset();
    assert_eq!(backoff.after_failure(), policy.first);
    assert_eq!((policy.pause(0), policy.pause(u32::MAX)), (policy.first, policy.most));
}

#[test]
fn error_chain_says_every_cause_once() {
    #[derive(Debug)]
    struct Failure(&'static str, Option<Box<Failure>>);
    impl std::fmt::Display for Failure {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl std::error::Error for Failure {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }
    let of = |text, cause| Failure(text, cause);
    assert_eq!(error_chain(&of("alone", None)), "alone");
    let refused = || Some(Box::new(of("connection refused", None)));
    assert_eq!(
        error_chain(&of("cannot join", Some(Box::new(of("no answer", refused()))))),
        "cannot join: no answer: connection refused"
    );
    // Many libraries repeat their cause in their own words.
    let repeats = of("no answer: connection refused", refused());
    assert_eq!(error_chain(&of("cannot join", Some(Box::new(repeats)))), "cannot join: no answer: connection refused");
}
