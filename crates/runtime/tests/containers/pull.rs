//! Pulls from a real registry: every way to log in, every way to be interrupted, and what must be refused.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]

use crate::image_support;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::image_support::{Layer, Layout, config, gzip, zstd};
use crate::registry_support::proxy::{Fate, Proxy};
use crate::registry_support::tokens::TokenServer;
use crate::registry_support::{Options, PASSWORD, Registry, USER, certificates};
use runtime::image::{ImageStore, Keyring, LayerState, Limits, Patience, Progress, PullError, Pulled, Puller};
use serde_json::json;
use tokio::sync::watch;

/// Short where a test waits for it to run out, generous where it must not.
fn patience() -> Patience {
    Patience { pause: Duration::from_millis(5), ..Patience::default() }
}

struct Machine {
    dir: tempfile::TempDir,
    store: ImageStore,
    puller: Puller,
}

impl Machine {
    fn new() -> Self {
        Self::with(patience(), Limits::default())
    }

    fn with(patience: Patience, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open_with(&dir.path().join("images"), crate::image_support::program(), limits).unwrap();
        let puller = Puller::new(store.clone(), dir.path().join("registries.yaml"), patience);
        Self { dir, store, puller }
    }

    fn settings(&self, text: &str) {
        fs::write(self.dir.path().join("registries.yaml"), text).unwrap();
    }

    async fn pull(&self, name: &str) -> Result<Pulled, PullError> {
        self.pull_with(name, &Keyring::default()).await
    }

    async fn pull_with(&self, name: &str, keyring: &Keyring) -> Result<Pulled, PullError> {
        self.puller.pull(&name.parse().unwrap(), keyring, &watch::Sender::new(Progress::default())).await
    }

    fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    fn read(&self, name: &str, path: &str) -> String {
        let stored = self.store.find(name).unwrap();
        let layer = stored.layers.iter().find(|layer| layer.join(path).exists()).unwrap();
        fs::read_to_string(layer.join(path)).unwrap()
    }

    fn holds(&self, part: &str) -> usize {
        fs::read_dir(self.images().join(part)).unwrap().count()
    }

    /// Nothing half-done is in the store once the threads that worked on it have let go.
    async fn settles(&self) {
        until(|| self.holds("ingest") == 0).await;
        assert_eq!((self.holds("layers"), self.holds("images"), self.holds("names")), (0, 0, 0));
    }
}

async fn until(condition: impl Fn() -> bool) {
    // A disk that is busy with other things may keep a thread for long.
    let waited = tokio::time::timeout(Duration::from_secs(120), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("it never comes true");
}

fn words(error: &PullError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// An image of these plain layers; returns the archive and the digests of its gzip layers.
fn image(layers: &[Vec<u8>]) -> (Vec<u8>, Vec<String>) {
    let stored: Vec<_> = layers.iter().map(|layer| gzip(layer)).collect();
    let digests = stored.iter().map(|layer| runtime::image::Digest::of(layer).to_string()).collect();
    let mut layout = Layout::default();
    let manifest = layout.image(&config(layers, json!({ "Cmd": ["/x"] })), &stored);
    (layout.list(manifest, json!({})).archive(), digests)
}

/// Bytes that no compressor makes smaller.
fn noise(length: usize, seed: u64) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(state >> 58) as usize])
    };
    (0..length).map(|_| next()).collect()
}

