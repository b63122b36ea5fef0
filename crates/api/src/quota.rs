//! Resource quotas: what an object costs, which quotas it counts for, and when it is too much.
//!
//! Nothing is remembered here: what is used is the sum of what is stored, so there is no counter that a crash could leave
//! wrong. `server` adds up; this file knows the prices and the sentences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::amounts::Amounts;
use crate::kinds::{Kind, Registry};
use crate::meta;
use crate::pod::{self, QosClass, ResourceOptions};
use crate::quantity::Quantity;
use crate::rules::value::{list, word};

/// What every container must say where a quota counts it.
const TO_BE_SAID: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
/// What counts of a pod: while it is resized, what it has beside what it asks for.
const COUNTED: ResourceOptions = ResourceOptions::WITH_STATUS;
/// Kinds that may be counted by their plain name.
const PLAIN: [&str; 6] =
    ["configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services"];
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

/// One quota, read.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// What there may be at most.
    pub hard: Amounts,
    scopes: Vec<Scope>,
}

/// What a pod must be for a quota to count it. Other objects have no scope.
#[derive(Clone, Debug)]
struct Scope {
    name: String,
    operator: String,
    values: Vec<String>,
}

/// What one object takes.
#[derive(Debug)]
pub struct Cost {
    /// While it lives.
    alive: Amounts,
    /// For as long as it is stored.
    stored: Amounts,
    /// From when on it counts as ended, if that is known.
    until: Option<Timestamp>,
    /// Which scopes it is in; `None` for what can be in none.
    scopes: Option<BTreeSet<&'static str>>,
    priority_class: String,
}

