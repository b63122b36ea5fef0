//! `adieu status`: asked over the control socket, answered from the instance's own API.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cli::StatusArgs;
use cli::status::{NodeStatus, PodStatus, Status};
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};
use server::Identity;
use store::{Backup, Store};

use crate::config::{Config, VERSION};
use crate::control;
use crate::control_plane::ControlPlane;
use crate::instance::Instance;

/// What init scripts answer for a service that is not running.
const NOT_UP: u8 = 3;

/// How long the API server may take to say how things are.
const ANSWER: Duration = Duration::from_secs(4);

/// Tells how the instance on the folder is.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let dir = std::path::absolute(&args.data_dir.path)?;
    if let Some(answer) = control::ask_status(&dir) {
        let answer: Value =
            serde_json::from_str(&answer).context("the instance answers in words of another version")?;
        if let Some(error) = answer["error"].as_str() {
            anyhow::bail!("the instance on {} is up, but does not know how it is: {error}", dir.display());
        }
        let status: Status = serde_json::from_value(answer).context("the instance is of another version")?;
        cli::status::show(&status, Timestamp::now(), args.output, &mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    cli::status::show_absent(&absent(&dir)?, args.output, &mut io::stdout().lock())?;
    Ok(ExitCode::from(NOT_UP))
}

/// Why nobody answers, and what to do.
fn absent(dir: &Path) -> Result<String> {
    let place = dir.display();
    let readable = std::fs::read_dir(dir);
    match readable {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            anyhow::bail!("cannot look into {place}; run it as the user who runs the instance (root for `adieu up`)")
        }
        Err(_) => return Ok(format!("adieu is not up: there is no {place}; start it with `adieu up`")),
        Ok(_) => {}
    }
    if Instance::is_taken(dir)? {
        return Ok(format!("adieu is starting or ending on {place}; ask again in a moment"));
    }
    let left = std::fs::read_dir(dir.join("pods")).map_or(0, Iterator::count);
    let start = Config::recall(dir).map_or("adieu up", |config| config.command());
    Ok(match (Config::is_remembered(dir), left) {
        (true, 1..) => format!(
            "adieu is not up on {place}, but {left} of its pods may still run; look after them with `{start}`, or end them with \
             `adieu down`"
        ),
        (true, 0) => format!("adieu is not up on {place}; start it with `{start}`, or clean up with `adieu down`"),
        (false, _) => format!("adieu is down on {place}; start it with `adieu up`"),
    })
}

/// Knows how an instance is.
pub(crate) struct Reporter {
    /// Speaks as someone who may see everything.
    client: kube::Client,
    api: String,
    kubeconfig: PathBuf,
    node: Option<String>,
    /// The pods that it may see.
    pods: String,
    /// Since when it has been ready.
    since: Timestamp,
    /// The pods of the node in this process that are on their way out, and by when.
    leaving: Leaving,
    /// What it stores, if it does.
    store: Option<Store>,
}

/// Tells who leaves, by namespace and name, and by when: not everyone who does was deleted.
pub(crate) type Leaving = Arc<dyn Fn() -> BTreeMap<(String, String), Timestamp> + Send + Sync>;

impl Reporter {
    /// For an instance that is ready now: clients get to its API at `address` by `kubeconfig`; `node` runs in this process.
    pub(crate) fn new(
        plane: &ControlPlane,
        address: SocketAddr,
        kubeconfig: PathBuf,
        node: Option<(String, Leaving)>,
    ) -> Self {
        let client = plane.client_as(Identity::new("system:apiserver", &["system:masters"]));
        let (api, pods) = (format!("https://{address}"), "/api/v1/pods".to_owned());
        let nobody: Leaving = Arc::new(BTreeMap::new);
        let (node, leaving) = node.map_or((None, nobody), |(node, leaving)| (Some(node), leaving));
        let store = Some(plane.store.clone());
        Self { client, api, kubeconfig, node, pods, since: Timestamp::now(), leaving, store }
    }

    /// For a node that joins the server at `server`, which it asks through `client`.
    pub(crate) fn of_member(
        client: kube::Client,
        server: &http::Uri,
        kubeconfig: PathBuf,
        (node, leaving): (String, Leaving),
    ) -> Self {
        let api = server.to_string().trim_end_matches('/').to_owned();
        let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        Self { client, api, kubeconfig, node: Some(node), pods, since: Timestamp::now(), leaving, store: None }
    }

