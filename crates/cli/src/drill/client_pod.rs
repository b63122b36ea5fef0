//! The client pod of a drill: made, followed by its log, and removed with its image, however the drill ends.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::client::ClientArgs;
use super::source::Heard;
use super::{DrillArgs, Surroundings};
use crate::cluster::{Cluster, LocalInstance};
use crate::demo::image;
use crate::load::Counts;
use crate::pod_end::word;
use crate::verbs::{Call, next_line, path_segment};

/// How long the pod may take to start, and to be gone.
const STARTED: Duration = Duration::from_secs(60);
const GONE: Duration = Duration::from_secs(20);
/// How often to look, and to ask for a log that broke off.
const LOOK: Duration = Duration::from_millis(100);
/// How much longer than the drill the pod may live, should nobody be left to remove it.
const OUTLIVES: Duration = Duration::from_secs(120);
/// Its image is free again a moment after it is gone.
const IMAGE_TRIES: usize = 20;
/// So many folders of that name may be there already.
const FOLDERS: u32 = 100;
/// Nobody, on most systems.
const NOBODY: u32 = 65_534;
/// Why a pod will not start by itself.
const STUCK: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
];

/// A pod that sends requests.
pub(super) struct ClientPod {
    cluster: Cluster,
    program: PathBuf,
    local: Option<LocalInstance>,
    name: String,
    /// It may be there.
    is_asked_for: bool,
    /// Its image may be there.
    has_image: bool,
    /// Work on the image that cannot be called off, and is soon done.
    working: Option<JoinHandle<Result<()>>>,
    /// The request that makes the pod. Who stopped listening to it would not know whether there will be one.
    creating: Option<JoinHandle<Result<()>>>,
    follower: Option<JoinHandle<()>>,
}

impl ClientPod {
    /// Nothing is made yet.
    pub(super) fn new(cluster: &Cluster, local: Option<&LocalInstance>, surroundings: Surroundings<'_>) -> Self {
        let (process, moment) = (std::process::id(), (surroundings.now)().as_millisecond() % 0x1_0000_0000);
        Self {
            cluster: cluster.clone(),
            program: surroundings.program.to_owned(),
            local: local.cloned(),
            name: format!("adieu-drill-{process:x}-{moment:x}"),
            is_asked_for: false,
            has_image: false,
            working: None,
            creating: None,
            follower: None,
        }
    }

    fn image(&self) -> String {
        format!("localhost/{}:1", self.name)
    }

    fn path(&self, part: &str) -> Result<String> {
        Ok(format!("/api/v1/namespaces/{}/pods{part}", path_segment(&self.cluster.namespace)?))
    }

    /// Makes the pod, and hears from it.
    pub(super) async fn begin(
        &mut self,
        client: &ClientArgs,
        args: &DrillArgs,
        heard: watch::Sender<Heard>,
        began: Instant,
    ) -> Result<()> {
        let own = match &args.client_image {
            Some(image) => Placement { image: image.clone(), pull: "IfNotPresent", node: None },
            None => {
                self.load_image().await.context("cannot bring the client's image into the instance")?;
                let node = self.local.as_ref().and_then(|local| local.node.clone());
                Placement { image: self.image(), pull: "Never", node }
            }
        };
        let lives = args.timeout.saturating_add(OUTLIVES).saturating_add(STARTED);
        let pod = manifest(&self.name, client, &own, lives);
        self.is_asked_for = true;
        let call = Call::new(Method::POST, self.path("")?, "make the client pod").body("application/json", &pod);
        let cluster = self.cluster.clone();
        let creating = self.creating.insert(tokio::spawn(async move { cluster.ask(&call).await.map(drop) }));
        let created = creating.await;
        self.creating = None;
        created??;
        timeout(STARTED, self.until_started())
            .await
            .with_context(|| format!("the client pod does not start; see why: adieu why pod/{}", self.name))??;
        let call = Call::get(self.path(&format!("/{}/log", self.name))?, "read the log of the client pod")
            .query("follow", "true")
            .query("tailLines", "1");
        self.follower = Some(tokio::spawn(follow(self.cluster.clone(), call, heard, began)));
        Ok(())
    }

