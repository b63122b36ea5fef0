//! A pod as a Job creates it: its template, the finalizer, and, if the Job has indexes, the pod's own.

use serde_json::{Map, Value, json};

use super::job_pod::{COMPLETION_INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES, TRACKING_FINALIZER};
use super::manage::NewPod;
use crate::controller_ref::Owner;
use crate::pod_control::PodTemplate;
use crate::pod_names;

/// How containers learn their index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// What the names of such pods begin with.
pub(crate) fn name_prefix(job: &str, index: Option<u32>) -> String {
    match index {
        None => pod_names::prefix(job),
        // The index stays whole, however long the name of the Job is.
        Some(index) => {
            let end = format!("-{index}-");
            let cut: String = job.chars().take(58 - end.len()).collect();
            format!("{cut}{end}")
        }
    }
}

/// The index of a pod that this Job has named, as its name says it.
pub(crate) fn index_in_name(job: &str, pod: &str) -> Option<u32> {
    let (front, _) = pod.rsplit_once('-')?;
    let index = front.rsplit_once('-')?.1.parse().ok()?;
    pod.starts_with(&name_prefix(job, Some(index))).then_some(index)
}

/// The pod, as it is sent.
pub(crate) fn pod_text(template: &PodTemplate, owner: &Owner, name: &str, new: &NewPod) -> Vec<u8> {
    let mut pod = template.pod(owner, name);
    let metadata = &mut pod["metadata"];
    metadata["generateName"] = name_prefix(&owner.name, new.index).into();
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.contains(&json!(TRACKING_FINALIZER)) {
        finalizers.push(json!(TRACKING_FINALIZER));
    }
    metadata["finalizers"] = finalizers.into();
    if let Some(index) = new.index {
        for part in ["labels", "annotations"] {
            entries(&mut metadata[part]).insert(COMPLETION_INDEX.to_owned(), index.to_string().into());
        }
        if let Some((failures, ignored)) = new.failures {
            let annotations = entries(&mut metadata["annotations"]);
            annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string().into());
            if ignored > 0 {
                annotations.insert(INDEX_IGNORED_FAILURES.to_owned(), ignored.to_string().into());
            }
        }
        pod["spec"]["hostname"] = format!("{}-{index}", owner.name).into();
        for part in ["initContainers", "containers"] {
            let containers = pod["spec"].get_mut(part).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(add_index_variable);
        }
    }
    pod.to_string().into_bytes()
}

fn entries(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was made one")
}

fn add_index_variable(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    let mut variables = container["env"].as_array().cloned().unwrap_or_default();
    if variables.iter().any(|it| it["name"] == INDEX_VARIABLE) {
        return;
    }
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    variables.push(json!({ "name": INDEX_VARIABLE, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    container["env"] = variables.into();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pod(index: Option<u32>, failures: Option<(u32, u32)>) -> Value {
        let template = json!({ "metadata": { "labels": { "app": "sum" }, "finalizers": ["x/y"] },
            "spec": { "hostname": "mine", "initContainers": [{ "name": "i" }],
                "containers": [{ "name": "c", "env": [{ "name": "JOB_COMPLETION_INDEX", "value": "own" }] }] } });
        let owner =
            Owner { api_version: "batch/v1", kind: "Job", namespace: "ns".into(), name: "sum".into(), uid: "u".into() };
        let text = pod_text(&PodTemplate::of(&template), &owner, "sum-3-x", &NewPod { index, failures });
        serde_json::from_slice(&text).unwrap()
    }

    /// [WL-104] in part: what the pod of an index is given.
    #[test]
    fn job_pod_of_an_index_has_its_label_annotation_host_name_and_variable() {
        let made = pod(Some(3), Some((2, 1)));
        let metadata = &made["metadata"];
        assert_eq!(metadata["generateName"], "sum-3-");
        assert_eq!(metadata["finalizers"], json!(["x/y", TRACKING_FINALIZER]));
        assert_eq!(metadata["labels"], json!({ "app": "sum", COMPLETION_INDEX: "3" }));
        assert_eq!(
            metadata["annotations"],
            json!({ COMPLETION_INDEX: "3", INDEX_FAILURES: "2", INDEX_IGNORED_FAILURES: "1" })
        );
        assert_eq!(made["spec"]["hostname"], "sum-3");
        assert_eq!(made["spec"]["containers"][0]["env"], json!([{ "name": "JOB_COMPLETION_INDEX", "value": "own" }]));
        let field = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        assert_eq!(made["spec"]["initContainers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], field);
    }

    #[test]
    fn job_pod_without_an_index_is_its_template_and_the_finalizer() {
        let made = pod(None, None);
        assert_eq!(made["metadata"]["generateName"], "sum-");
        assert_eq!(made["metadata"]["labels"], json!({ "app": "sum" }));
        assert_eq!(made["spec"]["hostname"], "mine");
        assert!(made["metadata"]["annotations"].is_null() && made["spec"]["initContainers"][0]["env"].is_null());
    }

    #[test]
    fn job_pod_name_prefix_keeps_the_index_whole() {
        assert_eq!(name_prefix(&"j".repeat(63), Some(99_999)).len(), 58);
        assert!(name_prefix(&"j".repeat(63), Some(7)).ends_with("j-7-"));
    }

    #[test]
    fn job_pod_name_says_its_index() {
        let long = "j".repeat(63);
        for (job, index) in [("sum", Some(3)), ("sum", None), ("sum-3", None), ("sum-3", Some(4)), (&*long, Some(12))] {
            assert_eq!(index_in_name(job, &format!("{}x7k2q", name_prefix(job, index))), index, "{job}");
        }
    }
}
