//! Questions asked by creating them: may I, may they, who am I, whose token is this; and tokens themselves.

use std::sync::Arc;

use api::{Cause, Kind, Status};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::authorize::{self, Attributes, Target};
use crate::body::Body;
use crate::identity::Identity;
use crate::request::{Request, key};
use crate::respond::{self, Shown};
use crate::state::{State, core_kind};
use crate::tokens::{self, Grant, ISSUER, MOST_SECONDS};
use crate::{create, node_rules, rbac};

const LEAST_SECONDS: i64 = 600;
const DEFAULT_SECONDS: i64 = 3600;
/// No token is asked for that lives longer.
const ASKED_MOST: i64 = 1 << 32;

/// Answers a review; the table of kinds says which there are.
pub(crate) fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let mut review = read(request, &request.kind)?;
    review["status"] = match request.kind.kind.as_str() {
        "SelfSubjectReview" => json!({ "userInfo": user_info(&request.identity) }),
        "TokenReview" if review["spec"]["token"].as_str().unwrap_or_default().is_empty() => {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        "TokenReview" => token_review(state, &review["spec"]),
        "SelfSubjectAccessReview" => access(state, &request.identity, &review["spec"])?,
        "SelfSubjectRulesReview" => rules_review(state, &request.identity, &review["spec"])?,
        "LocalSubjectAccessReview" => {
            let asked = &review["spec"]["resourceAttributes"];
            if asked["namespace"].as_str().unwrap_or_default() != request.namespace {
                let text = "must match metadata.namespace";
                let cause = Cause::invalid("spec.resourceAttributes.namespace", asked["namespace"].clone(), text);
                return Err(Status::invalid(&request.kind, "", vec![cause]));
            }
            access(state, &somebody(&request.kind, &review["spec"])?, &review["spec"])?
        }
        _ => access(state, &somebody(&request.kind, &review["spec"])?, &review["spec"])?,
    };
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    Ok(created(request, &request.kind, review))
}

fn read(request: &Request, kind: &Kind) -> Result<Value, Status> {
    // A table of a question makes no sense, and conformance asks for this refusal.
    request.accept.plain()?;
    let validation = request.field_validation()?;
    Ok(api::decode_object(kind, request.content_type.as_deref(), &request.body, validation)?.value)
}

fn created(request: &Request, kind: &Kind, value: Value) -> Response<Body> {
    respond::json(StatusCode::CREATED, respond::prettied(request.pretty, Shown::made(value).framed(kind)))
}

fn user_info(identity: &Identity) -> Value {
    let mut info = json!({ "username": identity.user, "groups": identity.groups });
    if !identity.uid.is_empty() {
        info["uid"] = json!(identity.uid);
    }
    if !identity.extra.is_empty() {
        info["extra"] = json!(identity.extra);
    }
    info
}

fn token_review(state: &State, spec: &Value) -> Value {
    let wanted: Vec<&str> = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audiences = if wanted.is_empty() { vec![ISSUER] } else { wanted };
    match tokens::check(state, spec["token"].as_str().unwrap_or_default(), &audiences, state.now()) {
        Some((identity, served)) => {
            json!({ "authenticated": true, "user": user_info(&identity), "audiences": served })
        }
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    }
}

/// The user a review asks about.
fn somebody(kind: &Kind, spec: &Value) -> Result<Identity, Status> {
    let user = spec["user"].as_str().unwrap_or_default();
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let groups: Vec<String> = groups.map(ToOwned::to_owned).collect();
    if user.is_empty() && groups.is_empty() {
        let text = "at least one of user or group must be specified";
        return Err(Status::invalid(kind, "", vec![Cause::invalid("spec.user", user, text)]));
    }
    // Exactly the groups that were named: the one who asks knows whether the user is authenticated.
    Ok(Identity { user: user.to_owned(), groups, ..Identity::default() })
}

fn access(state: &State, identity: &Identity, spec: &Value) -> Result<Value, Status> {
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let decision = if resource.is_object() && !path.is_object() {
        let words = ["group", "resource", "subresource", "namespace", "name"].map(|key| word(resource, key));
        let [group, kind, subresource, namespace, name] = &words;
        let target = Target::Resource { group, resource: kind, subresource, namespace, name };
        authorize::decide(state, identity, &Attributes { verb: &word(resource, "verb"), target })
    } else if path.is_object() && !resource.is_object() {
        let target = Target::Path(&word(path, "path"));
        authorize::decide(state, identity, &Attributes { verb: &word(path, "verb"), target })
    } else {
        let text = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let cause = Cause::invalid("spec.resourceAttributes", resource.clone(), text);
        return Err(Status::invalid_of("SubjectAccessReview", "authorization.k8s.io", "", vec![cause]));
    };
    let mut status = json!({ "allowed": decision.allowed });
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    Ok(status)
}

