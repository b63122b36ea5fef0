//! Which requests are written down, and with how much of them: a `Policy` of `audit.k8s.io/v1`. The first rule that matches counts; what
//! none matches is not written down.
//!
//! Rules mean what they mean upstream, with one difference: bodies with credentials (Secrets, tokens) are written only by a rule that
//! names their resource. A rule for everything does not think of them.

use std::sync::Arc;

use serde_json::Value;

use crate::identity::Identity;
use crate::request::ResourceAddress;

/// Of whose bodies somebody could live: group, resource, subresource.
const CREDENTIALS: [(&str, &str, &str); 2] =
    [("", "serviceaccounts", "token"), ("authentication.k8s.io", "tokenreviews", "")];
const RULES_MAX: usize = 1_000;

/// How much of a request is written down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// What is written down of whom. The default writes down every request without its body.
#[derive(Clone, Debug)]
pub struct AuditPolicy(Arc<Vec<AuditRule>>);

/// What is wrong with a policy, and where in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct AuditPolicyError {
    /// As in `rules[2].level`.
    pub path: String,
    /// What, and what to do.
    pub reason: String,
}

/// What becomes of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AuditDecision {
    pub(crate) level: Level,
    omit_stages: Vec<String>,
    pub(crate) omits_managed_fields: bool,
}

impl AuditDecision {
    pub(crate) fn omits(&self, stage: &str) -> bool {
        self.level == Level::None || self.omit_stages.iter().any(|it| it == stage)
    }
}

/// What a request is about.
pub(crate) enum AuditTarget<'a> {
    Path(&'a str),
    Resource(&'a ResourceAddress),
}

#[derive(Debug)]
struct AuditRule {
    decision: AuditDecision,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
}

#[derive(Debug)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Default for AuditPolicy {
    fn default() -> Self {
        let decision = AuditDecision { level: Level::Metadata, omit_stages: Vec::new(), omits_managed_fields: false };
        Self(Arc::new(vec![AuditRule::everything(decision)]))
    }
}

impl AuditPolicy {
    /// Reads a policy.
    pub fn read(policy: &Value) -> Result<Self, AuditPolicyError> {
        if (policy["apiVersion"].as_str(), policy["kind"].as_str()) != (Some("audit.k8s.io/v1"), Some("Policy")) {
            return wrong("kind", "must be Policy of apiVersion audit.k8s.io/v1");
        }
        known_fields("", policy, &["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"])?;
        let omit_stages = stages("", policy)?;
        let omits_managed_fields = flag("", policy, "omitManagedFields")?.unwrap_or(false);
        let Some(rules) = policy["rules"].as_array().filter(|rules| !rules.is_empty()) else {
            return wrong("rules", "must be a list of at least one; without a rule nothing is written down");
        };
        if rules.len() > RULES_MAX {
            return wrong("rules", format!("has {} rules, and {RULES_MAX} is the limit", rules.len()));
        }
        let rules = rules.iter().enumerate().map(|(at, rule)| {
            let mut read = AuditRule::read(&format!("rules[{at}]"), rule)?;
            read.decision.omit_stages.extend(omit_stages.iter().cloned());
            let own = flag(&format!("rules[{at}]"), rule, "omitManagedFields")?;
            read.decision.omits_managed_fields = own.unwrap_or(omits_managed_fields);
            Ok(read)
        });
        Ok(Self(Arc::new(rules.collect::<Result<_, _>>()?)))
    }

    /// Whether any rule wants bodies.
    pub(crate) fn takes_bodies(&self) -> bool {
        self.0.iter().any(|rule| rule.decision.level >= Level::Request)
    }

