//! Whether a container that must not run as root would, decided before anything is made.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::container::ConfigError;

/// Refuses a container that must not run as root and would, or may. `image_user` is what its image says.
pub fn may_run_as(pod: &Pod, container: &Container, image_user: Option<&str>) -> Result<(), ConfigError> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let must_not = own.and_then(|own| own.run_as_non_root).or_else(|| of_pod.and_then(|pod| pod.run_as_non_root));
    if must_not != Some(true) {
        return Ok(());
    }
    let asked = own.and_then(|own| own.run_as_user).or_else(|| of_pod.and_then(|pod| pod.run_as_user));
    let user = image_user.map_or("", |user| user.split(':').next().unwrap_or_default());
    let why = match (asked, user, user.parse::<u64>()) {
        (Some(0), ..) => "container's runAsUser breaks non-root policy".to_owned(),
        (Some(_), ..) => return Ok(()),
        (None, "", _) | (None, _, Ok(0)) => "container has runAsNonRoot and image will run as root".to_owned(),
        (None, _, Ok(_)) => return Ok(()),
        (None, name, Err(_)) => format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        ),
    };
    let meta = &pod.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let named = format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid));
    Err(ConfigError::Refused(format!("{why} (pod: {named:?}, container: {})", container.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn run_as_non_root_is_refused_unless_the_user_is_provably_not_root() {
        const ROOT: &str = "container has runAsNonRoot and image will run as root";
        const POLICY: &str = "container's runAsUser breaks non-root policy";
        let named = |user: &str| {
            format!(
                "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
            )
        };
        let must_not = || json!({ "runAsNonRoot": true });
        let none = || json!({});
        let as_user = |uid: i64| json!({ "runAsNonRoot": true, "runAsUser": uid });
        let cases: [(Value, Value, Option<&str>, String); 14] = [
            (none(), none(), None, String::new()),
            (none(), none(), Some("root"), String::new()),
            (must_not(), none(), None, ROOT.into()),
            (none(), must_not(), Some(""), ROOT.into()),
            (must_not(), none(), Some("0"), ROOT.into()),
            (must_not(), none(), Some("0:1000"), ROOT.into()),
            (must_not(), none(), Some("1000"), String::new()),
            (must_not(), none(), Some("1000:0"), String::new()),
            (must_not(), none(), Some("nobody:nogroup"), named("nobody")),
            (must_not(), none(), Some("root"), named("root")),
            (must_not(), json!({ "runAsNonRoot": false }), None, String::new()),
            (as_user(1000), none(), None, String::new()),
            (as_user(0), none(), Some("1000"), POLICY.into()),
            (as_user(0), json!({ "runAsUser": 7 }), Some("nobody"), String::new()),
        ];
        for (of_pod, own, image_user, expected) in cases {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": "web", "namespace": "shop", "uid": "u1" },
                "spec": { "containers": [], "securityContext": of_pod },
            }))
            .expect("a pod");
            let container: Container =
                serde_json::from_value(json!({ "name": "app", "securityContext": own })).expect("a container");
            let said = may_run_as(&pod, &container, image_user).err().map(|error| error.to_string());
            let whole = format!("{expected} (pod: \"web_shop(u1)\", container: app)");
            let expected = (!expected.is_empty()).then_some(whole);
            assert_eq!(said, expected, "{of_pod} {own} {image_user:?}");
        }
    }
}