    async fn until_started(&self) -> Result<()> {
        let call = Call::get(self.path(&format!("/{}", self.name))?, "look at the client pod");
        loop {
            let pod = self.cluster.ask(&call).await?.value;
            let state = &pod["status"]["containerStatuses"][0]["state"];
            let (reason, message) = (word(&state["waiting"], "reason"), word(&state["waiting"], "message"));
            if state["running"].is_object() {
                return Ok(());
            }
            ensure!(
                !state["terminated"].is_object(),
                "the client pod ended at once; is its image one of this program?"
            );
            if STUCK.contains(&reason) {
                bail!("the client pod does not start: {reason}: {message}");
            }
            sleep(LOOK).await;
        }
    }

    /// Asks it to leave; what it says then is still heard. Answers whether it has something to say.
    pub(super) async fn ask_to_stop(&self) -> bool {
        self.is_asked_for && self.delete().await.is_ok_and(|is_there| is_there) && self.follower.is_some()
    }

    /// Answers whether it is there.
    async fn delete(&self) -> Result<bool> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        let call = Call::new(Method::DELETE, self.path(&format!("/{}", self.name))?, "delete the client pod");
        Ok(self.cluster.find(&call.body("application/json", &options)).await?.is_some())
    }

    /// Removes everything that was made. Says what stays if that fails.
    pub(super) async fn remove(&mut self) -> Result<()> {
        if let Some(working) = self.working.take() {
            let _ = working.await;
        }
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        let mut outcome = Ok(());
        if self.is_asked_for {
            let removed = self.remove_pod().await;
            let (name, namespace) = (&self.name, &self.cluster.namespace);
            outcome =
                removed.with_context(|| format!("the client pod may stay: adieu delete pod/{name} -n {namespace}"));
        }
        if self.has_image {
            let removed = self.remove_image().await;
            outcome = outcome.and(removed);
        }
        outcome
    }

    /// Deletes the pod until it is gone; a server that refuses or does not answer once may do so the next time.
    async fn remove_pod(&mut self) -> Result<()> {
        let mut is_decided = true;
        if let Some(mut creating) = self.creating.take() {
            is_decided = timeout(GONE, &mut creating).await.is_ok();
            creating.abort();
        }
        let mut last = None;
        let gone = async {
            loop {
                match self.delete().await {
                    Ok(false) => return,
                    Ok(true) => last = None,
                    Err(error) => last = Some(error),
                }
                sleep(LOOK).await;
            }
        };
        if timeout(GONE, gone).await.is_err() {
            return Err(last.unwrap_or_else(|| anyhow!("it does not leave")));
        }
        ensure!(is_decided, "the server did not say whether it was made");
        Ok(())
    }

    async fn load_image(&mut self) -> Result<()> {
        let local = self.local.as_ref().context("no instance of this machine")?.clone();
        let (program, name) = (self.program.clone(), self.image());
        self.has_image = true;
        let work = move || {
            let folder = make_folder()?;
            let loaded = (|| {
                let archive = folder.join("image.tar");
                image::write(&program, &name, &archive)?;
                let archive = archive.to_str().context("the folder's name is no text")?;
                run(&program, &["image", "load", archive], &local.dir)
            })();
            let removed = fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()));
            loaded.and(removed)
        };
        let working = self.working.insert(tokio::task::spawn_blocking(work));
        let worked = working.await;
        self.working = None;
        worked?
    }

    async fn remove_image(&self) -> Result<()> {
        let Some(local) = self.local.clone() else { return Ok(()) };
        let (program, name) = (self.program.clone(), self.image());
        let mut outcome = Ok(());
        for _ in 0..IMAGE_TRIES {
            let (program, name, dir) = (program.clone(), name.clone(), local.dir.clone());
            let removed = tokio::task::spawn_blocking(move || run(&program, &["image", "rm", &name], &dir));
            outcome = removed.await?;
            if outcome.is_ok() {
                break;
            }
            sleep(LOOK).await;
        }
        outcome.with_context(|| format!("the client's image stays: adieu image rm {name}"))
    }
}

