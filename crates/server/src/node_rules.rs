//! What a node may touch: its own object, its own lease, the pods that are bound to it, and what those pods refer to.
//!
//! The table in [`crate::authorize`] says which verbs on which kinds a node has at all; here it is said on which objects.
//! Which node needs what is an index over all pods, brought up to date from the store's watch by whoever asks.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::pod::MIRROR_ANNOTATION;
use api::rbac::RequestedAccess;
use api::selector::FieldSelector;
use api::volume::{DIRECTORY_MADE, PROVISIONER_FINALIZER, VOLUME_NODE, ephemeral_claim};
use api::{Kind, Status, termination};
use futures::FutureExt as _;
use serde_json::Value;
use store::{Change, Object, Store, Watch};

use crate::authorize::{Attributes, Target};
use crate::identity::Identity;
use crate::rbac;
use crate::request::{Request, key};
use crate::state::{State, core_kind};
use crate::termination_records;

const LEASES: &str = "kube-node-lease";

/// The name of the node that `identity` speaks for.
pub(crate) fn node_of(identity: &Identity) -> Option<&str> {
    identity.user.strip_prefix("system:node:").filter(|name| !name.is_empty() && identity.is_in("system:nodes"))
}

/// Whether `node` may touch the one object that is asked for. Objects whose name is not known yet (a create) are judged by
/// [`check_create`], lists without a name by [`check_list`].
pub(crate) fn owns(state: &State, node: &str, attributes: &Attributes<'_>) -> bool {
    let Target::Resource { resource, subresource, namespace, name, .. } = attributes.target else { return true };
    match resource {
        // By name, so that it can look for its own object before it makes it.
        "nodes" => attributes.verb == "create" || name == node,
        "leases" => namespace == LEASES && (attributes.verb == "create" || name == node),
        "pods" if subresource.is_empty() && name.is_empty() => true,
        // What is not there is nobody's: the answer is that it is not there.
        "pods" => {
            state.store.get(&key(core_kind("pods"), namespace, name)).is_none_or(|pod| runs_on(&pod.value(), node))
        }
        "secrets" | "configmaps" => {
            !name.is_empty() && state.node_needs.has(&state.store, node, resource, namespace, name)
        }
        "persistentvolumeclaims" => {
            !name.is_empty() && state.node_needs.has(&state.store, node, resource, namespace, name)
        }
        "persistentvolumes" if name.is_empty() => true,
        "persistentvolumes" => owns_volume(state, node, attributes.verb, name),
        "serviceaccounts" if subresource.is_empty() => {
            !name.is_empty() && state.node_needs.has(&state.store, node, resource, namespace, name)
        }
        // Of those who make its pods it asks whether they make others.
        "replicationcontrollers" | "replicasets" | "deployments" => {
            state.node_needs.has(&state.store, node, resource, namespace, name)
        }
        _ => true,
    }
}

/// A node reads volumes of claims that its pods have, and writes those whose directories it makes.
fn owns_volume(state: &State, node: &str, verb: &str, name: &str) -> bool {
    let Some(volume) = state.store.get(&key(core_kind("persistentvolumes"), "", name)) else { return true };
    let volume = volume.value();
    let claim = &volume["spec"]["claimRef"];
    let word = |key: &str| claim[key].as_str().unwrap_or_default();
    volume["metadata"]["labels"][VOLUME_NODE] == node
        || (verb != "patch"
            && claim.is_object()
            && state.node_needs.has(&state.store, node, "persistentvolumeclaims", word("namespace"), word("name")))
}