fn docker_config(registry: &Registry, user: &str, password: &str) -> Keyring {
    let mut keyring = Keyring::default();
    let config =
        json!({ "auths": { registry.name("").trim_end_matches('/'): { "username": user, "password": password } } });
    keyring.add_docker_config(config.to_string().as_bytes()).unwrap();
    keyring
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_set_up_are_pulled_and_found_by_tag_and_digest() {
    let registry = Registry::start();
    registry.push_image("busybox", "library/busybox:1");
    registry.push_image("nginx", "web/nginx:latest");
    let machine = Machine::new();
    let name = registry.name("library/busybox:1");
    let (tell, told) = watch::channel(Progress::default());
    let pulled = machine.puller.pull(&name.parse().unwrap(), &Keyring::default(), &tell).await.unwrap();
    assert!(pulled.is_new);
    assert!(pulled.reference.starts_with(&registry.name("library/busybox@sha256:")), "{}", pulled.reference);
    assert_eq!(pulled.image.names, [name.clone(), pulled.reference.clone()]);
    assert_eq!(pulled.image.reference(&name), pulled.reference);
    let layers = told.borrow().layers.clone();
    assert!(!layers.is_empty() && layers.iter().all(|layer| layer.state == LayerState::Done), "{layers:?}");
    let stored = machine.store.find(&pulled.reference).unwrap();
    assert_eq!(stored.config.cmd, ["/bin/sh"]);
    let busybox = stored.layers.iter().map(|layer| layer.join("bin/busybox")).find(|path| path.exists()).unwrap();
    // A copy that only another process has written: what this one has, any child of another test may still hold open for
    // writing, and what is held so does not run.
    let script = "cp \"$0\" \"$1\" && \"$1\" true";
    let mut copied = std::process::Command::new("sh");
    copied.args(["-c", script]).args([&busybox, &machine.dir.path().join("busybox")]);
    assert!(copied.status().unwrap().success());
    assert_eq!(machine.holds("downloads"), 0, "nothing is kept twice");
    until(|| machine.holds("ingest") == 0).await;

    // The registry is asked, and has nothing newer.
    let again = machine.pull(&name).await.unwrap();
    assert_eq!((again.is_new, &again.image, &again.reference), (false, &pulled.image, &pulled.reference));
    // By digest it is another name of the same image.
    let pinned = machine.pull(&pulled.reference).await.unwrap();
    assert_eq!((pinned.image.id, pinned.is_new), (pulled.image.id, false));
    let nginx = machine.pull(&registry.name("web/nginx")).await.unwrap();
    assert_eq!(nginx.image.stop_signal, Some(3));
    assert_eq!(machine.store.list().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moves_is_followed_and_only_new_layers_travel() {
    let registry = Registry::start();
    let base = Layer::new().file("base", &noise(300_000, 1)).tar();
    let (first, _) = image(&[base.clone(), Layer::new().file("top", "1").tar()]);
    let (second, _) = image(&[base, Layer::new().file("top", "2").tar()]);
    registry.push(&first, "app:1");
    let machine = Machine::new();
    let proxy = Proxy::start(registry.port, |_| Fate::Passes).await;
    let name = format!("127.0.0.1:{}/app:1", proxy.port());
    let before = machine.pull(&name).await.unwrap();
    let all = proxy.passed();
    assert!(all > 200_000, "{all}");
    registry.push(&second, "app:1");
    let after = machine.pull(&name).await.unwrap();
    assert_ne!(before.image.id, after.image.id);
    assert_eq!(machine.read(&name, "top"), "2");
    assert!(proxy.passed() - all < 20_000, "the base came again: {}", proxy.passed() - all);
    // What was there is still known by its digest.
    assert_eq!(machine.store.find(&before.reference).unwrap().image.id, before.image.id);
    let asked = proxy.passed();
    machine.pull(&name).await.unwrap();
    assert!(proxy.passed() - asked < 2_000, "an image that is here costs a question: {}", proxy.passed() - asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_takes_the_platform_of_this_machine() {
    let registry = Registry::start();
    let (here, there) = (Layer::new().file("arch", "amd64").tar(), Layer::new().file("arch", "arm64").tar());
    let mut layout = Layout::default();
    let mut arm_config = config(std::slice::from_ref(&there), json!({}));
    arm_config["architecture"] = json!("arm64");
    let mut arm = layout.image(&arm_config, &[gzip(&there)]);
    arm["platform"] = json!({ "os": "linux", "architecture": "arm64", "variant": "v8" });
    let mut amd = layout.image(&config(std::slice::from_ref(&here), json!({})), &[zstd(&here)]);
    amd["platform"] = json!({ "os": "linux", "architecture": "amd64" });
    let both = layout.nested(&[arm.clone(), amd]);
    registry.push(&layout.list(both.clone(), json!({})).archive(), "many:1");
    let machine = Machine::new();
    let pulled = machine.pull(&registry.name("many:1")).await.unwrap();
    assert_eq!(machine.read(&registry.name("many:1"), "arch"), "amd64");
    assert!(pulled.reference.ends_with(both["digest"].as_str().unwrap()), "the digest of the index is the image's");

    let mut layout = Layout::default();
    layout.image(&arm_config, &[gzip(&there)]);
    let only_arm = layout.nested(std::slice::from_ref(&arm));
    registry.push(&layout.list(only_arm, json!({})).archive(), "arm:1");
    let mut layout = Layout::default();
    let bare = layout.image(&arm_config, &[gzip(&there)]);
    registry.push(&layout.list(bare, json!({})).archive(), "arm:2");
    for tag in ["arm:1", "arm:2"] {
        let error = words(&machine.pull(&registry.name(tag)).await.unwrap_err());
        assert!(error.contains("no match for platform linux/amd64 in manifest; it is for linux/arm64"), "{error}");
    }
    assert_eq!(machine.store.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_opens_a_registry_that_asks_for_one() {
    let registry = Registry::start_with(Options { htpasswd: true, ..Options::default() });
    let (archive, _) = image(&[Layer::new().file("a", "1").tar()]);
    registry.push(&archive, "private/app:1");
    let name = registry.name("private/app:1");
    let machine = Machine::new();
    let none = words(&machine.pull(&name).await.unwrap_err());
    assert!(none.contains("pull access denied, repository does not exist or may require authorization"), "{none}");
    let wrong = words(&machine.pull_with(&name, &docker_config(&registry, USER, "hunter2")).await.unwrap_err());
    assert!(wrong.contains("pull access denied") && !wrong.contains("hunter2"), "{wrong}");
    machine.settles().await;

    machine.pull_with(&name, &docker_config(&registry, USER, PASSWORD)).await.unwrap();
    // A second credential for the same place is tried after the first was refused.
    let mut two = docker_config(&registry, USER, "hunter2");
    let host = registry.name("private/app");
    let auth = json!({ "auths": { host: { "username": USER, "password": PASSWORD } } });
    two.add_docker_config(auth.to_string().as_bytes()).unwrap();
    let mut reversed = docker_config(&registry, USER, PASSWORD);
    reversed
        .add_docker_config(
            json!({ "auths": { registry.name("private/app"): { "username": USER, "password": "x" } } })
                .to_string()
                .as_bytes(),
        )
        .unwrap();
    for keyring in [two, reversed] {
        machine.pull_with(&name, &keyring).await.unwrap();
    }
    // The machine itself may have the password.
    machine.settings(&format!(
        "configs:\n  127.0.0.1:{}:\n    auth: {{username: {USER}, password: {PASSWORD}}}\nmirrors:\n  127.0.0.1:{}:\n    \
         endpoint: [\"http://127.0.0.1:{}\"]\n",
        registry.port, registry.port, registry.port
    ));
    machine.pull(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_for_whoever_may_pull() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = TokenServer::start(dir.path(), true).await;
    let registry = Registry::start_with(Options { token: Some(tokens.section()), ..Options::default() });
    let (archive, _) = image(&[Layer::new().file("a", "1").tar(), Layer::new().file("b", "2").tar()]);
    tokio::task::block_in_place(|| registry.push(&archive, "team/app:1"));
    let name = registry.name("team/app:1");
    let count = || tokens.asked.lock().unwrap().len();
    let before = count();
    Machine::new().pull(&name).await.unwrap();
    assert_eq!(count() - before, 1, "one token serves a whole pull");
    let (line, proof) = tokens.asked.lock().unwrap().last().unwrap().clone();
    assert!(line.starts_with("GET /token?service=stable&scope=repository%3Ateam%2Fapp%3Apull "), "{line}");
    assert_eq!(proof, None);

    Machine::new().pull_with(&name, &docker_config(&registry, USER, PASSWORD)).await.unwrap();
    assert!(tokens.asked.lock().unwrap().last().unwrap().1.as_ref().unwrap().starts_with("Basic "));
    let wrong = Machine::new().pull_with(&name, &docker_config(&registry, USER, "hunter2")).await.unwrap_err();
    assert!(words(&wrong).contains("failed to fetch token") && !words(&wrong).contains("hunter2"), "{wrong}");
    // A token that stands for a login is exchanged.
    let mut identity = Keyring::default();
    let host = format!("127.0.0.1:{}", registry.port);
    let auths = json!({ "auths": { host: { "identitytoken": "an identity" } } });
    identity.add_docker_config(auths.to_string().as_bytes()).unwrap();
    Machine::new().pull_with(&name, &identity).await.unwrap();
    assert!(tokens.asked.lock().unwrap().last().unwrap().0.starts_with("POST /token "));
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified_unless_someone_insists() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, certificate, key) = certificates(dir.path());
    let registry = Registry::start_with(Options { tls: Some((certificate, key)), ..Options::default() });
    let (archive, _) = image(&[Layer::new().file("a", "1").tar()]);
    registry.push(&archive, "app:1");
    let name = registry.name("app:1");
    let machine = Machine::new();
    let error = words(&machine.pull(&name).await.unwrap_err());
    assert!(error.contains("invalid peer certificate"), "{error}");
    let host = format!("127.0.0.1:{}", registry.port);
    machine.settings(&format!("configs:\n  {host}:\n    tls: {{ca_file: {}}}\n", authority.display()));
    machine.pull(&name).await.unwrap();
    let careless = Machine::new();
    careless.settings(&format!("configs:\n  {host}:\n    tls: {{insecure_skip_verify: true}}\n"));
    careless.pull(&name).await.unwrap();
    // The name in the certificate counts, not only who signed it.
    let elsewhere = Machine::new();
    let other = format!("127.0.0.2:{}", registry.port);
    elsewhere.settings(&format!("configs:\n  {other}:\n    tls: {{ca_file: {}}}\n", authority.display()));
    let error = words(&elsewhere.pull(&format!("{other}/app:1")).await.unwrap_err());
    assert!(error.contains("failed to do request"), "{error}");
    machine.settings(&format!("configs:\n  {host}:\n    tls: {{ca_file: /does/not/exist}}\n"));
    let error = words(&machine.pull(&name).await.unwrap_err());
    assert!(error.contains("/does/not/exist"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_asked_first_and_gets_no_credentials_that_are_not_its_own() {
    let mirror = Registry::start();
    let (archive, _) = image(&[Layer::new().file("from", "the mirror").tar()]);
    mirror.push(&archive, "team/app:1");
    let origin = Registry::start_with(Options { htpasswd: true, ..Options::default() });
    let (other, _) = image(&[Layer::new().file("from", "the registry").tar()]);
    origin.push(&other, "team/app:1");
    origin.push(&other, "team/app:2");
    let machine = Machine::new();
    let heard = Proxy::start(mirror.port, |_| Fate::Passes).await;
    machine.settings(&format!(
        "mirrors:\n  127.0.0.1:{}:\n    endpoint: [\"http://127.0.0.1:{}\", \"http://127.0.0.1:{}\"]\n",
        origin.port,
        heard.port(),
        origin.port
    ));
    let keyring = docker_config(&origin, USER, PASSWORD);
    machine.pull_with(&origin.name("team/app:1"), &keyring).await.unwrap();
    assert_eq!(machine.read(&origin.name("team/app:1"), "from"), "the mirror");
    // What the mirror does not have comes from the registry itself.
    machine.pull_with(&origin.name("team/app:2"), &keyring).await.unwrap();
    assert_eq!(machine.read(&origin.name("team/app:2"), "from"), "the registry");
    let error = words(&machine.pull_with(&origin.name("team/app:3"), &keyring).await.unwrap_err());
    assert!(
        error.contains(&format!("http://127.0.0.1:{}: ", heard.port())) && error.matches("not found").count() == 2,
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_are_gone_on_with_where_they_ended() {
    let registry = Registry::start();
    let big = 1_000_000;
    let (archive, _) = image(&[
        Layer::new().file("a", &noise(big, 1)).tar(),
        Layer::new().file("b", &noise(big, 2)).tar(),
        Layer::new().file("c", &noise(big, 3)).tar(),
    ]);
    registry.push(&archive, "big:1");
    // Every connection dies after a while, so no layer ever comes in one piece.
    let proxy = Proxy::start(registry.port, |_| Fate::CutAfter(250_000)).await;
    let machine = Machine::new();
    machine.pull(&format!("127.0.0.1:{}/big:1", proxy.port())).await.unwrap();
    assert!(proxy.cuts() >= 9, "{}", proxy.cuts());
    let total = archive.len() as u64;
    assert!(proxy.passed() < total + total / 2, "{} passed for {total}: it was fetched again", proxy.passed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_stays_away_is_given_up_and_gone_on_with_later() {
    let registry = Registry::start();
    let (archive, digests) = image(&[Layer::new().file("a", &noise(2_000_000, 1)).tar()]);
    registry.push(&archive, "big:1");
    // Manifest and configuration may come over connections of their own before the layer does, and all of them together
    // let through less than the layer has.
    let proxy =
        Proxy::start(registry.port, |number| if number < 3 { Fate::CutAfter(300_000) } else { Fate::CutAfter(0) })
            .await;
    let machine = Machine::new();
    let name = format!("127.0.0.1:{}/big:1", proxy.port());
    let error = words(&machine.pull(&name).await.unwrap_err());
    assert!(error.contains(&format!("failed to copy layer {}", digests[0])), "{error}");
    machine.settles().await;
    let download = machine.images().join("downloads").join(digests[0].trim_start_matches("sha256:"));
    let have = fs::metadata(&download).unwrap().len();
    assert!(have > 50_000, "{have}");
    let (first, second) = (Machine::new(), &machine);
    assert_eq!(first.holds("downloads"), 0);
    let passes = Proxy::start(registry.port, |_| Fate::Passes).await;
    second.pull(&format!("127.0.0.1:{}/big:1", passes.port())).await.unwrap();
    let size = fs::metadata(registry.blob(&digests[0])).unwrap().len();
    assert!(passes.passed() < size - have + 10_000, "{} for {} that were missing", passes.passed(), size - have);
    assert_eq!(second.holds("downloads"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_stalls_is_not_waited_for_for_ever() {
    let registry = Registry::start();
    let (archive, _) = image(&[Layer::new().file("a", &noise(1_000_000, 1)).tar()]);
    registry.push(&archive, "big:1");
    // No connection lets the whole layer through, whichever it comes over: others go on where one stalled.
    let proxy = Proxy::start(registry.port, |_| Fate::HeldAfter(300_000)).await;
    let machine = Machine::with(Patience { stall: Duration::from_secs(1), ..patience() }, Limits::default());
    machine.pull(&format!("127.0.0.1:{}/big:1", proxy.port())).await.unwrap();
    assert!(proxy.has_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_dropped_ends_at_once_and_leaves_only_what_can_be_gone_on_with() {
    let registry = Registry::start();
    let (archive, digests) = image(&[Layer::new().file("a", &noise(1_000_000, 1)).tar()]);
    registry.push(&archive, "big:1");
    let proxy = Proxy::start(registry.port, |_| Fate::HeldAfter(400_000)).await;
    let machine = Machine::new();
    let download = machine.images().join("downloads").join(digests[0].trim_start_matches("sha256:"));
    let have = || fs::metadata(&download).map_or(0, |meta| meta.len());
    {
        let name = format!("127.0.0.1:{}/big:1", proxy.port());
        let pull = machine.pull(&name);
        tokio::select! {
            _ = pull => panic!("it cannot end"),
            () = async { proxy.holds().await; until(|| have() > 300_000).await } => {}
        }
    }
    machine.settles().await;
    // Whoever comes next takes the same file over, and the store, when opened, leaves it alone.
    drop(ImageStore::open(&machine.images(), crate::image_support::program()).unwrap());
    let (have, size) = (have(), fs::metadata(registry.blob(&digests[0])).unwrap().len());
    let passes = Proxy::start(registry.port, |_| Fate::Passes).await;
    machine.pull(&format!("127.0.0.1:{}/big:1", passes.port())).await.unwrap();
    assert!(passes.passed() < size - have + 10_000, "{} for {} that were missing", passes.passed(), size - have);
    assert_eq!(machine.holds("downloads"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pulls_of_one_image_share_the_work() {
    let registry = Registry::start();
    let base = Layer::new().file("a", &noise(1_000_000, 1)).tar();
    let (one, digests) = image(&[base.clone(), Layer::new().file("b", "1").tar()]);
    let (two, _) = image(&[base, Layer::new().file("b", "2").tar()]);
    registry.push(&one, "one:1");
    registry.push(&two, "two:1");
    let size = fs::metadata(registry.blob(&digests[0])).unwrap().len();
    let proxy = Proxy::start(registry.port, |_| Fate::HeldAfter(300_000)).await;
    let machine = Machine::new();
    let at = |name: &str| format!("127.0.0.1:{}/{name}", proxy.address.port());
    let (one, two) = (at("one:1"), at("two:1"));
    let spawn = |name: &str| {
        let (puller, name) = (machine.puller.clone(), name.parse().unwrap());
        tokio::spawn(
            async move { puller.pull(&name, &Keyring::default(), &watch::Sender::new(Progress::default())).await },
        )
    };
    let first = spawn(&one);
    proxy.holds().await;
    // What has passed the proxy is not yet what has been kept.
    let kept = || {
        let files = fs::read_dir(machine.images().join("downloads")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).max().unwrap_or(0)
    };
    until(|| kept() > 200_000).await;
    // Nobody else can begin with the layer that the first one is at.
    let others: Vec<_> = (0..8).map(|_| spawn(&one)).chain([spawn(&two)]).collect();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // Until its connection is closed, what the proxy lets through would still go to the first one.
    proxy.is_left().await;
    proxy.go_on();
    let mut ids = Vec::new();
    for other in others {
        ids.push(other.await.unwrap().unwrap().image.id);
    }
    assert!(ids[..8].iter().all(|id| *id == ids[0]) && ids[8] != ids[0], "{ids:?}");
    assert!(proxy.passed() < size + 200_000, "{} passed for one layer of {size}", proxy.passed());
    assert_eq!((machine.holds("layers"), machine.holds("downloads")), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_registry_answer_is_refused() {
    let registry = Registry::start();
    let layer = Layer::new().file("a", &noise(50_000, 1)).tar();
    let machine = Machine::new();
    for (case, expected) in [
        ("changed", "does not match its digest"),
        ("longer", "longer than the"),
        ("config", "its configuration does not match its digest"),
    ] {
        let (archive, digests) = image(&[layer.clone(), Layer::new().file("case", case).tar()]);
        registry.push(&archive, &format!("{case}:1"));
        let blob = match case {
            "config" => {
                let stored = [layer.clone(), Layer::new().file("case", case).tar()];
                registry.blob(
                    &runtime::image::Digest::of(config(&stored, json!({ "Cmd": ["/x"] })).to_string().as_bytes())
                        .to_string(),
                )
            }
            _ => registry.blob(&digests[1]),
        };
        let mut content = fs::read(&blob).unwrap();
        let middle = content.len() / 2;
        match case {
            "longer" => content.extend([0; 100]),
            _ => content[middle] ^= 1,
        }
        fs::write(&blob, content).unwrap();
        let error = words(&machine.pull(&registry.name(&format!("{case}:1"))).await.unwrap_err());
        assert!(error.contains(expected), "{case}: {error}");
    }
    machine.settles().await;
    let absent = words(&machine.pull(&registry.name("absent:1")).await.unwrap_err());
    let name = registry.name("absent:1");
    assert!(
        absent.contains(&format!("failed to resolve reference {name:?}: "))
            && absent.contains(&format!("{name}: not found")),
        "{absent}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_layers_bombs_and_impostors_are_refused_on_the_way_from_a_registry() {
    let registry = Registry::start();
    let machine = Machine::with(patience(), Limits { bytes_max: 1 << 20, entries_max: 100 });
    let outside = machine.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let escape = format!("{}/new", outside.display());
    let zeros = "\0".repeat(2 << 20);
    let many = (0..101).fold(Layer::new(), |layer, number| layer.file(&format!("f{number}"), ""));
    for (case, layer, expected) in [
        ("climbs", Layer::new().file("../../../../../outside/new", "x"), "leads out of the layer"),
        ("absolute", Layer::new().file(&escape, "x"), "absolute path"),
        (
            "through",
            Layer::new().link(tar::EntryType::Symlink, "exit", outside.to_str().unwrap()).file("exit/new", "x"),
            "symbolic link",
        ),
        ("bomb", Layer::new().file("zeros", &zeros), "larger than"),
        ("many", many, "the number of files"),
    ] {
        let (archive, _) = image(&[layer.tar()]);
        registry.push(&archive, &format!("{case}:1"));
        let error = words(&machine.pull(&registry.name(&format!("{case}:1"))).await.unwrap_err());
        assert!(error.contains(expected), "{case}: {error}");
    }
    // A chart is in a registry too, and is no image.
    let mut layout = Layout::default();
    let chart = layout.blob("application/vnd.cncf.helm.config.v1+json", b"{}");
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": image_support::OCI_MANIFEST, "config": chart, "layers": [] });
    let manifest = layout.blob(image_support::OCI_MANIFEST, manifest.to_string().as_bytes());
    registry.push(&layout.list(manifest, json!({})).archive(), "chart:1");
    let error = words(&machine.pull(&registry.name("chart:1")).await.unwrap_err());
    assert!(error.contains("not a container image but application/vnd.cncf.helm.config.v1+json"), "{error}");
    machine.settles().await;
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}
