//! Roles judged: does a rule grant what is asked, does a binding concern a user, do rules cover a rule.
//!
//! Pure questions about stored roles and bindings. Which of them to read is the server's business.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::rules::value::{list, word};

/// What is to be done, and to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedAccess<'a> {
    /// Something that is not an object.
    Path(&'a str),
    /// Objects, or something below one.
    Resource {
        /// API group; empty is the core group.
        group: &'a str,
        /// `pods`.
        resource: &'a str,
        /// `log`, or empty.
        subresource: &'a str,
        /// Empty for a collection.
        name: &'a str,
    },
}

fn has(rule: &Value, key: &str, wanted: &str) -> bool {
    list(rule, key).iter().any(|entry| entry == wanted || entry == "*")
}

/// Whether `rule` allows `verb` on what is asked.
pub fn grants(rule: &Value, verb: &str, asked: RequestedAccess<'_>) -> bool {
    if !has(rule, "verbs", verb) {
        return false;
    }
    match asked {
        RequestedAccess::Path(path) => {
            list(rule, "nonResourceURLs").iter().filter_map(Value::as_str).any(|url| url_takes(url, path))
        }
        RequestedAccess::Resource { group, resource, subresource, name } => {
            let names = list(rule, "resourceNames");
            has(rule, "apiGroups", group)
                && list(rule, "resources")
                    .iter()
                    .filter_map(Value::as_str)
                    .any(|entry| takes(entry, resource, subresource))
                && (names.is_empty() || (!name.is_empty() && names.iter().any(|entry| entry == name)))
        }
    }
}

fn takes(entry: &str, resource: &str, subresource: &str) -> bool {
    match entry.split_once('/') {
        _ if entry == "*" => true,
        Some((parent, child)) => (parent == "*" || parent == resource) && child == subresource && !child.is_empty(),
        None => entry == resource && subresource.is_empty(),
    }
}

fn url_takes(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}

/// Whether `binding` concerns the user; `namespace` is where the binding lives.
pub fn concerns(binding: &Value, user: &str, groups: &[String], namespace: &str) -> bool {
    list(binding, "subjects").iter().any(|subject| match word(subject, "kind") {
        "User" => word(subject, "name") == user,
        "Group" => groups.iter().any(|group| group == word(subject, "name")),
        "ServiceAccount" => {
            let own = match word(subject, "namespace") {
                "" => namespace,
                other => other,
            };
            !own.is_empty() && user == account_user(own, word(subject, "name"))
        }
        _ => false,
    })
}

/// The user that a service account acts as.
pub fn account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Whether whoever has the rules in `own` has everything that `wanted` would give.
pub fn covers(own: &[Value], wanted: &Value) -> bool {
    // Each once: what is said a thousand times over in every list would otherwise be asked a billion times.
    let words = |key: &str| list(wanted, key).iter().filter_map(Value::as_str).collect::<BTreeSet<_>>();
    let (verbs, groups, resources, names) =
        (words("verbs"), words("apiGroups"), words("resources"), words("resourceNames"));
    let urls = words("nonResourceURLs");
    verbs.iter().all(|verb| {
        let of_urls = urls.iter().all(|url| {
            own.iter().any(|rule| {
                has(rule, "verbs", verb)
                    && list(rule, "nonResourceURLs")
                        .iter()
                        .filter_map(Value::as_str)
                        .any(|held| held == *url || url_takes(held, url))
            })
        });
        let of_resources = groups.iter().all(|group| {
            resources.iter().all(|resource| {
                let held = |name: Option<&str>| {
                    own.iter().any(|rule| {
                        let limits = list(rule, "resourceNames");
                        has(rule, "verbs", verb)
                            && has(rule, "apiGroups", group)
                            && list(rule, "resources")
                                .iter()
                                .filter_map(Value::as_str)
                                .any(|held| held_takes(held, resource))
                            && (limits.is_empty() || name.is_some_and(|name| limits.iter().any(|limit| limit == name)))
                    })
                };
                held(None) || (!names.is_empty() && names.iter().all(|name| held(Some(name))))
            })
        });
        of_urls && of_resources
    })
}

