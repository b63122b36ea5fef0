//! The image of a container: when its registry is asked, with which credentials, and what people are told of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::Api;
use lifecycle::{BACK_OFF_PULLING, EventKind};
use runtime_api::image::{Credential, ImageName, Keyring, Origin};
use runtime_api::{Image, Runtime, RuntimeError};
use supervision::error_chain;
use tokio::time::Instant;

/// When the registry is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PullPolicy {
    /// Whenever a container starts.
    Always,
    /// When the image is not here, or not for this pod.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// The API's word; the API has a default, so nothing else is ever stored.
    pub fn of(word: Option<&str>) -> Self {
        match word {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            _ => Self::IfNotPresent,
        }
    }
}

/// What is done about an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Use,
    Pull,
    Refuse,
}

/// What to do, given what is here and whether this pod has shown that it may have it.
fn step(policy: PullPolicy, here: Option<&Origin>, allowed: bool) -> Step {
    match (policy, here) {
        // Someone with access to the machine gave the name its meaning: no registry knows better.
        (_, Some(Origin::Archive)) => Step::Use,
        (PullPolicy::IfNotPresent | PullPolicy::Never, Some(Origin::Registry { .. })) if allowed => Step::Use,
        (PullPolicy::Always | PullPolicy::IfNotPresent, _) => Step::Pull,
        // What a pod may not have is not even there for it.
        (PullPolicy::Never, _) => Step::Refuse,
    }
}

/// Whether one of these credentials has opened the registry for the image before, or none is needed.
fn allowed(origin: &Origin, credentials: &[Credential]) -> bool {
    match origin {
        Origin::Archive => true,
        Origin::Registry { credentials: proven } => {
            proven.is_empty() || credentials.iter().any(|one| proven.contains(&one.fingerprint()))
        }
    }
}

/// Why a container has no image: the API's reason, and what to tell people.
pub type NoImage = (&'static str, String);

/// Tells people about the image of a container.
pub trait EmitImageEvent: Fn(EventKind, &str, String) + Send + Sync {}
impl<F: Fn(EventKind, &str, String) + Send + Sync> EmitImageEvent for F {}

/// Makes the image present as the policy says.
pub async fn obtain<R: Runtime>(
    runtime: &R,
    client: &kube::Client,
    pod: &Pod,
    name: &str,
    policy: PullPolicy,
    tell: &impl EmitImageEvent,
) -> Result<Image, NoImage> {
    let parsed: ImageName = match name.parse() {
        Ok(parsed) => parsed,
        Err(error) => {
            let why = error.why;
            let message = format!(
                "Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: invalid reference \
                 format: {why}"
            );
            tell(EventKind::Warning, "InspectFailed", message.clone());
            return Err(("InvalidImageName", message));
        }
    };
    let here = match runtime.find_image(name).await {
        Ok(found) => Some(found),
        Err(RuntimeError::ImageAbsent { .. }) => None,
        Err(error) => {
            let message = format!("Failed to inspect image {name:?}: {}", error_chain(&error));
            tell(EventKind::Warning, "InspectFailed", message.clone());
            return Err(("ImageInspectError", message));
        }
    };
    // Secrets are read only where they make a difference.
    let matters = match here.as_ref().map(|(_, origin)| origin) {
        None => policy != PullPolicy::Never,
        Some(Origin::Archive) => false,
        Some(origin @ Origin::Registry { .. }) => policy == PullPolicy::Always || !allowed(origin, &[]),
    };
    let keys = if matters { keyring(client, pod, tell).await } else { Keyring::default() };
    let credentials = keys.lookup(&parsed);
    let may_use = here.as_ref().is_some_and(|(_, origin)| allowed(origin, &credentials));
    match (step(policy, here.as_ref().map(|(_, origin)| origin), may_use), here) {
        (Step::Use, Some((image, _))) => {
            let message = format!("Container image {name:?} already present on machine and can be accessed by the pod");
            tell(EventKind::Normal, "Pulled", message);
            Ok(image)
        }
        (Step::Refuse, _) => {
            let message = format!("Container image {name:?} is not present with pull policy of Never");
            tell(EventKind::Warning, "ErrImageNeverPull", message.clone());
            Err(("ErrImageNeverPull", message))
        }
        (Step::Use | Step::Pull, _) => pull(runtime, name, &keys, tell).await,
    }
}

async fn pull<R: Runtime>(
    runtime: &R,
    name: &str,
    keys: &Keyring,
    tell: &impl EmitImageEvent,
) -> Result<Image, NoImage> {
    tell(EventKind::Normal, "Pulling", format!("Pulling image {name:?}"));
    let begun = Instant::now();
    match runtime.pull_image(name, keys).await {
        Ok(pulled) => {
            let took = told_duration(begun.elapsed());
            let size = pulled.image.size_bytes;
            let message = format!(
                "Successfully pulled image {name:?} in {took} ({took} including waiting). Image size: {size} bytes."
            );
            tell(EventKind::Normal, "Pulled", message);
            Ok(pulled.image)
        }
        Err(error) => {
            let message = error_chain(&error);
            tell(EventKind::Warning, "Failed", format!("Failed to pull image {name:?}: {message}"));
            Err(("ErrImagePull", message))
        }
    }
}

/// What the pod's pull secrets hold; its service account's are among them since it was admitted.
async fn keyring(client: &kube::Client, pod: &Pod, tell: &impl EmitImageEvent) -> Keyring {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut keys = Keyring::default();
    let mut missing = Vec::new();
    for reference in pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
        // A pull without it may still succeed, and says so if not.
        match secrets.get_opt(&reference.name).await {
            Ok(Some(secret)) if add(&mut keys, &secret).is_ok() => {}
            _ => missing.push(reference.name.clone()),
        }
    }
    if !missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        tell(EventKind::Warning, "FailedToRetrieveImagePullSecret", message);
    }
    keys
}

