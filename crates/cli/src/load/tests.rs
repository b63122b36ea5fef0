//! Every fate of a request, made by a server that does what it is told.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers the request of each number as told: with a text, and whether it hangs up then. `None` says nothing for ever.
async fn server(answer: fn(usize) -> Option<(&'static str, bool)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut part = [0; 1024];
                while let Ok(1..) = stream.read(&mut part).await {
                    let Some((text, hangs_up)) = answer(asked.fetch_add(1, Ordering::SeqCst)) else {
                        return std::future::pending().await;
                    };
                    stream.write_all(text.as_bytes()).await.unwrap();
                    if hangs_up {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn plan(address: SocketAddr, new: usize, kept: usize) -> LoadPlan {
    let every = Some(Duration::from_millis(20));
    LoadPlan { new, kept, downloading: 0, every, ..LoadPlan::of_demo(address) }
}

/// Asks until the counts are such.
async fn until(plan: LoadPlan, enough: impl Fn(&Counts) -> bool) -> Counts {
    let (done, is_done) = tokio::sync::oneshot::channel();
    let (mut done, mut last) = (Some(done), Counts::default());
    let running = run(plan, async { drop(is_done.await) }, |counts| {
        if let Some(done) = done.take_if(|_| enough(counts)) {
            done.send(()).unwrap();
        }
        last = counts.clone();
        Ok(())
    });
    tokio::time::timeout(Duration::from_secs(60), running).await.expect("enough requests").unwrap();
    assert!(last.is_final, "{last:?}");
    last
}

#[tokio::test]
async fn answered_requests_are_counted_by_kind_and_none_is_lost() {
    let counts = until(plan(server(|_| Some((OK, false))).await, 2, 2), |counts| counts.answered() > 40).await;
    assert_eq!((counts.lost(), counts.status), (0, Some(200)), "{counts:?}");
    assert!(counts.kinds.values().all(|kind| kind.answered > 5) && counts.kinds.len() == 2, "{counts:?}");
}

#[tokio::test]
async fn each_way_to_lose_a_request_is_counted_as_itself() {
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    const ABSENT: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nhalf";
    let answer = |number| match number % 6 {
        1 => Some((BUSY, false)),
        2 => Some((ABSENT, false)),
        3 => Some((HALF, true)),
        4 => None,
        5 => Some(("nonsense\r\n\r\n", true)),
        _ => Some((OK, false)),
    };
    let plan = LoadPlan { patience: Duration::from_millis(1500), ..plan(server(answer).await, 1, 0) };
    let counts = until(plan, |counts| counts.asked() >= 7).await;
    let of_new = &counts.kinds[&ConnectionKind::New];
    for loss in [Loss::ServerError, Loss::WrongAnswer, Loss::Reset, Loss::TimedOut] {
        assert!(of_new.lost.get(&loss).is_some_and(|lost| *lost > 0), "{loss:?} in {counts:?}");
    }
    assert!(counts.lost.contains_key("status 404, 200 before"), "{counts:?}");
    assert_eq!(counts.lost.values().sum::<u64>(), counts.lost());
    assert!(!counts.first_lost.is_empty());
}

#[tokio::test]
async fn kept_connection_that_is_closed_while_idle_loses_nothing_and_is_counted_apart() {
    let counts = until(plan(server(|_| Some((OK, true))).await, 0, 2), |counts| counts.answered() > 20).await;
    let kept = &counts.kinds[&ConnectionKind::Kept];
    assert!(kept.idle_closes > 5 && counts.lost() == 0, "{counts:?}");
}

#[tokio::test]
async fn connection_that_nobody_takes_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let counts = until(plan(address, 1, 1), |counts| counts.lost() > 4).await;
    let refused: u64 = counts.kinds.values().map(|kind| kind.lost[&Loss::Refused]).sum();
    assert_eq!((counts.answered(), refused), (0, counts.lost()), "{counts:?}");
}

#[tokio::test]
async fn request_to_a_server_that_hangs_up_is_lost_and_has_a_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let counts = until(LoadPlan::of_demo(address), |counts| counts.lost() >= 20).await;
    server.abort();
    assert!(counts.answered() == 0 && counts.lost.len() <= counts::REASONS_MOST + 1, "{counts:?}");
    assert!(counts.kinds.values().all(|kind| kind.idle_closes == 0), "{counts:?}");
}
