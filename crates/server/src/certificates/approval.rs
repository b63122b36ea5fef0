//! Which requests need nobody to approve them: those of nodes, for themselves.
//!
//! | asked for | approved if |
//! |---|---|
//! | the client certificate of a node, by that node | it may create `certificatesigningrequests/selfnodeclient` |
//! | the same, by somebody else | they may create `certificatesigningrequests/nodeclient`, and no such node is there: a token that leaks cannot become an existing node |
//! | a node's serving certificate, by that node | every name is one of its Node object, and it asks from one of those addresses |

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::signing_request::{NODE_CLIENT, NODE_SERVING, SigningRequest};
use super::{GROUP, REQUESTED_FROM};
use crate::authorize::{Attributes, Target, decide};
use crate::identity::Identity;
use crate::request::key;
use crate::state::{State, core_kind};

/// Why the request `object` is approved without anybody being asked; `None` if somebody has to be.
pub(super) fn approved(state: &State, object: &Value, asked: &SigningRequest) -> Option<&'static str> {
    let spec = &object["spec"];
    let signer = spec["signerName"].as_str()?;
    let usages: Vec<&str> = spec["usages"].as_array()?.iter().filter_map(Value::as_str).collect();
    let node = asked.node()?;
    if asked.complaint(signer, &usages).is_some() {
        return None;
    }
    let requestor = requestor(spec)?;
    let is_itself = requestor.user == asked.common_name;
    let stored = || state.store.get(&key(core_kind("nodes"), "", node)).map(|node| node.value());
    match signer {
        NODE_CLIENT if is_itself => may_ask(state, &requestor, "selfnodeclient")
            .then_some("Auto approving self kubelet client certificate after SubjectAccessReview."),
        NODE_CLIENT => (stored().is_none() && may_ask(state, &requestor, "nodeclient"))
            .then_some("Auto approving kubelet client certificate after SubjectAccessReview."),
        NODE_SERVING if is_itself && requestor.is_in("system:nodes") => {
            let stored = stored()?;
            let own = own_names(node, &stored);
            let from = object["metadata"]["annotations"][REQUESTED_FROM].as_str()?;
            let names = asked.dns_names.iter().cloned();
            let all = names.chain(asked.addresses.iter().map(ToString::to_string)).chain([from.to_owned()]);
            all.into_iter()
                .all(|name| own.contains(name.as_str()))
                .then_some("Approved: the node asks from its own address, for names of its own.")
        }
        _ => None,
    }
}

/// What the Node object says that the node is called.
fn own_names<'a>(node: &'a str, stored: &'a Value) -> BTreeSet<&'a str> {
    let addresses = stored["status"]["addresses"].as_array().into_iter().flatten();
    addresses.filter_map(|address| address["address"].as_str()).chain([node]).collect()
}

/// Who asked, as the server wrote it into the request.
fn requestor(spec: &Value) -> Option<Identity> {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let extra: BTreeMap<String, Vec<String>> =
        spec["extra"].as_object().into_iter().flatten().map(|(key, value)| (key.clone(), words(value))).collect();
    Some(Identity {
        user: spec["username"].as_str()?.to_owned(),
        groups: words(&spec["groups"]),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        extra,
    })
}

fn may_ask(state: &State, requestor: &Identity, subresource: &str) -> bool {
    let resource = "certificatesigningrequests";
    let target = Target::Resource { group: GROUP, resource, subresource, namespace: "", name: "" };
    decide(state, requestor, &Attributes { verb: "create", target }).allowed
}