fn held_takes(held: &str, wanted: &str) -> bool {
    let of_any = |child: &str| wanted.split_once('/').is_some_and(|(_, own)| own == child);
    held == "*" || held == wanted || held.strip_prefix("*/").is_some_and(of_any)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn on<'a>(resource: &'a str, subresource: &'a str, name: &'a str) -> RequestedAccess<'a> {
        RequestedAccess::Resource { group: "", resource, subresource, name }
    }

    #[test]
    fn a_rule_grants_what_it_names_and_nothing_below_it() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]});
        assert!(grants(&rule, "get", on("pods", "", "x")) && !grants(&rule, "get", on("pods", "log", "x")));
        assert!(grants(&rule, "get", on("things", "scale", "x")) && !grants(&rule, "list", on("pods", "", "")));
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["x"]});
        assert!(grants(&named, "get", on("pods", "log", "x")) && !grants(&named, "get", on("pods", "", "y")));
        assert!(!grants(&named, "list", on("pods", "", "")));
        let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/healthz/*"]});
        assert!(
            grants(&paths, "get", RequestedAccess::Path("/healthz/x"))
                && !grants(&paths, "get", RequestedAccess::Path("/healthzz"))
        );
        assert!(!grants(&paths, "get", on("pods", "", "")) && !grants(&rule, "get", RequestedAccess::Path("/pods")));
    }

    #[test]
    fn a_binding_concerns_users_groups_and_accounts() {
        let binding = json!({"subjects": [{"kind": "User", "name": "bob"}, {"kind": "Group", "name": "dev"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "n"}]});
        assert!(concerns(&binding, "bob", &[], ""));
        assert!(concerns(&binding, "eve", &["dev".to_owned()], ""));
        assert!(concerns(&binding, "system:serviceaccount:n:robot", &[], ""));
        assert!(!concerns(&binding, "system:serviceaccount:m:robot", &[], "m"));
        // A user called like a group is not the group.
        assert!(!concerns(&binding, "dev", &["bob".to_owned()], ""));
    }

    #[test]
    fn rbac_rule_that_exceeds_the_callers_rules_is_not_covered() {
        let own = [
            json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}),
            json!({"verbs": ["update"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}),
        ];
        let wants = |verbs: &[&str], resource: &str, names: &[&str]| {
            covers(&own, &json!({"verbs": verbs, "apiGroups": [""], "resources": [resource], "resourceNames": names}))
        };
        assert!(wants(&["get", "list"], "pods", &[]) && wants(&["get"], "pods", &["x"]));
        assert!(!wants(&["get", "delete"], "pods", &[]) && !wants(&["*"], "pods", &[]) && !wants(&["get"], "*", &[]));
        assert!(wants(&["update"], "secrets", &["a"]) && !wants(&["update"], "secrets", &["a", "b"]));
        assert!(!wants(&["update"], "secrets", &[]));
        assert!(!covers(&own, &json!({"verbs": ["get"], "nonResourceURLs": ["*"]})));
    }

    /// Upstream's rules of cover, each with the answer.
    #[test]
    fn covering_is_by_verb_group_resource_name_and_path() {
        let on = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| {
            json!({
            "verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        };
        let paths = |urls: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": urls});
        let pods = || on(&["get"], &[""], &["pods"], &[]);
        for (what, own, wanted, expected) in [
            ("the same", pods(), pods(), true),
            ("a star takes all", on(&["*"], &["*"], &["*"], &[]), pods(), true),
            (
                "only a star takes a star",
                on(&["get", "list"], &[""], &["pods"], &[]),
                on(&["*"], &[""], &["pods"], &[]),
                false,
            ),
            ("a star of another group", on(&["*"], &["apps"], &["*"], &[]), pods(), false),
            ("a resource is not its parts", pods(), on(&["get"], &[""], &["pods/exec"], &[]), false),
            ("nor a part its resource", on(&["get"], &[""], &["pods/exec"], &[]), pods(), false),
            ("a part of any", on(&["get"], &[""], &["*/scale"], &[]), on(&["get"], &[""], &["pods/scale"], &[]), true),
            (
                "any resource is not a part of any",
                on(&["get"], &[""], &["*/scale"], &[]),
                on(&["get"], &[""], &["*"], &[]),
                false,
            ),
            ("names narrow", pods(), on(&["get"], &[""], &["pods"], &["a"]), true),
            ("and do not widen", on(&["get"], &[""], &["pods"], &["a"]), pods(), false),
            (
                "each name counts",
                on(&["get"], &[""], &["pods"], &["a"]),
                on(&["get"], &[""], &["pods"], &["a", "b"]),
                false,
            ),
            ("a path below", paths(&["/healthz/*"]), paths(&["/healthz/etcd", "/healthz/*"]), true),
            ("a path above", paths(&["/healthz/*"]), paths(&["/healthz", "/*"]), false),
            ("paths are no resources", paths(&["*"]), pods(), false),
        ] {
            assert_eq!(covers(std::slice::from_ref(&own), &wanted), expected, "{what}");
        }
        // Two rules together hold a third, each a part of it.
        let both = [pods(), on(&["list"], &[""], &["pods"], &[])];
        assert!(covers(&both, &on(&["get", "list"], &[""], &["pods"], &[])));
    }

    /// Lists that say one thing many times are as quick as lists that say it once.
    #[test]
    fn covering_does_not_multiply_repeated_words() {
        let own = [json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})];
        let many = |word: &str| vec![word.to_owned(); 30_000];
        let names: Vec<String> = (0..30_000).map(|name| name.to_string()).collect();
        let wanted =
            json!({"verbs": many("get"), "apiGroups": many(""), "resources": many("pods"), "resourceNames": names});
        assert!(covers(&own, &wanted));
    }
}
