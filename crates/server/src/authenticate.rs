//! From a request to the user it acts as.

use std::collections::BTreeMap;

use api::Status;
use http::header::{self, HeaderMap};
use http::request::Parts;
use jiff::Timestamp;

use crate::audit::{Record, Who};
use crate::authorize::{Attributes, Target, authorize};
use crate::identity::Identity;
use crate::query;
use crate::state::State;
use crate::tokens::{self, ISSUER};

/// The caller: what the connection or the process put into the request's extensions, else whom the bearer token
/// names, else nobody in particular. `Impersonate-*` headers are honoured for those who may, and never ignored.
pub(crate) fn authenticate(state: &State, parts: &mut Parts, record: Option<&Record>) -> Result<Identity, Status> {
    let identity = match parts.extensions.remove::<Identity>() {
        Some(identity) => identity,
        None => match parts.headers.get(header::AUTHORIZATION) {
            // A credential we cannot check is a bad one; treating its bearer as anonymous would hide that.
            Some(credential) => bearer(state, credential).ok_or_else(Status::unauthorized)?,
            None => Identity::anonymous(),
        },
    };
    let Some(record) = record else { return impersonate(state, identity, &parts.headers) };
    let user = identity.clone();
    let acts_as = impersonate(state, identity, &parts.headers);
    let other = acts_as.as_ref().ok().filter(|acts_as| **acts_as != user).cloned();
    // The first word counts, and there is only this one.
    let _ = record.who.set(Who { user, acts_as: other });
    acts_as
}

fn bearer(state: &State, credential: &header::HeaderValue) -> Option<Identity> {
    let (scheme, token) = credential.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    tokens::check(state, token.trim(), &[ISSUER], Timestamp::now()).map(|(identity, _)| identity)
}

fn impersonate(state: &State, identity: Identity, headers: &HeaderMap) -> Result<Identity, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(identity);
    }
    let user = headers.get("impersonate-user").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if user.is_empty() {
        return Err(Status::bad_request("requested groups without impersonating a user"));
    }
    let may = |resource: &str, namespace: &str, name: &str| {
        let target = Target::Resource { group: "", resource, subresource: "", namespace, name };
        authorize(state, &identity, &Attributes { verb: "impersonate", target })
    };
    let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, name)) => may("serviceaccounts", namespace, name)?,
        None => may("users", "", user)?,
    }
    let mut groups: Vec<&str> =
        headers.get_all("impersonate-group").iter().filter_map(|value| value.to_str().ok()).collect();
    for group in &groups {
        may("groups", "", group)?;
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let about_a_user = |resource: &str, subresource: &str, name: &str| {
        let target = Target::Resource { group: "authentication.k8s.io", resource, subresource, namespace: "", name };
        authorize(state, &identity, &Attributes { verb: "impersonate", target })
    };
    let uid = text("impersonate-uid");
    if !uid.is_empty() {
        about_a_user("uids", "", uid)?;
    }
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("impersonate-extra-") else { continue };
        let (key, value) = (query::decode(key, false), value.to_str().unwrap_or_default());
        about_a_user("userextras", &key, value)?;
        extra.entry(key).or_default().push(value.to_owned());
    }
    let own_groups = account.map(|(namespace, _)| format!("system:serviceaccounts:{namespace}"));
    if let Some(own) = own_groups.as_deref().filter(|_| groups.is_empty()) {
        groups.extend(["system:serviceaccounts", own]);
    }
    if user == "system:anonymous" && groups.is_empty() {
        return Ok(Identity::anonymous());
    }
    Ok(Identity { uid: uid.to_owned(), extra, ..Identity::new(user, &groups) })
}
