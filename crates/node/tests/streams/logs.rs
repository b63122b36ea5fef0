//! Logs.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

use super::local::Local;
use super::raw::{get, head};

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("adieu-logs-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn append(file: &Path, second: u32, tag: char, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    writeln!(file, "2026-08-01T12:00:{second:02}.000000000Z stdout {tag} {text}").unwrap();
}

async fn log(path: &Path, query: &str) -> String {
    let local = Local::with_log(path.to_owned(), watch::channel(true).1);
    let (code, body) = get(local.connect(), &format!("/containerLogs/default/web/app?{query}")).await;
    assert_eq!(code, 200, "{body}");
    body
}

#[tokio::test]
async fn a_log_can_be_read_whole_or_in_part() {
    let directory = Directory::new();
    let path = directory.0.join("0.log");
    append(&path, 1, 'F', "one");
    append(&path, 2, 'P', "tw");
    append(&path, 3, 'F', "o");
    append(&path, 4, 'F', "three");
    assert_eq!(log(&path, "").await, "one\ntwo\nthree\n");
    assert_eq!(log(&path, "tailLines=2").await, "two\nthree\n");
    assert_eq!(log(&path, "tailLines=0").await, "");
    assert_eq!(log(&path, "tailLines=99").await, "one\ntwo\nthree\n");
    assert_eq!(log(&path, "limitBytes=6").await, "one\ntw");
    assert_eq!(log(&path, "sinceTime=2026-08-01T12:00:02Z").await, "two\nthree\n");
    assert_eq!(log(&path, "sinceSeconds=1&tailLines=1").await, "");
    let with_time = "2026-08-01T12:00:02.000000000Z two\n2026-08-01T12:00:04.000000000Z three\n";
    assert_eq!(log(&path, "timestamps=true&tailLines=2").await, with_time);
    // Following a run that is over is reading it.
    assert_eq!(log(&path, "follow=true&tailLines=1").await, "three\n");
}

#[tokio::test]
async fn a_container_that_wrote_nothing_has_an_empty_log() {
    let directory = Directory::new();
    assert_eq!(log(&directory.0.join("0.log"), "").await, "");
    assert_eq!(log(&directory.0.join("0.log"), "follow=true").await, "");
}

#[tokio::test]
async fn a_large_log_arrives_whole() {
    let directory = Directory::new();
    let path = directory.0.join("0.log");
    let line = "x".repeat(1000);
    let mut file = File::create(&path).unwrap();
    for number in 0..5000 {
        writeln!(file, "2026-08-01T12:00:00.000000000Z stdout F {number} {line}").unwrap();
    }
    let body = log(&path, "").await;
    assert!(body.lines().enumerate().all(|(number, text)| text == format!("{number} {line}")));
    assert_eq!(body.lines().count(), 5000);
    let tail = log(&path, "tailLines=3000").await;
    assert_eq!(tail.lines().count(), 3000);
    assert!(tail.starts_with("2000 "));
}

/// A log that is being followed.
struct Following(DuplexStream);

impl Following {
    async fn begin(path: &Path, ended: watch::Receiver<bool>, query: &str) -> Self {
        let mut client = Local::with_log(path.to_owned(), ended).connect();
        let request = format!("GET /containerLogs/default/web/app?follow=true{query} HTTP/1.0\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(head(&mut client).await.0, 200);
        Self(client)
    }

    async fn expect(&mut self, text: &str) {
        let mut heard = vec![0; text.len()];
        self.0.read_exact(&mut heard).await.unwrap();
        assert_eq!(str::from_utf8(&heard).unwrap(), text);
    }

    async fn expect_end(mut self) {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "");
    }
}

