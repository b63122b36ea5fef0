//! The node API as its clients see it: every test speaks HTTP, WebSocket or SPDY over one end of a pipe, and real
//! processes with real pipes and terminals answer at the other.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "what a test does not expect may panic")]

mod local;
mod logs;
mod raw;
mod spdy;
mod websocket;

use local::Local;
use raw::{get, status_of};

#[tokio::test]
async fn healthz_of_the_node_answers_ok() {
    assert_eq!(get(Local::new().connect(), "/healthz").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn requests_that_make_no_sense_are_told_why() {
    for (path, expected) in [
        ("/elsewhere", 404),
        ("/exec/default/web/app?command=ls&stdout=true", 400),
        ("/exec/default/web/app?stdout=true", 400),
        ("/attach/default/web/app?stdout=true", 400),
        ("/attach/default/web/app", 400),
        ("/portForward/default/web", 400),
        ("/portForward/default/other", 404),
        ("/containerLogs/default/web/app?tailLines=-1", 400),
        ("/containerLogs/default/web/app?previous=true", 400),
        ("/containerLogs/default/web/other", 404),
    ] {
        let (code, body) = get(Local::new().connect(), path).await;
        assert_eq!(code, expected, "{path}: {body}");
        assert_eq!(status_of(&body)["status"], "Failure", "{path}");
    }
}