impl Quota {
    /// Reads a quota.
    pub fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let plain = list(spec, "scopes").iter().filter_map(Value::as_str);
        let plain =
            plain.map(|name| Scope { name: name.to_owned(), operator: "Exists".to_owned(), values: Vec::new() });
        let selected = list(&spec["scopeSelector"], "matchExpressions").iter().map(|expression| Scope {
            name: word(expression, "scopeName").to_owned(),
            operator: word(expression, "operator").to_owned(),
            values: list(expression, "values").iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
        });
        let scopes = plain.chain(selected).collect();
        Self { name: meta::name(object).to_owned(), hard: Amounts::of(&spec["hard"]), scopes }
    }

    /// The kinds whose objects it counts, by collection, of those that there are.
    pub fn kinds<'a>(&self, registry: &'a Registry) -> BTreeMap<&'a str, &'a Arc<Kind>> {
        let counted = self.hard.iter().filter_map(|(name, _)| counted_by(registry, name));
        counted.map(|kind| (kind.collection(), kind)).collect()
    }

    /// Whether it counts objects of `kind`.
    pub fn counts_kind(&self, kind: &Kind) -> bool {
        is_countable(kind) && self.hard.iter().any(|(name, _)| counted_collection(name) == Some(kind.collection()))
    }

    /// Whether an object of this cost is among those it counts.
    pub fn counts(&self, cost: &Cost) -> bool {
        self.scopes.iter().all(|scope| match (scope.name.as_str(), &cost.scopes) {
            (_, None) => false,
            ("PriorityClass", _) => {
                let (own, named) = (&cost.priority_class, scope.values.contains(&cost.priority_class));
                match scope.operator.as_str() {
                    "In" => !own.is_empty() && named,
                    "NotIn" => own.is_empty() || !named,
                    "DoesNotExist" => own.is_empty(),
                    _ => !own.is_empty(),
                }
            }
            (name, Some(own)) => own.contains(name),
        })
    }

    /// How it chooses among objects: two quotas with the same word count the same ones.
    pub fn choice(&self) -> String {
        format!("{:?}", self.scopes)
    }

    /// What is used of each thing it counts, none included.
    pub fn used(&self, registry: &Registry, total: &Amounts) -> Amounts {
        let mut used = Amounts::default();
        for (name, _) in self.hard.iter().filter(|(name, _)| counted_by(registry, name).is_some()) {
            used.put(name, total.get(name).unwrap_or(Quantity::ZERO));
        }
        used
    }

    /// Refuses `more` on top of `used` if that is too much of anything. What does not grow is not asked about.
    pub fn check(&self, used: &Amounts, more: &Amounts) -> Result<(), String> {
        let requested = more.only(|name, amount| amount > Quantity::ZERO && self.hard.get(name).is_some());
        let too_much = requested.only(|name, amount| {
            let used = used.get(name).unwrap_or(Quantity::ZERO);
            self.hard.get(name).is_some_and(|hard| used.plus(amount) > hard)
        });
        if too_much.is_empty() {
            return Ok(());
        }
        let mut shown = Amounts::default();
        too_much.iter().for_each(|(name, _)| shown.put(name, used.get(name).unwrap_or(Quantity::ZERO)));
        let (used, limited) = (shown, self.hard.only(|name, _| too_much.get(name).is_some()));
        Err(format!("exceeded quota: {}, requested: {too_much}, used: {used}, limited: {limited}", self.name))
    }

    /// Refuses a pod that does not say how much it asks for, where this is counted.
    pub fn check_said(&self, pod: &Value) -> Result<(), String> {
        let required: Vec<&str> = TO_BE_SAID.into_iter().filter(|name| self.hard.get(name).is_some()).collect();
        let spec = &pod["spec"];
        // A pod that speaks for itself as a whole need not say it of each container.
        if ["requests", "limits"].iter().any(|part| !Amounts::of(&spec["resources"][part]).is_empty()) {
            return Ok(());
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
            let own = &container["resources"];
            let said = compute(&Amounts::of(&own["requests"]), &Amounts::of(&own["limits"]));
            for name in required.iter().filter(|name| said.get(name).is_none()) {
                missing.entry(name).or_default().insert(word(container, "name"));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(",");
        let lines: Vec<String> = missing.into_iter().map(|(name, by)| format!("{name} for: {}", list(by))).collect();
        Err(format!("failed quota: {}: must specify {}", self.name, lines.join("; ")))
    }
}

impl Cost {
    /// What `object` takes.
    pub fn of(kind: &Kind, object: &Value) -> Self {
        let mut stored = Amounts::default();
        stored.put(&format!("count/{}", kind.collection()), Quantity::pieces(1));
        if PLAIN.contains(&kind.collection()) {
            stored.put(kind.collection(), Quantity::pieces(1));
        }
        let (mut until, mut scopes) = (None, None);
        let mut alive = stored.clone();
        match kind.collection() {
            "pods" => {
                if !pod::is_terminal(object) {
                    let (requests, limits) = (pod::requests(object, COUNTED), pod::limits(object, COUNTED));
                    alive.add(&compute(&requests, &limits));
                    alive.put("pods", Quantity::pieces(1));
                }
                until = ends(object);
                scopes = Some(scopes_of(object));
            }
            "services" => alive.add(&ports(&object["spec"])),
            "persistentvolumeclaims" => alive.add(&room(object)),
            _ => {}
        }
        let priority_class = word(&object["spec"], "priorityClassName").to_owned();
        Self { alive, stored, until, scopes, priority_class }
    }

    /// What it takes at `now`.
    pub fn at(&self, now: Timestamp) -> &Amounts {
        if self.until.is_some_and(|until| now > until) { &self.stored } else { &self.alive }
    }

    /// From when on it takes less without anybody's doing.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

/// Whether any quota may count `kind`. Events are news: nobody is to be silenced by a quota.
pub fn is_countable(kind: &Kind) -> bool {
    kind.namespaced && kind.is_stored() && kind.collection() != "events"
}

/// The kind of object that `name` in a quota counts or measures.
fn counted_by<'a>(registry: &'a Registry, name: &str) -> Option<&'a Arc<Kind>> {
    registry.by_collection(counted_collection(name)?).filter(|kind| is_countable(kind))
}

/// The collection of that kind, whether there is one or not.
fn counted_collection(name: &str) -> Option<&str> {
    Some(match name.strip_prefix("count/") {
        Some(collection) => collection,
        None if PLAIN.contains(&name) => name,
        None if name.starts_with("services.") => "services",
        None if name == "requests.storage" || name.contains(OF_CLASS) => "persistentvolumeclaims",
        None => {
            let measured = ["requests.", "limits.", "hugepages-"].iter().any(|prefix| name.starts_with(prefix));
            let plain = ["pods", "cpu", "memory", "ephemeral-storage"].contains(&name);
            if measured || plain { "pods" } else { return None }
        }
    })
}

/// Whether a quota may have `name` in it at all.
pub(crate) fn is_known(name: &str) -> bool {
    name.contains('/') || counted_by(Registry::built_in(), name).is_some()
}