fn rules_review(state: &State, identity: &Identity, spec: &Value) -> Result<Value, Status> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let mut rules = rbac::rules_of(state, identity, namespace);
    if identity.is_in("system:masters") {
        rules.insert(0, json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }));
        rules.insert(1, json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }));
    }
    let is_path = |rule: &&Value| rule["nonResourceURLs"].as_array().is_some_and(|urls| !urls.is_empty());
    let (paths, resources): (Vec<&Value>, Vec<&Value>) = rules.iter().partition(is_path);
    // Nodes are let through by more than roles, and the answer must not hide that.
    let incomplete = identity.is_in("system:nodes");
    Ok(json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete }))
}

/// `serviceaccounts/NAME/token`.
pub(crate) fn token(state: &State, request: &Request, warnings: &mut Vec<String>) -> Result<Response<Body>, Status> {
    let kind = api::token_request();
    let mut asked = read(request, kind)?;
    let accounts = &request.kind;
    for (key, said, word) in [
        ("name", api::meta::name(&asked), &request.name),
        ("namespace", api::meta::namespace(&asked), &request.namespace),
    ] {
        if !said.is_empty() && said != word {
            let text = format!("must match the service account {key} if specified");
            let cause = Cause::invalid(format!("metadata.{key}"), said, &text);
            return Err(Status::invalid(kind, &request.name, vec![cause]));
        }
    }
    create::check_namespace_takes(state, accounts, &request.namespace, &request.name)?;
    let account = state.store.get(&request.key()).ok_or_else(|| Status::not_found(accounts, &request.name))?;
    let (uid, own) = (api::meta::uid(&asked), account.value());
    if !uid.is_empty() && uid != api::meta::uid(&own) {
        let own = api::meta::uid(&own);
        let text =
            format!("the UID in the token request ({uid}) does not match the UID of the service account ({own})");
        return Err(Status::conflict_of(kind, &request.name, &text));
    }
    let spec = &asked["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    let wrong = match seconds {
        ..LEAST_SECONDS => Some("may not specify a duration less than 10 minutes"),
        _ if seconds > ASKED_MOST => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(text) = wrong {
        return Err(Status::invalid(kind, "", vec![Cause::invalid("spec.expirationSeconds", seconds, text)]));
    }
    if seconds > MOST_SECONDS {
        warnings.push(format!("requested expiration of {seconds} seconds shortened to {MOST_SECONDS} seconds"));
    }
    let audiences: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    let bound = bound(state, request, &spec["boundObjectRef"])?;
    let pod = bound.as_ref().filter(|(kind, _)| kind.plural == "pods").map(|(_, pod)| &**pod);
    node_rules::check_token(state, request, &spec["boundObjectRef"], pod, &audiences)?;
    let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
    let now = state.now();
    let grant = Grant { account: &account, audiences: &audiences, seconds: seconds.min(MOST_SECONDS), bound };
    let (token, expires) = tokens::issue(state, &grant, now);
    let reference = asked["spec"].get("boundObjectRef").cloned().filter(|reference| !reference.is_null());
    let mut spec: Map<String, Value> = Map::new();
    spec.insert("audiences".to_owned(), json!(audiences));
    spec.insert("expirationSeconds".to_owned(), json!(grant.seconds));
    spec.insert("boundObjectRef".to_owned(), json!(reference));
    asked["metadata"] = json!({
        "name": request.name, "namespace": request.namespace, "creationTimestamp": api::time::seconds(now),
        "uid": api::meta::uid(&account.value()),
    });
    asked["spec"] = Value::Object(spec);
    asked["status"] = json!({ "token": token, "expirationTimestamp": api::time::seconds(expires) });
    Ok(created(request, kind, asked))
}

type Bound = (&'static Arc<Kind>, Arc<Value>);

/// The object that a token is to die with.
fn bound(state: &State, request: &Request, reference: &Value) -> Result<Option<Bound>, Status> {
    if !reference.is_object() {
        return Ok(None);
    }
    let word = |key: &str| reference[key].as_str().unwrap_or_default();
    let (kind, namespace) = match (word("apiVersion"), word("kind")) {
        ("v1", "Pod") => (core_kind("pods"), request.namespace.as_str()),
        ("v1", "Secret") => (core_kind("secrets"), request.namespace.as_str()),
        ("v1", "Node") => (core_kind("nodes"), ""),
        (version, other) => {
            let group = if version.contains('/') { "" } else { "/" };
            let message = format!("cannot bind token to object of type {group}{version}, Kind={other}");
            return Err(Status::bad_request(message));
        }
    };
    let name = word("name");
    let found = state.store.get(&key(kind, namespace, name)).ok_or_else(|| Status::not_found(kind, name))?;
    let value = found.value();
    let (uid, stored) = (word("uid"), api::meta::uid(&value));
    if !uid.is_empty() && uid != stored {
        let message = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(&kind.resource(), name, &message));
    }
    let account = value["spec"]["serviceAccountName"].as_str();
    if kind.plural == "pods" && account != Some(&request.name) {
        let message = format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            request.name
        );
        return Err(Status::bad_request(message));
    }
    Ok(Some((kind, value)))
}
