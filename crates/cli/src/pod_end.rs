//! All that a cluster tells of one pod and its end: gathered once, looked at by `why` and `timeline`.
//!
//! On a cluster of another make there are no records and no progress; what could not be asked for is said, never guessed.

use std::time::Duration;

use anyhow::Result;
use api::TerminationRecord;
use api::termination::TerminationProgress;
use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::{Cluster, PodName};

/// One answer may take this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pod that has just gone has its record a moment later.
const RECORD_WAIT: Duration = Duration::from_secs(2);
const RECORD_LOOK: Duration = Duration::from_millis(50);

/// What is known of a pod. Objects are as the API shows them.
#[derive(Clone, Debug, Default)]
pub struct PodFacts {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Its object, if it is there.
    pub pod: Option<Value>,
    /// Its node's object, if it has a node that is there.
    pub node: Option<Value>,
    /// What its node tells of its end.
    pub progress: Option<TerminationProgress>,
    /// Records of pods of its name, the newest first.
    pub records: Vec<TerminationRecord>,
    /// Whether the cluster keeps records at all; none if it could not be asked.
    pub keeps_records: Option<bool>,
    /// Events about it, the oldest first.
    pub events: Vec<Value>,
    /// Disruption budgets of its namespace that select it.
    pub budgets: Vec<Value>,
    /// Pods of the same controller that came after it.
    pub successors: Vec<Value>,
    /// What could not be asked for, and why.
    pub unknown: Vec<String>,
}

impl PodFacts {
    /// Asks the cluster. Fails only if the pod itself cannot be asked for.
    pub async fn gather(cluster: &Cluster, pod: &PodName) -> Result<Self> {
        let namespace = cluster.namespace.clone();
        let mut facts = Self { namespace: namespace.clone(), name: pod.0.clone(), ..Self::default() };
        let path = format!("/api/v1/namespaces/{namespace}/pods/{}", pod.0);
        facts.pod = match get(cluster, &path).await {
            Ok(pod) => Some(pod),
            Err(error) if is_code(&error, 404) => None,
            Err(error) => return Err(cluster.explain(error, &format!("look for {pod} in namespace {namespace}"))),
        };
        facts.look_for_records(cluster).await;
        facts.look_for_events(cluster).await;
        if let Some(found) = facts.pod.clone() {
            facts.look_at_node(cluster, &found).await;
            facts.look_for_budgets(cluster, &found).await;
        }
        facts.look_for_successors(cluster).await;
        Ok(facts)
    }

    /// The same record of the pod that is there, if any; of one that is gone, the newest.
    pub fn record(&self) -> Option<&TerminationRecord> {
        match &self.pod {
            Some(pod) => self.records.iter().find(|record| record.pod.uid == word(&pod["metadata"], "uid")),
            None => self.records.first(),
        }
    }

    async fn look_for_records(&mut self, cluster: &Cluster) {
        let path = format!(
            "/apis/{}/namespaces/{}/terminationrecords?fieldSelector=pod.name%3D{}",
            api::termination::API_VERSION,
            self.namespace,
            self.name
        );
        let until = tokio::time::Instant::now() + RECORD_WAIT;
        loop {
            match get(cluster, &path).await {
                Ok(list) => {
                    let items = list["items"].as_array().cloned().unwrap_or_default();
                    let read = |item| serde_json::from_value::<TerminationRecord>(item).ok();
                    self.records = items.into_iter().filter_map(read).collect();
                    self.records.sort_by_key(|record| std::cmp::Reverse(record.end_time.as_ref().map(|end| end.0)));
                    self.keeps_records = Some(true);
                }
                Err(error) if is_code(&error, 404) => self.keeps_records = Some(false),
                Err(error) => self.unknown.push(format!("records of ended pods ({})", short(&error))),
            }
            let may_come = self.pod.is_none() && self.records.is_empty() && self.keeps_records == Some(true);
            if !may_come || tokio::time::Instant::now() >= until {
                return;
            }
            tokio::time::sleep(RECORD_LOOK).await;
        }
    }

    async fn look_for_events(&mut self, cluster: &Cluster) {
        let (namespace, name) = (&self.namespace, &self.name);
        let selector = format!("involvedObject.kind%3DPod%2CinvolvedObject.name%3D{name}");
        match get(cluster, &format!("/api/v1/namespaces/{namespace}/events?fieldSelector={selector}")).await {
            Ok(list) => {
                self.events = list["items"].as_array().cloned().unwrap_or_default();
                self.events.sort_by_key(event_time);
            }
            Err(error) => self.unknown.push(format!("events ({})", short(&error))),
        }
    }

