//! From a request to the user it acts as.

use api::Status;
use http::header::{self, HeaderMap};
use http::request::Parts;

use crate::identity::Identity;

/// The caller: what the connection or the process put into the request's extensions, else nobody in particular.
/// `Impersonate-*` headers are honoured for those who may do everything anyway, and never ignored.
pub(crate) fn authenticate(parts: &mut Parts) -> Result<Identity, Status> {
    let identity = match parts.extensions.remove::<Identity>() {
        Some(identity) => identity,
        // A credential we cannot check is a bad one; treating its bearer as anonymous would hide that.
        None if parts.headers.contains_key(header::AUTHORIZATION) => return Err(Status::unauthorized()),
        None => Identity::anonymous(),
    };
    impersonate(identity, &parts.headers)
}

fn impersonate(identity: Identity, headers: &HeaderMap) -> Result<Identity, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(identity);
    }
    let user = headers.get("impersonate-user").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !identity.is_in("system:masters") {
        let message = format!(
            "users {user:?} is forbidden: User {:?} cannot impersonate resource \"users\" in API group \"\" at the \
             cluster scope",
            identity.user
        );
        return Err(Status::new(403, "Forbidden", message));
    }
    if user.is_empty() {
        return Err(Status::bad_request("requested groups without impersonating a user"));
    }
    let groups: Vec<&str> =
        headers.get_all("impersonate-group").iter().filter_map(|value| value.to_str().ok()).collect();
    Ok(Identity::new(user, &groups))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn asked(identity: Option<Identity>, headers: &[(&'static str, &str)]) -> Result<Identity, Status> {
        let mut request = http::Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        if let Some(identity) = identity {
            request.extensions_mut().insert(identity);
        }
        authenticate(&mut request.into_parts().0)
    }

    #[test]
    fn no_header_makes_an_identity() {
        assert_eq!(asked(None, &[("x-remote-user", "admin")]).unwrap(), Identity::anonymous());
        assert_eq!(asked(None, &[("authorization", "Bearer abc")]).unwrap_err().code, 401);
        assert_eq!(asked(None, &[("impersonate-user", "system:admin")]).unwrap_err().code, 403);
        let node = Identity::node("n");
        assert_eq!(asked(Some(node), &[("impersonate-user", "kubernetes-admin")]).unwrap_err().code, 403);
    }

    #[test]
    fn the_administrator_may_act_as_somebody_else() {
        let bob = asked(Some(Identity::admin()), &[("impersonate-user", "bob"), ("impersonate-group", "dev")]).unwrap();
        assert_eq!(bob, Identity::new("bob", &["dev"]));
    }
}
