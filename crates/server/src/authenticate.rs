//! From a request to the user it acts as.

use std::collections::BTreeMap;

use api::Status;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use jiff::Timestamp;

use crate::audit::{Record, Who};
use crate::authorize::{Attributes, Target, authorize};
use crate::identity::Identity;
use crate::query;
use crate::state::State;
use crate::tokens::{self, ISSUER};

/// Among the protocols of a WebSocket: the token of a browser, which can send no header of its own.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The caller: what the connection or the process put into the request's extensions, else whom the bearer token
/// names, else nobody in particular. `Impersonate-*` headers are honoured for those who may, and never ignored.
pub(crate) fn authenticate(state: &State, parts: &mut Parts, record: Option<&Record>) -> Result<Identity, Status> {
    let in_protocols = token_among_protocols(&mut parts.headers);
    let identity = match parts.extensions.remove::<Identity>() {
        Some(identity) => identity,
        // A credential we cannot check is a bad one; treating its bearer as anonymous would hide that.
        None => match (parts.headers.get(header::AUTHORIZATION), in_protocols) {
            (Some(credential), _) => bearer(state, credential).ok_or_else(Status::unauthorized)?,
            (None, Some(token)) => {
                let named = token.and_then(|token| holder(state, &token));
                named.filter(|_| asks_for_a_socket(&parts.headers)).ok_or_else(Status::unauthorized)?
            }
            (None, None) => Identity::anonymous(),
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
    holder(state, token.trim())
}

fn holder(state: &State, token: &str) -> Option<Identity> {
    tokens::check(state, token, &[ISSUER], Timestamp::now()).map(|(identity, _)| identity)
}

/// Whether a WebSocket is asked for, with a protocol that it can be answered by.
fn asks_for_a_socket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket") && headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL)
}

/// Takes the token out of the protocols of a WebSocket: nobody behind this server may see it. `Some(None)` is one that cannot
/// be read, or that is not the only one.
fn token_among_protocols(headers: &mut HeaderMap) -> Option<Option<String>> {
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let lines: Vec<_> = lines.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let all: Vec<&str> = lines.iter().flat_map(|line| line.split(',')).map(str::trim).collect();
    let (tokens, others): (Vec<&str>, Vec<&str>) = all.into_iter().partition(|word| word.starts_with(TOKEN_PROTOCOL));
    let [first, more @ ..] = tokens.as_slice() else { return None };
    let encoded = &first[TOKEN_PROTOCOL.len()..];
    let token = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let token = token.filter(|_| more.is_empty());
    match HeaderValue::from_str(&others.join(", ")) {
        Ok(line) if !others.is_empty() => _ = headers.insert(header::SEC_WEBSOCKET_PROTOCOL, line),
        _ => _ = headers.remove(header::SEC_WEBSOCKET_PROTOCOL),
    }
    Some(token)
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