    /// Everything that it stores, if it does.
    pub(crate) fn backup(&self) -> Option<Backup> {
        self.store.as_ref().map(Store::backup)
    }

    /// One line for [`run`].
    pub(crate) async fn report(&self) -> String {
        match self.look().await {
            Ok(status) => json!(status).to_string(),
            Err(error) => json!({ "error": format!("{error:#}") }).to_string(),
        }
    }

    async fn look(&self) -> Result<Status> {
        let node = match &self.node {
            Some(name) => Some(node_status(name, &self.get(&format!("/api/v1/nodes/{name}")).await?)),
            None => None,
        };
        let pods = self.get(&self.pods).await?;
        let pods = pods["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let leaving = (self.leaving)();
        Ok(Status {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            since: self.since,
            api: self.api.clone(),
            kubeconfig: self.kubeconfig.display().to_string(),
            node,
            pods: pods.iter().map(|pod| pod_status(pod, &leaving)).collect(),
        })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new()).context("a path")?;
        let asking = tokio::time::timeout(ANSWER, self.client.request(request));
        asking.await.context("the API server does not answer")?.with_context(|| format!("cannot read {path}"))
    }
}

fn node_status(name: &str, node: &Value) -> NodeStatus {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_true: Vec<&str> =
        conditions.iter().filter(|it| it["status"] == "True").filter_map(|it| it["type"].as_str()).collect();
    NodeStatus {
        name: name.to_owned(),
        ready: is_true.contains(&"Ready"),
        pressures: is_true.iter().filter(|kind| **kind != "Ready").map(|&kind| kind.to_owned()).collect(),
    }
}

fn pod_status(pod: &Value, leaving: &BTreeMap<(String, String), Timestamp>) -> PodStatus {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let deleted = metadata["deletionTimestamp"].as_str().and_then(|time| time.parse().ok());
    // The node's own word is the newer one: a shutdown may have brought the end closer.
    let own = leaving.get(&(namespace.clone(), name.clone())).copied();
    // Whoever has ended its processes deletes it at once; what is there all the same is kept by those alone.
    let has_ended = own.is_none() && deleted.is_some() && metadata["deletionGracePeriodSeconds"] == 0;
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten().filter(|_| has_ended);
    let held_by = finalizers.map(text).collect();
    PodStatus { namespace, name, phase: text(&pod["status"]["phase"]), deadline: own.or(deleted), held_by }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod that leaves with its node was not deleted by anybody; nor was one whose manifest is gone.
    #[test]
    fn pod_that_its_node_ends_is_shown_as_leaving() {
        let pod =
            |name: &str| json!({ "metadata": { "namespace": "a", "name": name }, "status": { "phase": "Running" } });
        let at = Timestamp::UNIX_EPOCH;
        let leaving = BTreeMap::from([(("a".to_owned(), "static".to_owned()), at)]);
        assert_eq!(pod_status(&pod("static"), &leaving).deadline, Some(at));
        assert_eq!(pod_status(&pod("other"), &leaving).deadline, None);
        let mut deleted = pod("deleted");
        deleted["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:09Z");
        assert_eq!(pod_status(&deleted, &leaving).deadline.map(Timestamp::as_second), Some(9));
    }

    #[test]
    fn ended_pod_is_shown_as_held_by_its_finalizers() {
        let held = |grace: u64, name: &str, finalizers: &[&str]| {
            let metadata = json!({ "namespace": "a", "name": name, "deletionTimestamp": "1970-01-01T00:00:09Z",
                "deletionGracePeriodSeconds": grace, "finalizers": finalizers });
            let leaving = BTreeMap::from([(("a".to_owned(), "leaves".to_owned()), Timestamp::UNIX_EPOCH)]);
            pod_status(&json!({ "metadata": metadata }), &leaving).held_by
        };
        assert_eq!(held(0, "ended", &["x.io/one"]), ["x.io/one"]);
        assert_eq!(held(30, "ends", &["x.io/one"]), Vec::<String>::new());
        assert_eq!(held(0, "leaves", &["x.io/one"]), Vec::<String>::new(), "deleted by force, and still here");
        assert_eq!(held(0, "ended", &[]), Vec::<String>::new());
    }
}