#[tokio::test]
async fn a_follower_hears_each_line_and_then_the_end() {
    let directory = Directory::new();
    let path = directory.0.join("0.log");
    append(&path, 1, 'F', "old");
    append(&path, 2, 'F', "last");
    let (end, ended) = watch::channel(false);
    let mut following = Following::begin(&path, ended, "&tailLines=1").await;
    following.expect("last\n").await;
    for number in 0..5 {
        append(&path, 3, 'F', &format!("new {number}"));
        following.expect(&format!("new {number}\n")).await;
    }
    append(&path, 4, 'P', "cut ");
    following.expect("cut ").await;
    append(&path, 5, 'F', "short");
    // What was written before the end is heard, however late.
    end.send_replace(true);
    following.expect("short\n").await;
    following.expect_end().await;
}

#[tokio::test]
async fn a_follower_may_come_before_the_log_and_its_directory() {
    let directory = Directory::new();
    let path = directory.0.join("pod/app/0.log");
    let (end, ended) = watch::channel(false);
    let mut following = Following::begin(&path, ended, "&tailLines=1").await;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    append(&path, 1, 'F', "first");
    following.expect("first\n").await;
    append(&path, 2, 'F', "second");
    following.expect("second\n").await;
    drop(end);
    following.expect_end().await;
}

#[tokio::test]
async fn a_follower_of_a_run_that_never_wrote_is_let_go_at_its_end() {
    let directory = Directory::new();
    let (end, ended) = watch::channel(false);
    let following = Following::begin(&directory.0.join("0.log"), ended, "").await;
    end.send_replace(true);
    following.expect_end().await;
}

#[tokio::test]
async fn a_limit_ends_a_follower_too() {
    let directory = Directory::new();
    let path = directory.0.join("0.log");
    append(&path, 1, 'F', "one");
    let (_end, ended) = watch::channel(false);
    let mut following = Following::begin(&path, ended, "&limitBytes=6").await;
    following.expect("one\n").await;
    append(&path, 2, 'F', "two");
    following.expect("tw").await;
    following.expect_end().await;
}

/// Sets the log aside, as a shim does when it is full.
fn set_aside(path: &Path, number: u32) {
    fs::rename(path, format!("{}.{number}", path.display())).unwrap();
    File::create(path).unwrap();
}

#[tokio::test]
async fn a_log_is_read_across_all_its_files() {
    let directory = Directory::new();
    let path = directory.0.join("0.log");
    for number in 1..=3 {
        append(&path, number, 'F', &format!("{number}a"));
        append(&path, number, 'F', &format!("{number}b"));
        if number < 3 {
            set_aside(&path, number);
        }
    }
    assert_eq!(log(&path, "").await, "1a\n1b\n2a\n2b\n3a\n3b\n");
    assert_eq!(log(&path, "tailLines=2").await, "3a\n3b\n");
    assert_eq!(log(&path, "tailLines=3").await, "2b\n3a\n3b\n");
    assert_eq!(log(&path, "tailLines=5").await, "1b\n2a\n2b\n3a\n3b\n");
    assert_eq!(log(&path, "tailLines=50").await, "1a\n1b\n2a\n2b\n3a\n3b\n");
}

#[tokio::test]
async fn a_followed_log_that_is_set_aside_again_and_again_loses_and_doubles_nothing() {
    let directory = Directory::new();
    let path = directory.0.join("0.log");
    append(&path, 0, 'F', "line 0");
    let (ended, end) = watch::channel(false);
    let local = Local::with_log(path.clone(), end);
    let reading = tokio::spawn(async move { get(local.connect(), "/containerLogs/default/web/app?follow=true").await });
    let writing = tokio::task::spawn_blocking(move || {
        for number in 1..3000u32 {
            append(&path, number / 60 % 60, 'F', &format!("line {number}"));
            // Sometimes twice in a row, so that a slow reader misses the file in between by its name.
            if number % 100 == 0 || number % 100 == 1 {
                set_aside(&path, number);
            }
        }
    });
    writing.await.unwrap();
    ended.send_replace(true);
    let (code, body) = reading.await.unwrap();
    assert_eq!(code, 200);
    let expected: String = (0..3000).map(|number| format!("line {number}\n")).collect();
    assert!(body == expected, "{} lines of 3000", body.lines().count());
}