/// A node lists and watches its own pods: all of them by `spec.nodeName`, or one of them by name. Of volumes it lists those whose
/// directories it makes.
pub(crate) fn check_list(
    identity: &Identity,
    attributes: &Attributes<'_>,
    selected: &FieldSelector,
    labels: Option<&str>,
) -> Result<(), Status> {
    if let (Some(node), Target::Resource { resource: "persistentvolumes", subresource: "", name: "", .. }) =
        (node_of(identity), attributes.target)
        && matches!(attributes.verb, "list" | "watch")
        && labels != Some(&*format!("{VOLUME_NODE}={node}"))
    {
        let text = format!("a node may only {} volumes with the label selector {VOLUME_NODE}={node}", attributes.verb);
        return Err(Status::forbidden(core_kind("persistentvolumes"), "", &text));
    }
    let (Some(node), Target::Resource { resource: "pods", subresource: "", name: "", .. }) =
        (node_of(identity), attributes.target)
    else {
        return Ok(());
    };
    if !matches!(attributes.verb, "list" | "watch") || selected.node_name() == Some(node) {
        return Ok(());
    }
    let text = format!("a node may only {} pods with the field selector spec.nodeName={node}", attributes.verb);
    Err(Status::forbidden(core_kind("pods"), "", &text))
}

/// A node makes its own object, its own lease, and mirrors of its own static pods.
pub(crate) fn check_create(state: &State, identity: &Identity, kind: &Kind, object: &Value) -> Result<(), Status> {
    let Some(node) = node_of(identity) else { return Ok(()) };
    let name = api::meta::name(object);
    let refuse = |text: &str| Err(Status::forbidden(kind, name, text));
    match kind.collection() {
        "nodes" | "leases.coordination.k8s.io" if name != node => {
            refuse(&format!("node {node:?} may only create its own"))
        }
        "nodes" => {
            let forbidden = forbidden_labels(&Value::Null, object);
            if !forbidden.is_empty() {
                return refuse(&format!("node {node:?} is not allowed to set the following labels: {forbidden}"));
            }
            if !object["spec"]["configSource"].is_null() {
                return refuse(&format!("node {node:?} is not allowed to set a configSource"));
            }
            // One with an owner that does not exist is collected, and comes back without the taints it was given.
            if has_any(&object["metadata"]["ownerReferences"]) {
                return refuse(&format!("node {node:?} is not allowed to set ownerReferences"));
            }
            Ok(())
        }
        termination::COLLECTION => {
            let namespace = api::meta::namespace(object);
            termination_records::check_node(state, node, namespace, object).or_else(|text| refuse(&text))
        }
        "pods" => {
            let owner = match check_mirror(node, object) {
                Ok(owner) => owner["uid"].as_str().unwrap_or_default(),
                Err(text) => return refuse(&text),
            };
            let stored = state.store.get(&key(core_kind("nodes"), "", node));
            let stored = stored.ok_or_else(|| Status::not_found(core_kind("nodes"), node))?.value();
            match api::meta::uid(&stored) {
                uid if uid == owner => Ok(()),
                uid => refuse(&format!("node {node} UID mismatch: expected {owner} got {uid}")),
            }
        }
        _ => Ok(()),
    }
}

