//! `adieu store` as a person runs it, on the store of a server that was damaged, cut, emptied, or lives.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::server::{MAPS, client, command, send, start};

fn adieu(dir: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_adieu")).arg("store").args(words).arg("--data-dir").arg(dir).output().unwrap()
}

/// What a command said that went well.
#[track_caller]
fn said(dir: &Path, words: &[&str]) -> String {
    let output = adieu(dir, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What one said that did not, on either stream.
#[track_caller]
fn refused(dir: &Path, words: &[&str]) -> String {
    let output = adieu(dir, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Why a server does not start.
#[track_caller]
fn start_refused(dir: &Path) -> String {
    let output = command(dir).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "text": name.repeat(20) } })
}

/// A server's folder with these configmaps, and the newest revision; nobody runs on it.
async fn stored(dir: &Path, names: &[&str]) -> u64 {
    let _server = start(dir);
    let client = client(dir).await;
    let mut newest = 0;
    for name in names {
        let (code, made) = send(&client, "POST", MAPS, map(name)).await;
        assert_eq!(code, 201, "{made}");
        newest = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    }
    newest
}

/// Which of these a server on the folder has, and that whoever resumes behind `seen` is told to list.
async fn found(dir: &Path, names: &[&str], seen: u64) -> Vec<bool> {
    let _server = start(dir);
    let client = client(dir).await;
    let (_, expired) =
        send(&client, "GET", &format!("{MAPS}?watch=1&resourceVersion={seen}&timeoutSeconds=9"), json!({})).await;
    let code = if expired["type"] == "ERROR" { &expired["object"]["code"] } else { &expired["code"] };
    assert_eq!(*code, 410, "{expired}");
    let (_, list) = send(&client, "GET", MAPS, json!({})).await;
    let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(version > seen, "{version} after {seen}");
    let mut found = Vec::new();
    for name in names {
        let (code, object) = send(&client, "GET", &format!("{MAPS}/{name}"), json!({})).await;
        assert!(code == 404 || object["data"] == map(name)["data"], "{object}");
        found.push(code == 200);
    }
    found
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("store/00000000000000000001.log")
}

/// Changes a byte of what is stored of the configmap.
fn damage(dir: &Path, name: &str) {
    let mut bytes = fs::read(segment(dir)).unwrap();
    let text = format!("\"text\":\"{}\"", name.repeat(20));
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    // The quote that ends the text: nothing of the object can be read.
    bytes[at + text.len() - 1] ^= 4;
    fs::write(segment(dir), bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_store_is_refused_checked_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let newest = stored(dir, &["alpha", "bravo", "charlie"]).await;
    assert!(said(dir, &["check"]).contains("is sound"));
    assert!(said(dir, &["repair"]).contains("nothing was changed"));
    damage(dir, "bravo");
    let why = start_refused(dir);
    for command in ["`adieu store check`", "`adieu store restore`", "`adieu store repair`"] {
        assert!(why.contains(command), "{why}");
    }
    assert!(refused(dir, &["check"]).contains("lost: configmaps/default/bravo"));
    assert!(refused(dir, &["backup", dir.join("b").to_str().unwrap()]).contains("is damaged"));
    assert!(!dir.join("b").exists() && !dir.join("b.part").exists());
    let damaged = fs::read(segment(dir)).unwrap();
    let told = said(dir, &["repair"]);
    assert!(told.contains("lost: configmaps/default/bravo") && told.contains("store.damaged-1"), "{told}");
    assert_eq!(fs::read(dir.join("store.damaged-1/00000000000000000001.log")).unwrap(), damaged);
    assert!(said(dir, &["check"]).contains("is sound"));
    assert_eq!(found(dir, &["alpha", "bravo", "charlie"], newest).await, [true, false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_or_emptied_store_is_no_new_one_until_a_person_says_so() {
    for emptied in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let newest = stored(dir, &["alpha"]).await;
        if emptied {
            fs::remove_dir_all(dir.join("store")).unwrap();
        } else {
            let file = fs::OpenOptions::new().write(true).open(segment(dir)).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }
        for _ in 0..2 {
            assert!(start_refused(dir).contains("`adieu store repair --accept-loss`"));
        }
        assert!(refused(dir, &["check"]).contains("had reached"));
        assert!(refused(dir, &["repair"]).contains("--accept-loss"));
        assert!(said(dir, &["repair", "--accept-loss"]).contains("revisions go on"));
        assert_eq!(found(dir, &["alpha"], newest).await, [false]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_of_a_running_server_is_restored_and_clients_list_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    stored(dir, &["alpha"]).await;
    let (online, offline) = (dir.join("online.jsonl"), dir.join("offline.jsonl"));
    let (online, offline) = (online.to_str().unwrap(), offline.to_str().unwrap());
    {
        let _server = start(dir);
        let client = client(dir).await;
        assert_eq!(send(&client, "POST", MAPS, map("bravo")).await.0, 201);
        assert!(said(dir, &["backup", online]).contains("objects at revision"));
        assert_eq!(fs::metadata(online).unwrap().permissions().mode() & 0o777, 0o600, "secrets are in it");
        assert!(refused(dir, &["backup", online]).contains("is there already"));
        for words in [&["check"][..], &["repair"], &["restore", online]] {
            assert!(refused(dir, words).contains("adieu runs on"), "{words:?}");
        }
        assert_eq!(said(dir, &["backup", "-"]).lines().count(), fs::read_to_string(online).unwrap().lines().count());
    }
    said(dir, &["backup", offline]);
    let newest = stored(dir, &["charlie"]).await;
    let mut cut = fs::read(online).unwrap();
    cut.truncate(cut.len() / 2);
    fs::write(dir.join("cut"), cut).unwrap();
    assert!(refused(dir, &["restore", dir.join("cut").to_str().unwrap()]).contains("not whole"));
    let told = said(dir, &["restore", online]);
    assert!(told.contains("store.before-restore-1"), "{told}");
    assert_eq!(found(dir, &["alpha", "bravo", "charlie"], newest).await, [true, true, false]);
    // On another machine.
    let other = tempfile::tempdir().unwrap();
    let other = other.path().join("new");
    said(&other, &["restore", offline]);
    assert_eq!(found(&other, &["alpha", "bravo", "charlie"], newest).await, [true, true, false]);
}