/// Where the pod's image comes from, and where it runs.
struct Placement {
    image: String,
    pull: &'static str,
    node: Option<String>,
}

/// A pod that may do nothing but send requests, also where only restricted pods are let in.
fn manifest(name: &str, client: &ClientArgs, own: &Placement, lives: Duration) -> Value {
    let (address, rate) = (client.address.to_string(), client.rate.to_string());
    let command = [
        &[image::PROGRAM, "demo-app", "drill", &address, "--host", &client.host, "--path", &client.path][..],
        &["--rate", &rate, "--connections", client.connections.word()],
    ]
    .concat();
    let mut spec = json!({
        "restartPolicy": "Never", "activeDeadlineSeconds": lives.as_secs(), "terminationGracePeriodSeconds": 15,
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": NOBODY, "runAsGroup": NOBODY,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [{
            "name": "client", "image": own.image, "imagePullPolicy": own.pull, "command": command,
            "resources": { "requests": { "cpu": "50m", "memory": "32Mi" }, "limits": { "memory": "256Mi" } },
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
            },
        }],
    });
    if let Some(node) = &own.node {
        spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "adieu.dev/drill": "client" } }, "spec": spec,
    })
}

/// Takes in every line of a log, and asks again if it breaks off. Ends with the last counts, or with whoever waits for it.
async fn follow(cluster: Cluster, call: Call, heard: watch::Sender<Heard>, began: Instant) {
    loop {
        if let Ok(mut lines) = cluster.stream(&call).await {
            while let Ok(Some(line)) = next_line(&mut lines).await {
                // The program may complain there, too.
                let Ok(counts) = serde_json::from_slice::<Counts>(&line) else { continue };
                let is_final = counts.is_final;
                heard.send_modify(|heard| heard.take(counts, began));
                if is_final {
                    return;
                }
            }
        }
        sleep(LOOK).await;
    }
}

/// Runs this program with these words to its end. It has a group of its own: Ctrl-C is for the drill, which waits for it.
fn run(program: &Path, words: &[&str], dir: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.arg0("adieu").args(words).arg("--data-dir").arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let output = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`adieu {}` ended with {}: {}", words.join(" "), output.status, said.trim());
    Ok(())
}