/// A mirror belongs to its node alone, runs there, and leads nowhere: otherwise a node could reach any secret by making a pod
/// that names it, or slip a pod under somebody else's controller. Answers the reference to the owner.
fn check_mirror<'a>(node: &str, pod: &'a Value) -> Result<&'a Value, String> {
    if !api::pod::is_mirror(pod) {
        return Err(format!(
            "pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if !runs_on(pod, node) {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let owner = match owners {
        [owner] => owner,
        [] => return Err(format!("node {node:?} can only create pods with an owner reference set to itself")),
        _ => return Err(format!("node {node:?} can only create pods with a single owner reference set to itself")),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return Err(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    match needed_of_the_api(pod) {
        Some(what) => Err(format!("node {node:?} can not create pods that reference {what}")),
        None => Ok(owner),
    }
}

/// Sources of volumes that need no object of the API. Their secrets, if they have any, are found by [`references`].
const PLAIN_SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// What `pod` needs of the API, in upstream's words. A kind of source that is not known is taken to need it.
fn needed_of_the_api(pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    let is_said = |key: &str| spec[key].as_str().is_some_and(|name| !name.is_empty());
    if is_said("serviceAccountName") || is_said("serviceAccount") {
        return Some("serviceaccounts".to_owned());
    }
    let mut first = None;
    references(pod, &mut |resource, _| first = first.or(Some(resource)));
    if let Some(resource) = first {
        return Some(resource.to_owned());
    }
    if has_any(&spec["resourceClaims"]) {
        return Some("resourceclaims".to_owned());
    }
    spec["volumes"].as_array().into_iter().flatten().find_map(|volume| {
        let sources = volume.as_object().into_iter().flatten();
        let mut sources = sources.filter(|(key, value)| *key != "name" && !value.is_null());
        sources.find_map(|(source, value)| match source.as_str() {
            source if PLAIN_SOURCES.contains(&source) => None,
            "projected" => value["sources"].as_array().into_iter().flatten().find_map(projected_from_the_api),
            "persistentVolumeClaim" => Some("persistentvolumeclaims".to_owned()),
            "ephemeral" => Some("persistentvolumeclaims (via ephemeral volumes)".to_owned()),
            "csi" => Some("csidrivers (via CSI volumes)".to_owned()),
            other => Some(format!("objects (via {other} volumes)")),
        })
    })
}

fn projected_from_the_api(source: &Value) -> Option<String> {
    let mut kinds = source.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    kinds.find(|(kind, _)| *kind != "downwardAPI").map(|(kind, _)| match kind.as_str() {
        "serviceAccountToken" => "serviceaccounts (via projected volumes)".to_owned(),
        "clusterTrustBundle" => "clustertrustbundles".to_owned(),
        "podCertificate" => "podcertificates".to_owned(),
        other => format!("objects (via {other} of projected volumes)"),
    })
}

fn has_any(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// A node gets tokens for the pods it runs, each for one of those that the pod's volumes name. `pod` is what the token is to be
/// bound to, if that is a pod.
pub(crate) fn check_token(
    state: &State,
    request: &Request,
    reference: &Value,
    pod: Option<&Value>,
    audiences: &[String],
) -> Result<(), Status> {
    let Some(node) = node_of(&request.identity) else { return Ok(()) };
    let refuse = |text: &str| Err(Status::forbidden(&request.kind, &request.name, text));
    let Some(pod) = pod else { return refuse("node requested token not bound to a pod") };
    if reference["uid"].as_str().is_none_or(str::is_empty) {
        return refuse("node requested token with a pod binding without a uid");
    }
    if !runs_on(pod, node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match audiences {
        [] => "",
        [audience] => audience,
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let is_named = sources.any(|source| {
        let token = &source["serviceAccountToken"];
        token.is_object() && token["audience"].as_str().unwrap_or_default() == audience
    });
    // Others by a role: the audience is its resource, the account its name.
    let asked = RequestedAccess::Resource { group: "", resource: audience, subresource: "", name: &request.name };
    let verb = "request-serviceaccounts-token-audience";
    if is_named || rbac::judge(state, &request.identity, verb, asked, &request.namespace).allowed.is_some() {
        return Ok(());
    }
    let user = &request.identity.user;
    refuse(&format!("{user} is not authorized to request tokens for audience {audience:?}"))
}

/// A node says how it and its pods fare. What draws pods to it, or keeps services and controllers from finding its
/// pods, is not its to change.
pub(crate) fn check_update(identity: &Identity, kind: &Kind, old: &Value, new: &Value) -> Result<(), Status> {
    let Some(node) = node_of(identity) else { return Ok(()) };
    let refuse = |text: String| Err(Status::forbidden(kind, api::meta::name(old), &text));
    let differs = |key: &str| old["metadata"].get(key) != new["metadata"].get(key);
    match kind.collection() {
        "nodes" => {
            let forbidden = forbidden_labels(old, new);
            if !forbidden.is_empty() {
                return refuse(format!("is not allowed to modify labels: {forbidden}"));
            }
            if old["spec"]["taints"] != new["spec"]["taints"] {
                return refuse(format!("node {node:?} is not allowed to modify taints"));
            }
            if differs("ownerReferences") {
                return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let config = &new["spec"]["configSource"];
            if !config.is_null() && *config != old["spec"]["configSource"] {
                return refuse(format!("node {node:?} is not allowed to update configSource"));
            }
            Ok(())
        }
        termination::COLLECTION => {
            match new["nodeName"] == node && (old["nodeName"] == node || old["nodeName"].is_null()) {
                true => Ok(()),
                false => refuse(format!("node {node:?} may only write records of its own pods")),
            }
        }
        "persistentvolumes" => match told_of_volume(old) == told_of_volume(new) {
            true => Ok(()),
            false => refuse(format!("node {node:?} may only say that it has made the directory or removed it")),
        },
        "pods" => {
            if let Some(key) = ["labels", "finalizers"].into_iter().find(|key| differs(key)) {
                return refuse(format!("node {node:?} cannot update {key} through pod status"));
            }
            let claims = ["resourceClaimStatuses", "extendedResourceClaimStatus"];
            match claims.into_iter().find(|key| old["status"].get(key) != new["status"].get(key)) {
                Some(key) => refuse(format!("node {node:?} cannot update {key}")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// What a node may not change of a volume: all but that its directory was made, and that it need not wait for it.
fn told_of_volume(volume: &Value) -> Value {
    let mut told = volume.clone();
    let metadata = api::meta::meta_mut(&mut told);
    metadata.retain(|key, _| !matches!(key.as_str(), "resourceVersion" | "managedFields"));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(DIRECTORY_MADE);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|own| own != PROVISIONER_FINALIZER);
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        }
    }
    told
}

/// The domains of labels that belong to the cluster, not to the node.
const CLUSTER_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Labels in those domains that a node may set on itself, and subdomains that are all its own.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const NODE_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";

/// The labels that differ and that a node may not change, as words of a sentence.
fn forbidden_labels(old: &Value, new: &Value) -> String {
    let labels = |object: &Value| -> BTreeSet<(String, String)> {
        api::meta::labels(object).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let (was, is) = (labels(old), labels(new));
    let changed: BTreeSet<&str> = was.symmetric_difference(&is).map(|(key, _)| key.as_str()).collect();
    changed.into_iter().filter(|key| !a_node_may_label(key)).collect::<Vec<_>>().join(", ")
}

fn a_node_may_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let within = |all: &[&str]| all.iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")));
    !within(&[RESTRICTED_DOMAIN]) && (!within(&CLUSTER_DOMAINS) || NODE_LABELS.contains(&key) || within(&NODE_DOMAINS))
}

fn runs_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node
}

/// Calls `each` with the accounts, secrets and configmaps that a pod refers to: the resource and the name.
pub(crate) fn references(pod: &Value, each: &mut dyn FnMut(&'static str, &str)) {
    let spec = &pod["spec"];
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut tell = |resource: &'static str, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            each(resource, name);
        }
    };
    tell("serviceaccounts", &spec["serviceAccountName"]);
    for secret in list(spec, "imagePullSecrets") {
        tell("secrets", &secret["name"]);
    }
    for volume in list(spec, "volumes") {
        tell("secrets", &volume["secret"]["secretName"]);
        tell("configmaps", &volume["configMap"]["name"]);
        tell("secrets", &volume["azureFile"]["secretName"]);
        tell("secrets", &volume["csi"]["nodePublishSecretRef"]["name"]);
        for source in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            tell("secrets", &volume[source]["secretRef"]["name"]);
        }
        for source in list(&volume["projected"], "sources") {
            tell("secrets", &source["secret"]["name"]);
            tell("configmaps", &source["configMap"]["name"]);
        }
    }
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(spec, key) {
            for source in list(&container, "envFrom") {
                tell("secrets", &source["secretRef"]["name"]);
                tell("configmaps", &source["configMapRef"]["name"]);
            }
            for variable in list(&container, "env") {
                tell("secrets", &variable["valueFrom"]["secretKeyRef"]["name"]);
                tell("configmaps", &variable["valueFrom"]["configMapKeyRef"]["name"]);
            }
        }
    }
}

/// The claims of a pod's volumes, also those that are made for it.
fn claims(pod: &Value) -> impl Iterator<Item = String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => Some(claim.to_owned()),
        None if volume["ephemeral"].is_object() => {
            Some(ephemeral_claim(api::meta::name(pod), volume["name"].as_str()?))
        }
        None => None,
    })
}

/// What a node needs, and why it may have it: resource, namespace, name.
type Need = (&'static str, Arc<str>, Box<str>);

/// Of which resources it is known who needs them.
const NEEDED: [&str; 7] = [
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "serviceaccounts",
    "replicationcontrollers",
    "replicasets",
    "deployments",
];

/// The label by which a Deployment tells its sets apart, which ends their names.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Who makes a pod, and who makes that: the resource and the name.
fn makers(pod: &Value) -> Vec<(&'static str, String)> {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) else { return Vec::new() };
    let name = owner["name"].as_str().unwrap_or_default();
    match owner["kind"].as_str() {
        Some("ReplicationController") => vec![("replicationcontrollers", name.to_owned())],
        Some("ReplicaSet") => {
            let hash = pod["metadata"]["labels"][TEMPLATE_HASH].as_str();
            let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
            let set = ("replicasets", name.to_owned());
            [set].into_iter().chain(deployment.map(|name| ("deployments", name.to_owned()))).collect()
        }
        _ => Vec::new(),
    }
}

/// Which node needs what, over all pods.
#[derive(Default)]
pub(crate) struct NodeNeeds(Mutex<Index>);

#[derive(Default)]
struct Index {
    /// Where changes come from; none before the first question, or when changes were lost.
    watch: Option<Watch>,
    /// What each bound pod needs.
    pods: HashMap<store::Key, (Box<str>, BTreeSet<Need>)>,
    /// How many pods of a node need something.
    counts: HashMap<(Box<str>, Need), usize>,
}

impl NodeNeeds {
    fn has(&self, store: &Store, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let Some(resource) = NEEDED.into_iter().find(|needed| *needed == resource) else { return false };
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.catch_up(store);
        index.counts.contains_key(&(Box::from(node), (resource, Arc::from(namespace), Box::from(name))))
    }
}

impl Index {
    /// Takes in everything that has happened. Never waits: what is stored is there to be read.
    fn catch_up(&mut self, store: &Store) {
        loop {
            let Some(watch) = &mut self.watch else {
                *self = Self::default();
                let (page, watch) = store.list_and_watch("pods", "");
                page.items.iter().for_each(|pod| self.put(pod));
                self.watch = Some(watch);
                continue;
            };
            match watch.next().now_or_never() {
                None => return,
                Some(None) => self.watch = None,
                Some(Some(Change::Added(pod) | Change::Modified { after: pod, .. })) => self.put(&pod),
                Some(Some(Change::Deleted { last, .. })) => self.remove(&last.key),
            }
        }
    }

    fn put(&mut self, pod: &Object) {
        self.remove(&pod.key);
        let value = pod.value();
        let Some(node) = value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return };
        let mut needs = BTreeSet::new();
        references(&value, &mut |resource, name| {
            needs.insert((resource, Arc::clone(&pod.key.namespace), Box::from(name)));
        });
        for claim in claims(&value) {
            needs.insert(("persistentvolumeclaims", Arc::clone(&pod.key.namespace), claim.into()));
        }
        for (resource, name) in makers(&value) {
            needs.insert((resource, Arc::clone(&pod.key.namespace), name.into()));
        }
        for need in &needs {
            *self.counts.entry((Box::from(node), need.clone())).or_default() += 1;
        }
        self.pods.insert(pod.key.clone(), (Box::from(node), needs));
    }

    fn remove(&mut self, pod: &store::Key) {
        let Some((node, needs)) = self.pods.remove(pod) else { return };
        for need in needs {
            let entry = (node.clone(), need);
            if let Some(count) = self.counts.get_mut(&entry) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&entry);
                }
            }
        }
    }
}
