//! From a request to the user it acts as.

use std::collections::BTreeMap;

use api::Status;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;

use crate::audit::{Caller, Record};
use crate::authorize::{Attributes, Target, authorize};
use crate::identity::Identity;
use crate::query;
use crate::state::State;
use crate::tokens::{self, ISSUER};
use crate::ui;

/// Among the protocols of a WebSocket: the token of a browser, which can send no header of its own.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The caller: what the connection or the process put into the request's extensions, else whom the bearer token
/// names, else whose session of the web timeline it is, else nobody in particular. `Impersonate-*` headers are honoured for those who
/// may, and never ignored.
pub(crate) fn authenticate(state: &State, parts: &mut Parts, record: Option<&Record>) -> Result<Identity, Status> {
    let in_protocols = token_among_protocols(&mut parts.headers);
    let cookie = ui::take_cookie(state, &mut parts.headers);
    let identity = match parts.extensions.remove::<Identity>() {
        Some(identity) => identity,
        // A credential we cannot check is a bad one; treating its bearer as anonymous would hide that.
        None => match (parts.headers.get(header::AUTHORIZATION), in_protocols) {
            (Some(credential), _) => {
                let (identity, token) = bearer(state, credential).ok_or_else(Status::unauthorized)?;
                parts.extensions.insert(ui::ByToken(token));
                identity
            }
            (None, Some(token)) => {
                let token = token.filter(|_| asks_for_a_socket(&parts.headers)).ok_or_else(Status::unauthorized)?;
                let identity = holder(state, &token).ok_or_else(Status::unauthorized)?;
                parts.extensions.insert(ui::ByToken(token));
                identity
            }
            (None, None) => ui::session(state, parts, cookie)?.unwrap_or_else(Identity::anonymous),
        },
    };
    let Some(record) = record else { return impersonate(state, identity, &parts.headers) };
    let user = identity.clone();
    let acts_as = impersonate(state, identity, &parts.headers);
    let other = acts_as.as_ref().ok().filter(|acts_as| **acts_as != user).cloned();
    // The first word counts, and there is only this one.
    let _ = record.caller.set(Caller { user, acts_as: other });
    acts_as
}

fn bearer(state: &State, credential: &header::HeaderValue) -> Option<(Identity, String)> {
    let (scheme, token) = credential.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let token = token.trim();
    Some((holder(state, token)?, token.to_owned()))
}

/// Whom a token names.
pub(crate) fn holder(state: &State, token: &str) -> Option<Identity> {
    tokens::check(state, token, &[ISSUER], state.now()).map(|(identity, _)| identity)
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

/// What the `Impersonate-*` headers ask for.
#[derive(Default)]
struct Impersonation<'a> {
    user: Option<&'a str>,
    uid: Option<&'a str>,
    groups: Vec<&'a str>,
    extra: BTreeMap<String, Vec<String>>,
}

impl<'a> Impersonation<'a> {
    /// `None` if nothing is asked for. Whatever cannot be read, or cannot be meant, is refused: a request that is made as less
    /// than it says, or as more, is a trap.
    fn of(headers: &'a HeaderMap) -> Result<Option<Self>, Status> {
        let mut asked = Self::default();
        let mut any = false;
        for (name, value) in headers {
            let Some(what) = name.as_str().strip_prefix("impersonate-") else { continue };
            any = true;
            let wrong = |text: &str| Status::bad_request(format!("header {name}: {text}"));
            let value = value.to_str().map_err(|_| wrong("only printable ASCII characters are understood"))?;
            let once = |slot: &mut Option<&'a str>| match slot.replace(value) {
                Some(_) => Err(wrong("may be given only once")),
                None => Ok(()),
            };
            match what {
                "user" => once(&mut asked.user)?,
                "uid" => once(&mut asked.uid)?,
                "group" => asked.groups.push(value),
                _ => match what.strip_prefix("extra-") {
                    Some(key) => asked.extra.entry(query::decode(key, false)).or_default().push(value.to_owned()),
                    None => return Err(wrong("is not known")),
                },
            }
        }
        Ok(any.then_some(asked))
    }
}

/// Namespace and name of the service account that acts as `user`.
fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

fn impersonate(state: &State, identity: Identity, headers: &HeaderMap) -> Result<Identity, Status> {
    let Some(asked) = Impersonation::of(headers)? else { return Ok(identity) };
    let Some(user) = asked.user.filter(|user| !user.is_empty()) else {
        return Err(Status::bad_request("requested groups without impersonating a user"));
    };
    let may = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let target = Target::Resource { group, resource, subresource, namespace, name };
        authorize(state, &identity, &Attributes { verb: "impersonate", target })
    };
    let account = account_of(user);
    match account {
        Some((namespace, name)) => may("", "serviceaccounts", "", namespace, name)?,
        None => may("", "users", "", "", user)?,
    }
    for group in &asked.groups {
        may("", "groups", "", "", group)?;
    }
    for (key, value) in asked.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value))) {
        may("authentication.k8s.io", "userextras", key, "", value)?;
    }
    let uid = asked.uid.unwrap_or_default();
    if !uid.is_empty() {
        may("authentication.k8s.io", "uids", "", "", uid)?;
    }
    let groups = groups_of(user, account, &asked.groups);
    Ok(Identity { user: user.to_owned(), groups, uid: uid.to_owned(), extra: asked.extra })
}

/// The groups of an impersonated user: those that were asked for, else those that an account has; and whether it is known who
/// that is.
fn groups_of(user: &str, account: Option<(&str, &str)>, asked: &[&str]) -> Vec<String> {
    let mut groups: Vec<String> = asked.iter().map(ToString::to_string).collect();
    if let Some((namespace, _)) = account.filter(|_| asked.is_empty()) {
        groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    let is_in = |group: &str| groups.iter().any(|own| own == group);
    let added = match (user == "system:anonymous", is_in(known), is_in(unknown)) {
        (_, _, true) | (false, true, false) => None,
        (true, _, false) => Some(unknown),
        (false, false, false) => Some(known),
    };
    groups.extend(added.map(ToOwned::to_owned));
    groups
}
