//! From what people write to what an API serves: `po`, `pods`, `deploy`, `deployments.apps`, `all`.
//!
//! Any cluster is asked what it serves, because it may serve more than this program knows.

use anyhow::{Result, bail};
use futures::future;
use serde::Deserialize;
use serde_json::Value;

use super::requests::{Call, path_segment};
use crate::cluster::Cluster;

/// What `all` means.
const ALL: [&str; 9] = [
    "pods",
    "replicationcontrollers",
    "services",
    "daemonsets.apps",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "horizontalpodautoscalers.autoscaling",
    "jobs.batch,cronjobs.batch",
];

/// A kind of object as an API serves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resource {
    /// Its group; empty for the core.
    pub group: String,
    /// Its version.
    pub version: String,
    /// In paths: `pods`.
    pub plural: String,
    /// `Pod`.
    pub kind: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// `pods`, `deployments.apps`.
    pub(crate) fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `pod/web`, `deployment.apps/web`.
    pub(crate) fn object_name(&self, name: &str) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{}/{name}", self.group) }
    }

    /// `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Where its objects are: of one namespace, or of all if none is named.
    pub(crate) fn path(&self, namespace: Option<&str>) -> Result<String> {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let base = format!("{root}/{}", self.api_version());
        Ok(match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{base}/namespaces/{}/{}", path_segment(namespace)?, self.plural),
            None => format!("{base}/{}", self.plural),
        })
    }

    /// Where one of them is.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> Result<String> {
        Ok(format!("{}/{}", self.path(Some(namespace))?, path_segment(name)?))
    }
}

/// What an API says it serves.
#[derive(Deserialize)]
struct ServedList {
    #[serde(default)]
    resources: Vec<Served>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    name: String,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    namespaced: bool,
    kind: String,
    #[serde(default)]
    short_names: Vec<String>,
}

/// What a cluster serves, asked once.
#[derive(Default)]
pub(crate) struct Resources {
    groups: Vec<Group>,
    has_all: bool,
}

struct Group {
    group: String,
    version: String,
    served: Vec<Served>,
}

impl Group {
    fn find(&self, word: &str) -> Option<Resource> {
        let is_meant = |served: &&Served| {
            !served.name.contains('/')
                && (served.name == word
                    || served.singular_name == word
                    || served.kind.to_lowercase() == word
                    || served.short_names.iter().any(|short| short == word))
        };
        self.served.iter().find(is_meant).map(|served| Resource {
            group: self.group.clone(),
            version: self.version.clone(),
            plural: served.name.clone(),
            kind: served.kind.clone(),
            namespaced: served.namespaced,
        })
    }
}

impl Resources {
    /// The resources of a word such as `pods,svc` or `all`.
    pub(crate) async fn find_all(&mut self, cluster: &Cluster, words: &str) -> Result<Vec<Resource>> {
        let mut found = Vec::new();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            if word == "all" {
                for word in ALL.join(",").split(',') {
                    found.extend(self.look_up(cluster, word).await?);
                }
                continue;
            }
            found.push(self.find(cluster, word).await?);
        }
        Ok(found)
    }

    /// The resource that a word means; of several groups the one that the server names first, as with kubectl.
    pub(crate) async fn find(&mut self, cluster: &Cluster, word: &str) -> Result<Resource> {
        match self.look_up(cluster, word).await? {
            Some(resource) => Ok(resource),
            None => bail!("the server does not serve {word:?}; the kinds it serves: adieu api-resources"),
        }
    }

    async fn look_up(&mut self, cluster: &Cluster, word: &str) -> Result<Option<Resource>> {
        let word = word.to_lowercase();
        if self.groups.is_empty() {
            self.groups.push(read_group(cluster, "", "v1").await?);
        }
        if let Some(found) = self.known(&word) {
            return Ok(Some(found));
        }
        if !self.has_all {
            self.read_all(cluster).await?;
        }
        Ok(self.known(&word))
    }

    /// The resource of a manifest.
    pub(crate) async fn of_kind(&mut self, cluster: &Cluster, api_version: &str, kind: &str) -> Result<Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_it = |known: &&Group| known.group == group && known.version == version;
        if !self.groups.iter().any(|known| is_it(&known)) {
            let doing = format!("find the kind {kind} of {api_version}");
            path_segment(version)?;
            let found = match group {
                "" => read_group(cluster, "", version).await,
                group => {
                    path_segment(group)?;
                    read_group(cluster, group, version).await
                }
            };
            let Ok(found) = found else { bail!("cannot {doing}: the server does not serve {api_version}") };
            self.groups.push(found);
        }
        let known = self.groups.iter().find(is_it);
        let served = known.and_then(|known| {
            let served = known.served.iter().find(|served| served.kind == kind && !served.name.contains('/'))?;
            known.find(&served.name)
        });
        match served {
            Some(resource) => Ok(resource),
            None => bail!("the server has no kind {kind} in {api_version}"),
        }
    }

    fn known(&self, word: &str) -> Option<Resource> {
        let plain = self.groups.iter().find_map(|group| group.find(word));
        plain.or_else(|| {
            let (resource, group) = word.split_once('.')?;
            self.groups
                .iter()
                .filter(|known| group == known.group || group == format!("{}.{}", known.version, known.group))
                .find_map(|known| known.find(resource))
        })
    }

    /// Everything, in the order in which the server names its groups.
    pub(crate) async fn read_all(&mut self, cluster: &Cluster) -> Result<()> {
        let answer = cluster.ask(&Call::get("/apis", "ask which kinds there are")).await?.value;
        let groups = answer["groups"].as_array().cloned().unwrap_or_default();
        let named = groups.iter().filter_map(|group| {
            let name = group["name"].as_str()?;
            let version = group["preferredVersion"]["version"].as_str()?;
            path_segment(name).ok().zip(path_segment(version).ok())
        });
        let reads: Vec<_> = named
            .filter(|(name, version)| {
                !self.groups.iter().any(|known| known.group == *name && known.version == *version)
            })
            .map(|(name, version)| async move { read_group(cluster, &name, &version).await })
            .collect();
        // A group whose server is away hides no other.
        self.groups.extend(future::join_all(reads).await.into_iter().filter_map(Result::ok));
        self.has_all = true;
        Ok(())
    }

    /// Rows for people: name, short names, group and version, namespaced, kind.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let of_group = |group: &Group| {
            let version = if group.group.is_empty() {
                group.version.clone()
            } else {
                format!("{}/{}", group.group, group.version)
            };
            let served = group.served.iter().filter(|served| !served.name.contains('/'));
            served
                .map(|served| {
                    let short = served.short_names.join(",");
                    vec![
                        served.name.clone(),
                        short,
                        version.clone(),
                        served.namespaced.to_string(),
                        served.kind.clone(),
                    ]
                })
                .collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(of_group).collect()
    }
}