    /// What becomes of a request; of one that nobody has signed there is no user.
    pub(crate) fn decide(&self, user: Option<&Identity>, verb: &str, target: &AuditTarget<'_>) -> AuditDecision {
        let found = self.0.iter().find(|rule| rule.matches(user, verb, target));
        let nothing = AuditDecision { level: Level::None, omit_stages: Vec::new(), omits_managed_fields: false };
        let mut decision = found.map_or(nothing, |rule| rule.decision.clone());
        if found.is_some_and(|rule| holds_credentials(target) && !rule.names(target)) {
            decision.level = decision.level.min(Level::Metadata);
        }
        decision
    }
}

fn holds_credentials(target: &AuditTarget<'_>) -> bool {
    match target {
        // A link to the web timeline opens a session.
        AuditTarget::Path(path) => path.starts_with("/ui"),
        AuditTarget::Resource(at) => {
            let is_secret = at.group.is_empty() && at.resource == "secrets";
            is_secret || CREDENTIALS.contains(&(at.group.as_str(), at.resource.as_str(), at.subresource.as_str()))
        }
    }
}

impl AuditRule {
    fn everything(decision: AuditDecision) -> Self {
        let nobody = Vec::new;
        Self {
            decision,
            users: nobody(),
            groups: nobody(),
            verbs: nobody(),
            resources: Vec::new(),
            namespaces: nobody(),
            paths: nobody(),
        }
    }

    fn read(path: &str, rule: &Value) -> Result<Self, AuditPolicyError> {
        let known = [
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ];
        known_fields(path, rule, &known)?;
        let level = Level::ALL.into_iter().find(|level| rule["level"] == level.name());
        let Some(level) = level else {
            return wrong(format!("{path}.level"), "must be None, Metadata, Request or RequestResponse");
        };
        let decision = AuditDecision { level, omit_stages: stages(path, rule)?, omits_managed_fields: false };
        let of = &rule["resources"];
        let Some(all) = of.as_array().map(Vec::as_slice).or_else(|| of.is_null().then_some(&[])) else {
            return wrong(format!("{path}.resources"), "must be a list");
        };
        let read = |(at, of)| GroupResources::read(&format!("{path}.resources[{at}]"), of);
        let resources = all.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        let read = Self {
            users: words(path, rule, "users")?,
            groups: words(path, rule, "userGroups")?,
            verbs: words(path, rule, "verbs")?,
            namespaces: words(path, rule, "namespaces")?,
            paths: words(path, rule, "nonResourceURLs")?,
            resources,
            ..Self::everything(decision)
        };
        let is_about_objects = !read.resources.is_empty() || !read.namespaces.is_empty();
        if is_about_objects && !read.paths.is_empty() {
            let reason = "cannot stand beside resources or namespaces: no request has both; write two rules";
            return wrong(format!("{path}.nonResourceURLs"), reason);
        }
        let begin = |of: &str| of.strip_suffix('*').unwrap_or(of).to_owned();
        let is_path = |of: &&String| *of == "*" || of.starts_with('/') && !begin(of).contains('*');
        match read.paths.iter().find(|of| !is_path(of)) {
            Some(of) => {
                let reason = format!("{of:?} must be *, or begin with / and have a * at its end only");
                wrong(format!("{path}.nonResourceURLs"), reason)
            }
            None => Ok(read),
        }
    }

    fn matches(&self, user: Option<&Identity>, verb: &str, target: &AuditTarget<'_>) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|it| it == word);
        let is_by = self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.user));
        let is_of =
            self.groups.is_empty() || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.groups, group)));
        if !is_by || !is_of || !(self.verbs.is_empty() || has(&self.verbs, verb)) {
            return false;
        }
        if !self.resources.is_empty() || !self.namespaces.is_empty() {
            let AuditTarget::Resource(at) = target else { return false };
            let is_there = self.namespaces.is_empty() || has(&self.namespaces, &at.namespace);
            return is_there && (self.resources.is_empty() || self.resources.iter().any(|of| of.matches(at)));
        }
        if !self.paths.is_empty() {
            let AuditTarget::Path(path) = target else { return false };
            return self.paths.iter().any(|of| match of.strip_suffix('*') {
                Some(begin) => path.starts_with(begin),
                None => path == of,
            });
        }
        true
    }

    /// Whether it speaks of the resource by its name.
    fn names(&self, target: &AuditTarget<'_>) -> bool {
        let AuditTarget::Resource(at) = target else { return false };
        let named = |entry: &String| entry.split('/').next() == Some(at.resource.as_str()) && is_meant(entry, at);
        self.resources.iter().any(|of| of.matches(at) && of.resources.iter().any(named))
    }
}

