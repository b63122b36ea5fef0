//! Pod security: which pods a namespace takes, by the level that its labels name.
//!
//! [`Policy`] reads the labels, [`violations`] holds a pod against one level, and the sentences for people are here too.
//! What is looked at is a table, in [`checks`].

mod checks;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::kinds::Kind;
use crate::meta;
use crate::rules::value::{list, word};
use crate::status::Cause;

/// The newest version that there are checks for; `latest` means this one.
const NEWEST: u32 = 36;
const PREFIX: &str = "pod-security.kubernetes.io/";

/// How strict: the later, the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything goes.
    Privileged,
    /// Nothing that is known to lead out of a pod.
    Baseline,
    /// Only what follows the rules of hardening.
    Restricted,
}

const LEVELS: [(&str, Level); 3] =
    [("privileged", Level::Privileged), ("baseline", Level::Baseline), ("restricted", Level::Restricted)];

/// A level as of one version of Kubernetes. `None`: the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelAt {
    level: Level,
    minor: Option<u32>,
}

impl LevelAt {
    /// Whether everything goes.
    pub fn is_free(self) -> bool {
        self.level == Level::Privileged
    }

    /// Whether pods that were good enough for `old` may not be for this.
    pub fn is_stricter_than(self, old: Self) -> bool {
        self != old && !self.is_free() && (self.minor != old.minor || self.level > old.level)
    }
}

impl fmt::Display for LevelAt {
    /// `restricted:latest`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = LEVELS.iter().find(|(_, level)| *level == self.level).expect("every level has a name");
        match self.minor {
            None => write!(f, "{name}:latest"),
            Some(minor) => write!(f, "{name}:v1.{minor}"),
        }
    }
}

/// What a namespace wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Pods that violate this are refused.
    pub enforce: LevelAt,
    /// What violates this is noted.
    pub audit: LevelAt,
    /// Who sends what violates this is warned.
    pub warn: LevelAt,
}

impl Policy {
    /// What the labels of `namespace` say. One that cannot be read (only an old store can hold such) is as strict as can
    /// be where it refuses, and lenient where it only speaks.
    pub fn of(namespace: &Value) -> Self {
        let read = |mode: &str, unreadable: Level| {
            let level = meta::label(namespace, &format!("{PREFIX}{mode}"));
            let version = meta::label(namespace, &format!("{PREFIX}{mode}-version"));
            LevelAt {
                level: level.map_or(Level::Privileged, |word| level_of(word).unwrap_or(unreadable)),
                minor: version.and_then(minor_of).flatten(),
            }
        };
        let enforce = read("enforce", Level::Restricted);
        let audit = read("audit", Level::Privileged);
        let mut warn = read("warn", Level::Privileged);
        // Whoever writes a workload is told before its pods are refused.
        let says = |label: &str| meta::label(namespace, &format!("{PREFIX}{label}"));
        let readable = says("enforce").is_some_and(|word| level_of(word).is_some());
        if says("warn").is_none() && readable && enforce.level > warn.level {
            warn.level = enforce.level;
            if says("warn-version").is_none() {
                warn.minor = enforce.minor;
            }
        }
        Self { enforce, audit, warn }
    }

    /// Whether nothing needs to be looked at.
    pub fn is_free(self) -> bool {
        self.enforce.is_free() && self.audit.is_free() && self.warn.is_free()
    }
}

fn level_of(word: &str) -> Option<Level> {
    LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level)
}

/// `Some(None)` is the latest.
fn minor_of(word: &str) -> Option<Option<u32>> {
    if word == "latest" {
        return Some(None);
    }
    let minor = word.strip_prefix("v1.")?;
    let plain =
        !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
    plain.then(|| minor.parse().ok()).flatten().map(Some)
}

/// What is wrong with the labels of a namespace.
pub(crate) fn validate_labels(namespace: &Value, causes: &mut Vec<Cause>) {
    for mode in ["enforce", "audit", "warn"] {
        for (label, readable, text) in [
            (
                format!("{PREFIX}{mode}"),
                &(|word: &str| level_of(word).is_some()) as &dyn Fn(&str) -> bool,
                "must be one of privileged, baseline, restricted",
            ),
            (
                format!("{PREFIX}{mode}-version"),
                &|word: &str| minor_of(word).is_some(),
                "must be \"latest\" or \"v1.x\"",
            ),
        ] {
            if let Some(word) = meta::label(namespace, &label).filter(|word| !readable(word)) {
                causes.push(Cause::invalid(format!("metadata.labels[{label}]"), word, text));
            }
        }
    }
}

/// One rule that a pod breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// In a word or two.
    reason: String,
    /// Who breaks it, and how.
    detail: String,
}

/// Every rule of a level that a pod breaks. None is the usual case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Whether the pod is as it should be.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reasons alone.
    pub fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|violation| violation.reason.as_str()).collect();
        reasons.join(", ")
    }
}

impl fmt::Display for Violations {
    /// `host namespaces (hostPID=true), privileged (...)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Violation { reason, detail }) in self.0.iter().enumerate() {
            write!(f, "{}{reason} ({detail})", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// What `pod` (or a template, which has the same two parts) breaks of `at`.
pub fn violations(pod: &Value, at: LevelAt) -> Violations {
    let minor = at.minor.unwrap_or(NEWEST).min(NEWEST);
    let checks: Vec<_> = checks::ALL.iter().filter(|check| check.level <= at.level && check.since <= minor).collect();
    let replaced = |id: &str| checks.iter().any(|check| check.replaces == Some(id));
    let asked = checks.iter().filter(|check| !replaced(check.id));
    Violations(asked.filter_map(|check| (check.broken)(&checks::Pod { pod, minor })).collect())
}

/// The template that a workload makes its pods from.
pub fn template<'a>(kind: &Kind, object: &'a Value) -> Option<&'a Value> {
    let template = match kind.collection() {
        "podtemplates" => &object["template"],
        "cronjobs.batch" => &object["spec"]["jobTemplate"]["spec"]["template"],
        "replicationcontrollers"
        | "replicasets.apps"
        | "deployments.apps"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "jobs.batch" => &object["spec"]["template"],
        _ => return None,
    };
    template["spec"].is_object().then_some(template)
}

/// Whether a change of a pod is worth another look: another image, or a container more.
pub fn is_significant(old: &Value, new: &Value) -> bool {
    let images = |pod: &Value, key: &str| -> Vec<(String, String)> {
        let containers = list(&pod["spec"], key).iter();
        containers.map(|c| (word(c, "name").to_owned(), word(c, "image").to_owned())).collect()
    };
    ["containers", "initContainers"].iter().any(|key| images(old, key) != images(new, key))
        || images(new, "ephemeralContainers").iter().any(|own| !images(old, "ephemeralContainers").contains(own))
}

/// What to say about the pods that are in `namespace` already, of which `unfit` (by name) violate its new level.
pub fn existing<'a>(
    namespace: &str,
    at: LevelAt,
    unfit: impl IntoIterator<Item = (&'a str, Violations)>,
) -> Vec<String> {
    let mut alike: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for (name, violations) in unfit {
        let (first, count) = alike.entry(violations.reasons()).or_insert((name, 0));
        *first = name.min(*first);
        *count += 1;
    }
    if alike.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<String> = alike
        .into_iter()
        .map(|(reasons, (first, count))| match count {
            1 => format!("{first}: {reasons}"),
            2 => format!("{first} (and 1 other pod): {reasons}"),
            _ => format!("{first} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort();
    let head = format!("existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{at}\"");
    lines.insert(0, head);
    lines
}

#[cfg(test)]
mod tests;