    async fn look_at_node(&mut self, cluster: &Cluster, pod: &Value) {
        let node = word(&pod["spec"], "nodeName");
        if node.is_empty() || !node.bytes().all(is_of_a_name) {
            return;
        }
        match get(cluster, &format!("/api/v1/nodes/{node}")).await {
            Ok(found) => self.node = Some(found),
            Err(error) if is_code(&error, 404) => return,
            Err(error) => self.unknown.push(format!("the state of node {node} ({})", short(&error))),
        }
        let path = format!("/api/v1/nodes/{node}/proxy/terminations/{}/{}", self.namespace, self.name);
        match get(cluster, &path).await {
            Ok(progress) => self.progress = serde_json::from_value(progress).ok(),
            Err(error) => {
                let why = if is_code(&error, 404) { "it does not tell".to_owned() } else { short(&error) };
                self.unknown.push(format!("what node {node} is doing about the pod ({why})"));
            }
        }
    }

    async fn look_for_budgets(&mut self, cluster: &Cluster, pod: &Value) {
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", self.namespace);
        match get(cluster, &path).await {
            Ok(list) => {
                let all = list["items"].as_array().cloned().unwrap_or_default();
                self.budgets = all.into_iter().filter(|budget| selects(&budget["spec"]["selector"], pod)).collect();
            }
            Err(error) => self.unknown.push(format!("disruption budgets ({})", short(&error))),
        }
    }

    async fn look_for_successors(&mut self, cluster: &Cluster) {
        let (owner, uid) = match (&self.pod, self.records.first()) {
            (Some(pod), _) => (owner_of(pod), word(&pod["metadata"], "uid").to_owned()),
            (None, Some(record)) => (record.pod.owner.clone(), record.pod.uid.clone()),
            (None, None) => return,
        };
        let is_leaving = self.pod.as_ref().is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string());
        if owner.is_empty() || !is_leaving {
            return;
        }
        match get(cluster, &format!("/api/v1/namespaces/{}/pods?limit=500", self.namespace)).await {
            Ok(list) => {
                let all = list["items"].as_array().cloned().unwrap_or_default();
                let is_one = |pod: &Value| {
                    owner_of(pod) == owner
                        && word(&pod["metadata"], "uid") != uid
                        && !pod["metadata"]["deletionTimestamp"].is_string()
                };
                self.successors = all.into_iter().filter(is_one).collect();
            }
            Err(error) => self.unknown.push(format!("other pods of {owner} ({})", short(&error))),
        }
    }
}

/// `ReplicaSet/web-5d8`, or nothing.
pub fn owner_of(pod: &Value) -> String {
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.into_iter().find(|owner| owner["controller"] == true);
    controller.map(|owner| format!("{}/{}", word(owner, "kind"), word(owner, "name"))).unwrap_or_default()
}

/// When an event was last seen.
pub fn event_time(event: &Value) -> Option<Timestamp> {
    let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    let told = times.iter().filter_map(|time| time.as_str()?.parse().ok()).max();
    told.or_else(|| time(&event["metadata"]["creationTimestamp"]))
}

/// A time of the API.
pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A word below `value`, empty if it is not there.
pub fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Whether a selector of labels selects a pod. One that cannot be read selects nothing.
fn selects(selector: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let has = |key: &str, values: &Value| values.as_array().into_iter().flatten().any(|value| labels[key] == *value);
    let fits = |expression: &Value| {
        let (key, values) = (word(expression, "key"), &expression["values"]);
        match word(expression, "operator") {
            "In" => has(key, values),
            "NotIn" => !has(key, values),
            "Exists" => labels[key].is_string(),
            "DoesNotExist" => !labels[key].is_string(),
            _ => false,
        }
    };
    selector.is_object()
        && equal.into_iter().all(|(key, value)| labels[key] == *value)
        && selector["matchExpressions"].as_array().into_iter().flatten().all(fits)
}

async fn get(cluster: &Cluster, path: &str) -> kube::Result<Value> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match tokio::time::timeout(PATIENCE, cluster.client.request::<Value>(request)).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service("no answer within 10 s".into())),
    }
}

fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

fn short(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else { return error.to_string() };
    if status.code == 403 {
        return "not allowed".to_owned();
    }
    status.message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_of_a_budget_is_matched_as_the_api_does() {
        let pod = json!({ "metadata": { "labels": { "app": "web", "tier": "front" } } });
        for (selector, expected) in [
            (json!({ "matchLabels": { "app": "web" } }), true),
            (json!({ "matchLabels": { "app": "db" } }), false),
            (json!({}), true),
            (Value::Null, false),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["front", "back"] }] }), true),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["front"] }] }), false),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] }), true),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "DoesNotExist" }] }), true),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "Odd" }] }), false),
        ] {
            assert_eq!(selects(&selector, &pod), expected, "{selector}");
        }
    }
}