impl GroupResources {
    fn read(path: &str, of: &Value) -> Result<Self, AuditPolicyError> {
        known_fields(path, of, &["group", "resources", "resourceNames"])?;
        let group = &of["group"];
        let Some(group) = group.as_str().or_else(|| group.is_null().then_some("")).map(str::to_owned) else {
            return wrong(format!("{path}.group"), "must be a word; \"\" is the core group");
        };
        if group.contains('/') {
            return wrong(format!("{path}.group"), format!("{group:?} must be a group without a version"));
        }
        let (resources, names) = (words(path, of, "resources")?, words(path, of, "resourceNames")?);
        if resources.is_empty() && !names.is_empty() {
            return wrong(
                format!("{path}.resourceNames"),
                "needs resources: a name means nothing without its resource",
            );
        }
        Ok(Self { group, resources, names })
    }

    fn matches(&self, at: &ResourceAddress) -> bool {
        if self.group != at.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.contains(&at.name) {
            return false;
        }
        self.resources.iter().any(|entry| is_meant(entry, at))
    }
}

/// Whether an entry of `resources` means this one.
fn is_meant(entry: &str, at: &ResourceAddress) -> bool {
    match entry.split_once('/') {
        _ if entry == "*" => true,
        None => entry == at.resource && at.subresource.is_empty(),
        Some(("*", part)) => !at.subresource.is_empty() && part == at.subresource,
        Some((resource, "*")) => resource == at.resource,
        Some((resource, part)) => resource == at.resource && part == at.subresource,
    }
}

fn wrong<T>(path: impl Into<String>, reason: impl Into<String>) -> Result<T, AuditPolicyError> {
    Err(AuditPolicyError { path: path.into(), reason: reason.into() })
}

fn field(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A rule that is misread writes down too little or too much.
fn known_fields(path: &str, value: &Value, known: &[&str]) -> Result<(), AuditPolicyError> {
    let Some(fields) = value.as_object() else { return wrong(path, "must be an object") };
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(unknown) => wrong(field(path, unknown), "there is no such field"),
        None => Ok(()),
    }
}

fn words(path: &str, of: &Value, name: &str) -> Result<Vec<String>, AuditPolicyError> {
    if of[name].is_null() {
        return Ok(Vec::new());
    }
    let list = of[name].as_array();
    let list = list.and_then(|list| list.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>());
    list.map_or_else(|| wrong(field(path, name), "must be a list of words"), Ok)
}

fn flag(path: &str, of: &Value, name: &str) -> Result<Option<bool>, AuditPolicyError> {
    match of[name].as_bool() {
        None if !of[name].is_null() => wrong(field(path, name), "must be true or false"),
        flag => Ok(flag),
    }
}

