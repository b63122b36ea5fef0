//! Label selectors of policies, in a form in which two that mean the same are the same.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(crate) type Labels = BTreeMap<String, String>;

/// Takes whoever has certain labels; everybody if nothing is required.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Selector(BTreeSet<Requirement>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Absent(String),
    /// Written in words that nobody knows: it takes nobody.
    Never,
}

impl Selector {
    pub(crate) fn of(selector: &LabelSelector) -> Self {
        let equal = selector.match_labels.iter().flatten();
        let equal = equal.map(|(key, value)| Requirement::In(key.clone(), [value.clone()].into()));
        let expressions = selector.match_expressions.iter().flatten().map(|it| {
            let values = || it.values.iter().flatten().cloned().collect();
            match it.operator.as_str() {
                "In" => Requirement::In(it.key.clone(), values()),
                "NotIn" => Requirement::NotIn(it.key.clone(), values()),
                "Exists" => Requirement::Exists(it.key.clone()),
                "DoesNotExist" => Requirement::Absent(it.key.clone()),
                _ => Requirement::Never,
            }
        });
        Self(equal.chain(expressions).collect())
    }

    /// How many labels and values it looks at.
    pub(crate) fn size(&self) -> usize {
        let size = |requirement: &Requirement| match requirement {
            Requirement::In(_, values) | Requirement::NotIn(_, values) => 1 + values.len(),
            Requirement::Exists(_) | Requirement::Absent(_) | Requirement::Never => 1,
        };
        self.0.iter().map(size).sum()
    }

    pub(crate) fn takes(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
            Requirement::Never => false,
        })
    }
}

/// In which namespaces pods are looked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Namespaces {
    Named(String),
    Matching(Selector),
}

/// The pods that a peer of a policy means.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PeerSelector {
    pub(crate) namespaces: Namespaces,
    pub(crate) pods: Selector,
}

impl PeerSelector {
    /// Whether it takes a pod with these labels in that namespace, whose own labels are those; `None` if nobody knows them.
    pub(crate) fn takes(&self, namespace: &str, of_namespace: Option<&Labels>, labels: &Labels) -> bool {
        let is_there = match &self.namespaces {
            Namespaces::Named(named) => named == namespace,
            Namespaces::Matching(selector) => of_namespace.is_some_and(|labels| selector.takes(labels)),
        };
        is_there && self.pods.takes(labels)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn labels(of: &[(&str, &str)]) -> Labels {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn selector(value: Value) -> Selector {
        Selector::of(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn selector_takes_who_meets_all_of_its_requirements() {
        let web = labels(&[("app", "web"), ("tier", "front")]);
        let one = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (written, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "back"}}), false),
            (one("app", "In", &["api", "web"]), true),
            (one("app", "NotIn", &["api", "web"]), false),
            (one("zone", "NotIn", &["a"]), true),
            (one("zone", "In", &["a"]), false),
            (one("tier", "Exists", &[]), true),
            (one("tier", "DoesNotExist", &[]), false),
            (one("zone", "DoesNotExist", &[]), true),
            (one("app", "Near", &["web"]), false),
        ] {
            assert_eq!(selector(written.clone()).takes(&web), expected, "{written}");
        }
    }

    #[test]
    fn selectors_that_mean_the_same_are_the_same() {
        let short = selector(json!({"matchLabels": {"a": "1", "b": "2"}}));
        let in_set = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value, value]});
        let long = selector(json!({"matchExpressions": [in_set("b", "2"), in_set("a", "1")]}));
        assert_eq!(short, long);
        assert_eq!(short.size(), 4);
    }

    #[test]
    fn peer_is_looked_for_in_its_namespaces_only() {
        let of_namespace = labels(&[("team", "shop")]);
        let web = labels(&[("app", "web")]);
        let pods = selector(json!({"matchLabels": {"app": "web"}}));
        let own = PeerSelector { namespaces: Namespaces::Named("x".into()), pods: pods.clone() };
        assert!(own.takes("x", None, &web) && !own.takes("y", Some(&of_namespace), &web));
        let matching = selector(json!({"matchLabels": {"team": "shop"}}));
        let others = PeerSelector { namespaces: Namespaces::Matching(matching), pods };
        assert!(others.takes("y", Some(&of_namespace), &web));
        assert!(!others.takes("y", Some(&of_namespace), &labels(&[])));
        assert!(!others.takes("y", None, &web), "nobody knows the namespace");
        let anywhere =
            PeerSelector { namespaces: Namespaces::Matching(Selector::default()), pods: Selector::default() };
        assert!(anywhere.takes("y", Some(&labels(&[])), &web) && !anywhere.takes("y", None, &web));
    }
}
