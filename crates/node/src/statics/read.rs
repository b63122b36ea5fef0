//! A manifest file as a pod: decoded, filled in and judged as the API would, then given the identity of its file.

use api::FieldValidation;
use api::pod::SOURCE_ANNOTATION;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, Pod, PodSpec, Toleration, Volume};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{FILE, HASH, SEEN};

/// How many characters of a hash make a UID.
const HASH_LENGTH: usize = 32;
/// The longest UID that a manifest may choose.
const UID_MOST: usize = 63;

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The API would not have it either.
    #[error("{0}")]
    Refused(String),
    /// It has more than one document.
    #[error("a file holds the manifest of one pod; this one holds several documents, so put each into its own file")]
    Several,
    /// It has a UID that cannot name files and control groups.
    #[error("metadata.uid: {0:?} may only have letters, digits and '-', at most 63")]
    Uid(String),
    /// It needs something that only the API has: static pods must be able to run without it.
    #[error("static pods may not use {what}")]
    Reference {
        /// What it needs, and where it says so.
        what: String,
    },
}

/// The pod that the file called `file` asks this node to run, and what is probably not meant in it.
pub fn pod(text: &[u8], file: &str, node: &str, now: Timestamp) -> Result<(Pod, Vec<String>), ManifestError> {
    if has_several(text) {
        return Err(ManifestError::Several);
    }
    let refused = |status: api::Status| ManifestError::Refused(status.message);
    let kind = api::built_in("", "v1", "pods").expect("the API knows pods");
    let decoded = api::decode_object(kind, Some("application/yaml"), text, FieldValidation::Warn).map_err(refused)?;
    let mut warnings = decoded.warnings;
    let mut object = decoded.value;
    let hash = hash(&object, file, node);
    let namespace = Some(api::meta::namespace(&object)).filter(|it| !it.is_empty()).unwrap_or("default").to_owned();
    let uid = Some(api::meta::uid(&object)).filter(|it| !it.is_empty()).unwrap_or(&hash).to_owned();
    if uid.len() > UID_MOST || !uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(ManifestError::Uid(uid));
    }
    if !api::meta::name(&object).is_empty() {
        let name = format!("{}-{node}", api::meta::name(&object));
        api::meta::set_name(&mut object, &name);
    }
    prioritise(&mut object);
    warnings.extend(api::prepare_create(kind, &mut object, &namespace, now, uid, String::new).map_err(refused)?);
    let mut pod: Pod = serde_json::from_value(object).map_err(|error| ManifestError::Refused(error.to_string()))?;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for (key, value) in [(SOURCE_ANNOTATION, "file"), (HASH, &hash), (SEEN, &now.to_string()), (FILE, file)] {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    if let Some(what) = reference(spec) {
        return Err(ManifestError::Reference { what });
    }
    spec.node_name = Some(node.to_owned());
    // Given by the API to every pod; this one has no account, because its node may have no API.
    (spec.service_account_name, spec.service_account) = (None, None);
    spec.tolerations.get_or_insert_default().push(Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    });
    Ok((pod, warnings))
}

/// Whether something follows the end of the first document, remarks aside.
fn has_several(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut documents = 0;
    let mut is_empty = true;
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            is_empty = true;
        } else if is_empty && !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            (is_empty, documents) = (false, documents + 1);
        }
    }
    documents > 1
}

/// The same manifest in the same file on the same node is the same pod.
fn hash(object: &Value, file: &str, node: &str) -> String {
    let mut hash = Sha256::new();
    for part in [node, file, &object.to_string()] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..HASH_LENGTH].to_owned()
}

/// The classes that exist without an API have their priorities here, too.
fn prioritise(pod: &mut Value) {
    let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let known = api::rules::SYSTEM_CLASSES.iter().find(|(name, ..)| *name == class).map(|(_, value, ..)| *value);
    if let Some(value) = known {
        pod["spec"]["priority"] = value.into();
    }
}