fn add(keys: &mut Keyring, secret: &Secret) -> Result<(), runtime_api::image::KeyringError> {
    let data = secret.data.iter().flatten();
    let find = |wanted: &str| data.clone().find(|(key, _)| *key == wanted).map(|(_, value)| value.0.as_slice());
    match (secret.type_.as_deref(), find(".dockerconfigjson"), find(".dockercfg")) {
        (Some("kubernetes.io/dockerconfigjson"), Some(raw), _) => keys.add_docker_config(raw),
        (Some("kubernetes.io/dockercfg"), _, Some(raw)) => keys.add_dockercfg(raw),
        // A secret of another kind holds nothing for registries.
        _ => Ok(()),
    }
}

/// The rules do not know the names of images; people are told which one is meant.
pub fn name_the_image(message: &str, image: &str) -> String {
    match message.strip_prefix(BACK_OFF_PULLING) {
        Some(rest) => format!("{BACK_OFF_PULLING} {image:?}{rest}"),
        None => message.to_owned(),
    }
}

/// A duration as upstream writes one: `45ms`, `1.5s`, `2m3.004s`.
fn told_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let fraction = format!("{:03}", millis % 1000);
    let fraction = fraction.trim_end_matches('0');
    let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if hours > 0 || minutes > 0 {
        text.push_str(&format!("{minutes}m"));
    }
    text.push_str(&seconds.to_string());
    if !fraction.is_empty() {
        text.push_str(&format!(".{fraction}"));
    }
    text + "s"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn registry(credentials: &[&Credential]) -> Origin {
        Origin::Registry { credentials: credentials.iter().map(|one| one.fingerprint()).collect() }
    }

    #[test]
    fn the_policy_says_when_a_registry_is_asked() {
        use PullPolicy::{Always, IfNotPresent, Never};
        let (archive, anyone) = (Origin::Archive, registry(&[]));
        for (policy, here, allowed, expected) in [
            (Always, None, false, Step::Pull),
            (Always, Some(&anyone), true, Step::Pull),
            (Always, Some(&archive), true, Step::Use),
            (IfNotPresent, None, false, Step::Pull),
            (IfNotPresent, Some(&anyone), true, Step::Use),
            (IfNotPresent, Some(&anyone), false, Step::Pull),
            (IfNotPresent, Some(&archive), true, Step::Use),
            (Never, None, false, Step::Refuse),
            (Never, Some(&anyone), true, Step::Use),
            (Never, Some(&anyone), false, Step::Refuse),
            (Never, Some(&archive), true, Step::Use),
        ] {
            assert_eq!(step(policy, here, allowed), expected, "{policy:?} {here:?} {allowed}");
        }
    }

    #[test]
    fn an_image_pulled_with_a_secret_is_for_those_who_have_it() {
        let credential = |password: &str| {
            let mut keys = Keyring::default();
            let config = format!(r#"{{"auths":{{"r.io":{{"username":"u","password":"{password}"}}}}}}"#);
            keys.add_docker_config(config.as_bytes()).unwrap();
            keys.lookup(&"r.io/x".parse().unwrap()).remove(0)
        };
        let (mine, theirs) = (credential("a"), credential("b"));
        assert!(allowed(&registry(&[]), &[]));
        assert!(allowed(&Origin::Archive, &[]));
        assert!(!allowed(&registry(&[&mine]), &[]));
        assert!(!allowed(&registry(&[&mine]), std::slice::from_ref(&theirs)));
        assert!(allowed(&registry(&[&mine]), &[theirs, mine]));
    }

    #[test]
    fn durations_read_as_upstream_writes_them() {
        for (millis, text) in
            [(0, "0s"), (45, "45ms"), (1000, "1s"), (1500, "1.5s"), (123_004, "2m3.004s"), (3_600_000, "1h0m0s")]
        {
            assert_eq!(told_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn the_image_is_named_where_the_rules_leave_it_open() {
        assert_eq!(name_the_image("Back-off pulling image", "x:1"), "Back-off pulling image \"x:1\"");
        let told = name_the_image("Back-off pulling image: ErrImagePull: no", "x");
        assert_eq!(told, "Back-off pulling image \"x\": ErrImagePull: no");
        assert_eq!(name_the_image("Stopping container x", "x"), "Stopping container x");
    }
}