async fn read_group(cluster: &Cluster, group: &str, version: &str) -> Result<Group> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let answer = cluster.ask(&Call::get(path, "ask which kinds there are")).await?.value;
    Ok(Group { group: group.to_owned(), version: version.to_owned(), served: served(answer)? })
}

fn served(answer: Value) -> Result<Vec<Served>> {
    Ok(serde_json::from_value::<ServedList>(answer)?.resources)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn resources() -> Resources {
        let group = |group: &str, version: &str, resources: Value| Group {
            group: group.to_owned(),
            version: version.to_owned(),
            served: served(json!({ "resources": resources })).unwrap(),
        };
        let core = json!([
            { "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"] },
            { "name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod" },
            { "name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "shortNames": ["no"] },
            { "name": "events", "singularName": "event", "namespaced": true, "kind": "Event", "shortNames": ["ev"] },
        ]);
        let apps = json!([{ "name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment", "shortNames": ["deploy"] }]);
        let events = json!([{ "name": "events", "singularName": "event", "namespaced": true, "kind": "Event", "shortNames": ["ev"] }]);
        let groups = vec![group("", "v1", core), group("apps", "v1", apps), group("events.k8s.io", "v1", events)];
        Resources { groups, has_all: true }
    }

    #[test]
    fn resource_is_found_by_plural_singular_short_name_kind_and_group() {
        let resources = resources();
        for word in ["pods", "pod", "po"] {
            assert_eq!(resources.known(word).unwrap().plural, "pods", "{word}");
        }
        for word in ["deploy", "deployments", "deployments.apps", "deployment.v1.apps", "deploy.apps"] {
            assert_eq!(resources.known(word).unwrap().full_name(), "deployments.apps", "{word}");
        }
        assert_eq!(resources.known("ev").unwrap().group, "", "the core comes first");
        assert_eq!(resources.known("events.events.k8s.io").unwrap().group, "events.k8s.io");
        for word in ["log", "pods/log", "cows", "pods.apps"] {
            assert_eq!(resources.known(word), None, "{word}");
        }
    }

    #[test]
    fn path_of_an_object_has_a_namespace_only_if_its_kind_has() {
        let resources = resources();
        let path = |word: &str| resources.known(word).unwrap().object("shop", "web").unwrap();
        assert_eq!(path("pod"), "/api/v1/namespaces/shop/pods/web");
        assert_eq!(path("deploy"), "/apis/apps/v1/namespaces/shop/deployments/web");
        assert_eq!(path("node"), "/api/v1/nodes/web");
        assert_eq!(resources.known("pod").unwrap().path(None).unwrap(), "/api/v1/pods");
        assert_eq!(resources.known("deploy").unwrap().object_name("web"), "deployment.apps/web");
    }
}