/// What is asked for and limited, in the words of quotas.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut out = Amounts::default();
    for (name, amount) in requests.iter() {
        out.put(&format!("requests.{name}"), amount);
        // The plain name means what is asked for, where it existed before there were limits.
        if ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-") {
            out.put(name, amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| ["cpu", "memory", "ephemeral-storage"].contains(name)) {
        out.put(&format!("limits.{name}"), amount);
    }
    out
}

/// A pod that is being deleted counts for its grace after its deadline, as upstream reckons.
fn ends(pod: &Value) -> Option<Timestamp> {
    let grace = meta::deletion_grace_seconds(pod)?;
    meta::deletion_timestamp(pod)?.checked_add(SignedDuration::from_secs(grace)).ok()
}

fn scopes_of(pod: &Value) -> BTreeSet<&'static str> {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let mut scopes = BTreeSet::from([
        if ends { "Terminating" } else { "NotTerminating" },
        if pod::qos_class(pod) == QosClass::BestEffort { "BestEffort" } else { "NotBestEffort" },
    ]);
    let elsewhere = |term: &Value| !list(term, "namespaces").is_empty() || term["namespaceSelector"].is_object();
    let affine = ["podAffinity", "podAntiAffinity"].iter().any(|key| {
        let own = &spec["affinity"][*key];
        let preferred = list(own, "preferredDuringSchedulingIgnoredDuringExecution").iter();
        let terms = list(own, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        terms.chain(preferred.map(|preferred| &preferred["podAffinityTerm"])).any(elsewhere)
    });
    if affine {
        scopes.insert("CrossNamespacePodAffinity");
    }
    scopes
}

fn ports(spec: &Value) -> Amounts {
    let mut out = Amounts::default();
    let all = list(spec, "ports");
    let pieces = |count: usize| Quantity::pieces(u64::try_from(count).unwrap_or(u64::MAX));
    match word(spec, "type") {
        "NodePort" => out.put("services.nodeports", pieces(all.len())),
        "LoadBalancer" => {
            let own = all.iter().filter(|port| port["nodePort"].as_i64().is_some_and(|port| port != 0)).count();
            let every = spec["allocateLoadBalancerNodePorts"] != false;
            out.put("services.nodeports", pieces(if every { all.len() } else { own }));
            out.put("services.loadbalancers", pieces(1));
        }
        _ => {}
    }
    out
}