/// A folder that is closed to others.
pub(super) fn make_folder() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    for number in 0..FOLDERS {
        let folder = parent.join(format!("adieu-drill-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot make a folder in {}", parent.display())),
        }
    }
    bail!("{} is full of folders of former drills; remove them", parent.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::drill::client::Connections;

    #[test]
    fn client_pod_is_one_that_restricted_namespaces_let_in_and_ends_by_itself() {
        let client = ClientArgs {
            address: "10.87.0.9:80".parse().unwrap(),
            host: "web.shop".to_owned(),
            path: "/".to_owned(),
            rate: 200,
            connections: Connections::Both,
        };
        let own = Placement { image: "i".to_owned(), pull: "Never", node: Some("n1".to_owned()) };
        let pod = manifest("adieu-drill-1", &client, &own, Duration::from_secs(60));
        let kind = api::built_in("", "v1", "pods").unwrap();
        assert_eq!(kind.kind, "Pod");
        let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        let spec = typed.spec.unwrap();
        assert_eq!(spec.active_deadline_seconds, Some(60));
        let of_pod = spec.security_context.unwrap();
        assert_eq!(
            (of_pod.run_as_non_root, of_pod.seccomp_profile.unwrap().type_.as_str()),
            (Some(true), "RuntimeDefault")
        );
        let own = spec.containers[0].security_context.clone().unwrap();
        assert_eq!(
            (own.allow_privilege_escalation, own.capabilities.unwrap().drop),
            (Some(false), Some(vec!["ALL".to_owned()]))
        );
        assert_eq!(spec.containers[0].command.as_ref().unwrap()[1..3], ["demo-app", "drill"]);
    }

    /// What a server of one pod saw.
    #[derive(Default)]
    struct Seen {
        posted: bool,
        is_there: bool,
        deletes: usize,
    }

    /// Makes a pod once it may, refuses the first delete, and then deletes it.
    async fn server(seen: watch::Sender<Seen>, may_make: watch::Receiver<bool>) -> String {
        use http::{Response, StatusCode};
        use hyper::body::{Bytes, Incoming};
        let answer = move |request: http::Request<Incoming>| {
            let (seen, mut may_make) = (seen.clone(), may_make.clone());
            async move {
                let mut code = StatusCode::OK;
                if request.method() == Method::POST {
                    seen.send_modify(|seen| seen.posted = true);
                    // Also for a client that has left meanwhile, as any server would.
                    let making = tokio::spawn(async move {
                        may_make.wait_for(|may| *may).await.unwrap();
                        seen.send_modify(|seen| seen.is_there = true);
                    });
                    making.await.unwrap();
                } else {
                    seen.send_modify(|seen| {
                        seen.deletes += 1;
                        code = match (seen.deletes, seen.is_there) {
                            (1, _) => StatusCode::FORBIDDEN,
                            (_, true) => StatusCode::OK,
                            (_, false) => StatusCode::NOT_FOUND,
                        };
                        seen.is_there &= code != StatusCode::OK;
                    });
                }
                let mut response = Response::new(http_body_util::Full::new(Bytes::from_static(b"{}")));
                *response.status_mut() = code;
                Ok::<_, std::convert::Infallible>(response)
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper::service::service_fn(answer.clone());
                let stream = hyper_util::rt::TokioIo::new(stream);
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
            }
        });
        server
    }

    #[tokio::test]
    async fn client_pod_that_is_made_after_its_drill_was_called_off_is_removed_though_one_delete_fails() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: DrillArgs,
        }
        let (seen, mut sees) = watch::channel(Seen::default());
        let (make, may_make) = watch::channel(false);
        let server = server(seen, may_make).await;
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        );
        fs::write(&kubeconfig, text).unwrap();
        let line = ["drill", "deploy/web", "--client-image", "i", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let args = Line::parse_from(line).args;
        let environment = crate::cluster::Environment::default();
        let cluster = args.cluster.connect(&environment).await.unwrap();
        let surroundings = Surroundings {
            environment: &environment,
            program: Path::new("/absent"),
            is_root: false,
            screen: crate::progress::Screen::Lines,
            now: || jiff::Timestamp::UNIX_EPOCH,
        };
        let client = ClientArgs {
            address: "10.87.0.9:80".parse().unwrap(),
            host: "web.shop".to_owned(),
            path: "/".to_owned(),
            rate: 200,
            connections: Connections::Both,
        };
        let mut pod = ClientPod::new(&cluster, None, surroundings);
        tokio::select! {
            begun = pod.begin(&client, &args, watch::Sender::new(Heard::default()), Instant::now()) => begun.unwrap(),
            posted = sees.wait_for(|seen| seen.posted) => drop(posted.unwrap()),
        }
        let mut removing = std::pin::pin!(pod.remove());
        let too_soon = timeout(Duration::from_millis(300), &mut removing).await;
        assert!(too_soon.is_err(), "it waits for the pod that it asked for: {too_soon:?}");
        make.send(true).unwrap();
        removing.await.unwrap();
        assert!(!sees.borrow().is_there);
        assert_eq!(sees.borrow().deletes, 3, "refused, deleted, not there any more");
    }
}