/// What in the spec needs an object of the API, if anything does.
fn reference(spec: &PodSpec) -> Option<String> {
    // Everyone is given the default account before this is asked.
    if spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty() && name != "default") {
        return Some("spec.serviceAccountName".to_owned());
    }
    if spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()) {
        return Some("spec.imagePullSecrets".to_owned());
    }
    let volumes = spec.volumes.iter().flatten().filter(|volume| needs_the_api(volume));
    let mut volumes = volumes.map(|volume| format!("the source of volume {:?}", volume.name));
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    volumes.next().or_else(|| containers.filter_map(environment).next())
}

fn needs_the_api(volume: &Volume) -> bool {
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || projected.into_iter().any(|source| {
            source.secret.is_some() || source.config_map.is_some() || source.service_account_token.is_some()
        })
}

fn environment(container: &Container) -> Option<String> {
    let from = |source: &EnvFromSource| source.config_map_ref.is_some() || source.secret_ref.is_some();
    let value = |variable: &EnvVar| {
        let source = variable.value_from.as_ref();
        source.is_some_and(|source| source.config_map_key_ref.is_some() || source.secret_key_ref.is_some())
    };
    let uses = container.env_from.iter().flatten().any(from) || container.env.iter().flatten().any(value);
    uses.then(|| format!("the API for the environment of container {:?}", container.name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use api::pod::View as _;

    const WEB: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: app, image: busybox}\n";

    fn read(text: &str, file: &str) -> Result<Pod, ManifestError> {
        pod(text.as_bytes(), file, "n1", Timestamp::UNIX_EPOCH).map(|(pod, _)| pod)
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let pod = read(WEB, "web.yaml").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        assert!(api::pod::is_static(&pod) && !api::pod::is_mirror(&pod));
        assert_eq!(pod.metadata.uid.as_deref(), pod.annotation(HASH), "its UID is its hash");
        let spec = pod.spec.unwrap();
        assert_eq!((spec.node_name.as_deref(), spec.termination_grace_period_seconds), (Some("n1"), Some(30)));
        assert_eq!(spec.service_account_name, None);
        let tolerations = spec.tolerations.unwrap();
        assert!(tolerations.iter().any(|t| t.key.is_none() && t.effect.as_deref() == Some("NoExecute")));
    }

    #[test]
    fn another_file_or_another_text_is_another_pod_and_a_remark_is_not() {
        let uid = |text: &str, file: &str| read(text, file).unwrap().metadata.uid.unwrap();
        assert_eq!(uid(WEB, "web.yaml"), uid(&format!("# a remark\n{WEB}"), "web.yaml"));
        assert_ne!(uid(WEB, "web.yaml"), uid(WEB, "other.yaml"));
        assert_ne!(uid(WEB, "web.yaml"), uid(&WEB.replace("busybox", "nginx"), "web.yaml"));
        let own = WEB.replace("{name: web}", "{name: web, uid: mine-1}");
        assert_eq!(uid(&own, "web.yaml"), "mine-1");
    }

    #[test]
    fn critical_classes_are_known_without_the_api() {
        let text = format!("{WEB}  priorityClassName: system-node-critical\n");
        assert_eq!(read(&text, "web.yaml").unwrap().spec.unwrap().priority, Some(2_000_001_000));
    }

    #[test]
    fn static_pod_manifest_that_cannot_run_says_why() {
        let volume = format!("{WEB}  volumes:\n  - {{name: v, secret: {{secretName: s}}}}\n");
        let variable = WEB.replace(
            "image: busybox",
            "image: busybox, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
        );
        for (text, words) in [
            ("{", "yaml"),
            ("kind: Pod", "Required value"),
            ("kind: Service\napiVersion: v1", "cannot be handled as a Pod"),
            (&format!("---\n{WEB}---\n# a remark\n{WEB}"), "holds several documents"),
            (&WEB.replace("name: app", "name: App!"), "spec.containers[0].name"),
            (&WEB.replace("{name: web}", "{name: web, uid: ../x}"), "metadata.uid"),
            (&volume, "the source of volume \"v\""),
            (&variable, "the environment of container \"app\""),
            (&format!("{WEB}  serviceAccountName: robot\n"), "spec.serviceAccountName"),
        ] {
            let said = read(text, "web.yaml").map(|pod| pod.metadata.name).unwrap_err().to_string();
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }
}