fn room(claim: &Value) -> Amounts {
    let mut room = Amounts::of(&claim["spec"]["resources"]["requests"]);
    // What was asked for before, and is being given, is taken until it is given up.
    room.raise(&Amounts::of(&claim["status"]["allocatedResources"]));
    let mut out = Amounts::default();
    let class = word(&claim["spec"], "storageClassName");
    if !class.is_empty() {
        out.put(&format!("{class}{OF_CLASS}persistentvolumeclaims"), Quantity::pieces(1));
    }
    if let Some(size) = room.get("storage") {
        out.put("requests.storage", size);
        if !class.is_empty() {
            out.put(&format!("{class}{OF_CLASS}requests.storage"), size);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::kinds::built_in;
    use crate::time;

    fn quota(spec: Value) -> Quota {
        Quota::of(&json!({ "metadata": { "name": "q" }, "spec": spec }))
    }

    fn cost(plural: &str, object: Value) -> Cost {
        Cost::of(built_in("", "v1", plural).unwrap(), &object)
    }

    fn pod(cpu: &str) -> Value {
        json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": cpu } } }] } })
    }

    fn plain(cost: &Cost) -> String {
        cost.at(Timestamp::UNIX_EPOCH).to_string()
    }

    #[test]
    fn quota_cost_is_computed_for_every_kind() {
        assert_eq!(plain(&cost("configmaps", json!({}))), "configmaps=1,count/configmaps=1");
        assert_eq!(plain(&cost("pods", pod("200m"))), "count/pods=1,cpu=200m,pods=1,requests.cpu=200m");
        let mut ended = pod("200m");
        ended["status"] = json!({ "phase": "Succeeded" });
        assert_eq!(plain(&cost("pods", ended)), "count/pods=1");
        let service = json!({ "spec": { "type": "LoadBalancer", "ports": [{}, {}] } });
        assert_eq!(
            plain(&cost("services", service)),
            "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"
        );
        let claim =
            json!({ "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } } });
        assert_eq!(
            plain(&cost("persistentvolumeclaims", claim)),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"
        );
        let deployments = Cost::of(built_in("apps", "v1", "deployments").unwrap(), &json!({}));
        assert_eq!(plain(&deployments), "count/deployments.apps=1");
    }

    #[test]
    fn a_pod_that_leaves_counts_until_its_deadline_and_its_grace_have_passed() {
        let mut leaving = pod("1");
        leaving["metadata"] = json!({ "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30 });
        let cost = cost("pods", leaving);
        let at = |text: &str| cost.at(time::parse(text).unwrap()).get("pods").is_some();
        assert!(at("2026-01-01T00:01:00Z") && !at("2026-01-01T00:01:01Z"));
    }

    /// As upstream: until the node has given it up, what a pod still has is used.
    #[test]
    fn resized_pod_counts_what_it_still_has() {
        let mut shrunk = pod("1");
        let granted = json!({ "name": "app", "allocatedResources": { "cpu": "3" } });
        shrunk["status"] = json!({ "phase": "Running", "containerStatuses": [granted] });
        assert_eq!(plain(&cost("pods", shrunk.clone())), "count/pods=1,cpu=3,pods=1,requests.cpu=3");
        shrunk["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] = json!("1");
        assert_eq!(plain(&cost("pods", shrunk)), "count/pods=1,cpu=1,pods=1,requests.cpu=1");
    }

    #[test]
    fn exceeded_quota_message_is_the_one_of_upstream() {
        let quota = quota(json!({ "hard": { "pods": "2", "requests.cpu": "1", "limits.cpu": "5" } }));
        let mut used = Amounts::default();
        used.add(cost("pods", pod("600m")).at(Timestamp::UNIX_EPOCH));
        let more = cost("pods", pod("500m"));
        assert_eq!(
            quota.check(&used, more.at(Timestamp::UNIX_EPOCH)).unwrap_err(),
            "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
        );
        assert!(quota.check(&used, cost("pods", pod("400m")).at(Timestamp::UNIX_EPOCH)).is_ok());
        let text = quota.check_said(&pod("1")).unwrap_err();
        assert_eq!(text, "failed quota: q: must specify limits.cpu for: app");
    }

    #[test]
    fn a_scope_chooses_among_pods_and_excludes_everything_else() {
        let best_effort = cost("pods", json!({ "spec": { "containers": [{ "name": "a" }] } }));
        let burstable = cost("pods", pod("1"));
        let mut job = pod("1");
        job["spec"]["activeDeadlineSeconds"] = json!(5);
        job["spec"]["priorityClassName"] = json!("high");
        let job = cost("pods", job);
        let counts = |spec: Value| {
            let quota = quota(spec);
            [&best_effort, &burstable, &job].map(|cost| quota.counts(cost))
        };
        assert_eq!(counts(json!({})), [true, true, true]);
        assert_eq!(counts(json!({ "scopes": ["BestEffort"] })), [true, false, false]);
        assert_eq!(counts(json!({ "scopes": ["NotBestEffort", "NotTerminating"] })), [false, true, false]);
        assert_eq!(counts(json!({ "scopes": ["Terminating"] })), [false, false, true]);
        let class = |operator: &str| {
            json!({ "scopeSelector": { "matchExpressions":
                [{ "scopeName": "PriorityClass", "operator": operator, "values": ["high"] }] } })
        };
        assert_eq!(counts(class("In")), [false, false, true]);
        assert_eq!(counts(class("NotIn")), [true, true, false]);
        assert_eq!(counts(class("DoesNotExist")), [true, true, false]);
        assert!(!quota(json!({ "scopes": ["BestEffort"] })).counts(&cost("configmaps", json!({}))));
    }

    #[test]
    fn a_quota_knows_what_it_counts() {
        let hard = json!({ "hard": { "requests.nvidia.com/gpu": "1", "count/deployments.apps": "1", "configmaps": "1",
            "services.nodeports": "1", "gold.storageclass.storage.k8s.io/requests.storage": "1", "count/widgets.x": "1" } });
        let quota = quota(hard);
        let kinds = ["configmaps", "deployments.apps", "persistentvolumeclaims", "pods", "services"];
        assert_eq!(quota.kinds(Registry::built_in()).into_keys().collect::<BTreeSet<_>>(), BTreeSet::from(kinds));
        assert!(quota.used(Registry::built_in(), &Amounts::default()).get("count/widgets.x").is_none());
        assert!(is_known("requests.storage") && is_known("example.com/x") && !is_known("cpus"));
    }
}