fn stages(path: &str, of: &Value) -> Result<Vec<String>, AuditPolicyError> {
    let stages = words(path, of, "omitStages")?;
    let known = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];
    match stages.iter().find(|stage| !known.contains(&stage.as_str())) {
        Some(unknown) => {
            wrong(field(path, "omitStages"), format!("{unknown:?} is no stage; the stages are {}", known.join(", ")))
        }
        None => Ok(stages),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::request::Address;

    fn policy(rules: Value) -> AuditPolicy {
        AuditPolicy::read(&json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules })).unwrap()
    }

    fn level(policy: &AuditPolicy, user: &Identity, verb: &str, path: &str) -> &'static str {
        let address = Address::parse(path);
        let target = match &address {
            Address::Path(path) => AuditTarget::Path(path),
            Address::Resource(at) => AuditTarget::Resource(at),
        };
        policy.decide(Some(user), verb, &target).level.name()
    }

    fn bob() -> Identity {
        Identity::new("bob", &["dev"])
    }

    /// The rules of upstream's documentation, and who is met by which.
    #[test]
    fn first_rule_that_matches_decides() {
        let policy = policy(json!([
            { "level": "RequestResponse", "resources": [{ "group": "", "resources": ["pods"] }] },
            { "level": "Metadata", "resources": [{ "group": "", "resources": ["pods/log", "pods/status"] }] },
            { "level": "None", "resources": [{ "group": "", "resources": ["configmaps"], "resourceNames": ["leader"] }] },
            { "level": "None", "users": ["system:kube-proxy"], "verbs": ["watch"],
              "resources": [{ "resources": ["endpoints", "services"] }] },
            { "level": "None", "userGroups": ["system:authenticated"], "nonResourceURLs": ["/api*", "/version"] },
            { "level": "Request", "namespaces": ["kube-system"], "resources": [{ "group": "", "resources": ["configmaps"] }] },
            { "level": "Request", "resources": [{ "group": "apps", "resources": ["deployments/*", "*/scale"] }, { "group": "batch" }] },
            { "level": "Metadata", "userGroups": ["dev"] },
        ]));
        let proxy = Identity::new("system:kube-proxy", &[]);
        let told = |user: &Identity, verb: &str, path: &str| level(&policy, user, verb, path);
        let bob = bob();
        for (verb, path, expected) in [
            ("create", "/api/v1/namespaces/x/pods", "RequestResponse"),
            ("get", "/api/v1/namespaces/x/pods/p/log", "Metadata"),
            ("get", "/api/v1/namespaces/x/pods/p/exec", "Metadata"),
            ("update", "/api/v1/namespaces/kube-system/configmaps/leader", "None"),
            ("update", "/api/v1/namespaces/kube-system/configmaps/other", "Request"),
            ("update", "/api/v1/namespaces/x/configmaps/other", "Metadata"),
            ("get", "/apis/apps/v1/namespaces/x/deployments/d", "Request"),
            ("get", "/apis/apps/v1/namespaces/x/deployments/d/status", "Request"),
            ("get", "/apis/apps/v1/namespaces/x/replicasets/d/scale", "Request"),
            ("get", "/apis/apps/v1/namespaces/x/replicasets/d", "Metadata"),
            ("list", "/apis/batch/v1/jobs", "Request"),
            ("get", "/version", "None"),
            ("get", "/apis", "None"),
            ("get", "/healthz", "Metadata"),
        ] {
            assert_eq!(told(&bob, verb, path), expected, "{verb} {path}");
        }
        assert_eq!(told(&proxy, "watch", "/api/v1/services"), "None");
        assert_eq!(told(&proxy, "list", "/api/v1/services"), "None", "no rule is none");
        assert_eq!(told(&Identity::anonymous(), "get", "/version"), "None");
        let target = AuditTarget::Path("/version");
        assert_eq!(AuditPolicy::default().decide(None, "get", &target).level, Level::Metadata);
        assert_eq!(policy.decide(None, "get", &target).level, Level::None, "nobody is in no group");
    }

    #[test]
    fn body_with_credentials_is_written_only_by_a_rule_that_names_it() {
        let secret = "/api/v1/namespaces/x/secrets/s";
        let token = "/api/v1/namespaces/x/serviceaccounts/a/token";
        let review = "/apis/authentication.k8s.io/v1/tokenreviews";
        let everything = policy(json!([{ "level": "RequestResponse" }]));
        let core = policy(
            json!([{ "level": "Request", "resources": [{ "group": "" }, { "group": "", "resources": ["*"] }] }]),
        );
        for path in [secret, token] {
            assert_eq!(level(&everything, &bob(), "create", path), "Metadata", "{path}");
            assert_eq!(level(&core, &bob(), "create", path), "Metadata", "{path}");
        }
        assert_eq!(level(&everything, &bob(), "create", review), "Metadata");
        assert_eq!(level(&everything, &bob(), "update", "/api/v1/namespaces/x/secrets/s/status"), "Metadata");
        assert_eq!(level(&everything, &bob(), "create", "/ui/links"), "Metadata");
        let beside = policy(json!([{ "level": "Request", "resources": [
            { "group": "", "resources": ["*", "serviceaccounts"] },
        ] }]));
        assert_eq!(level(&beside, &bob(), "create", token), "Metadata", "named by nobody");
        assert_eq!(level(&everything, &bob(), "get", "/api/v1/namespaces/x/serviceaccounts/a"), "RequestResponse");
        let named = policy(json!([{ "level": "Request", "resources": [
            { "group": "", "resources": ["secrets", "serviceaccounts/*"] },
            { "group": "authentication.k8s.io", "resources": ["tokenreviews"] },
        ] }]));
        for path in [secret, token, review] {
            assert_eq!(level(&named, &bob(), "create", path), "Request", "{path}");
        }
    }

    #[test]
    fn stages_and_managed_fields_are_those_of_the_policy_and_of_its_rule() {
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "omitManagedFields": true,
            "rules": [
                { "level": "Metadata", "users": ["bob"], "omitStages": ["ResponseStarted"], "omitManagedFields": false },
                { "level": "Metadata" },
            ],
        });
        let policy = AuditPolicy::read(&policy).unwrap();
        let decide = |user: &Identity| policy.decide(Some(user), "get", &AuditTarget::Path("/"));
        let (of_bob, of_ann) = (decide(&bob()), decide(&Identity::new("ann", &[])));
        assert!(
            of_bob.omits("ResponseStarted") && of_bob.omits("RequestReceived") && !of_bob.omits("ResponseComplete")
        );
        assert!(!of_ann.omits("ResponseStarted") && of_ann.omits("RequestReceived"));
        assert_eq!((of_bob.omits_managed_fields, of_ann.omits_managed_fields), (false, true));
    }

    #[test]
    fn mistake_in_a_policy_is_told_with_its_rule() {
        let told = |rule: Value| {
            let rules = json!([{ "level": "None" }, rule]);
            let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules });
            AuditPolicy::read(&policy).unwrap_err().to_string()
        };
        assert_eq!(told(json!({})), "rules[1].level: must be None, Metadata, Request or RequestResponse");
        assert!(told(json!({ "level": "metadata" })).starts_with("rules[1].level: "));
        assert_eq!(told(json!({ "level": "None", "user": [] })), "rules[1].user: there is no such field");
        assert!(told(json!({ "level": "None", "verbs": "get" })).starts_with("rules[1].verbs: must be a list"));
        let both = json!({ "level": "None", "nonResourceURLs": ["/api"], "namespaces": ["x"] });
        assert!(told(both).starts_with("rules[1].nonResourceURLs: cannot stand beside"));
        for path in ["api", "/a*/b", ""] {
            let told = told(json!({ "level": "None", "nonResourceURLs": [path] }));
            assert!(told.starts_with("rules[1].nonResourceURLs: "), "{told}");
        }
        let group = |of: Value| json!({ "level": "None", "resources": [of] });
        assert!(told(group(json!({ "group": "apps/v1" }))).starts_with("rules[1].resources[0].group: "));
        assert!(told(group(json!({ "resourceNames": ["a"] }))).starts_with("rules[1].resources[0].resourceNames: "));
        assert!(told(json!({ "level": "None", "omitStages": ["Later"] })).contains("\"Later\" is no stage"));
        assert!(told(json!({ "level": "None", "omitManagedFields": "no" })).contains("true or false"));
        assert_eq!(AuditPolicy::read(&Value::Null).unwrap_err().path, "kind");
        let empty = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy" });
        assert_eq!(AuditPolicy::read(&empty).unwrap_err().path, "rules");
    }
}
