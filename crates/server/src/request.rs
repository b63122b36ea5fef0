//! A request, understood: which verb on which kind, object and subresource.
//!
//! Parsing has two halves. [`Address`] is what the path says, as words: enough to ask the authoriser. [`Request`] is the
//! same resolved against the table of kinds, with everything a handler needs.

use std::net::IpAddr;
use std::sync::Arc;

use api::{Kind, Registry, Status};
use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header, request::Parts};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::authorize::{Attributes, Target};
use crate::identity::Identity;
use crate::negotiate::{Accept, Form, Media};
use crate::proxy::Peer;
use crate::query::{self, Query};

/// What is to be done, in the words of authorisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// What a path names.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// Discovery, health, version and whatever else is not an object.
    Path(String),
    /// Objects.
    Resource(ResourceAddress),
}

/// A path below `/api/v1` or `/apis/GROUP/VERSION`, in words.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct ResourceAddress {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Whether more follows that no subresource of ours explains.
    pub(crate) deeper: bool,
    /// Whether the path itself says that this is a watch, as it did before there was a parameter for it.
    watched: bool,
}

impl Address {
    pub(crate) fn parse(path: &str) -> Self {
        let other = || Self::Path(path.to_owned());
        let segments: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(|part| query::decode(part, false)).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return other(),
        };
        let (watched, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, rest),
        };
        // `namespaces/NAME/status` is the namespace's own; anything else below a namespace lives in it.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, resource, ..]
                if !(group.is_empty() && matches!(*resource, "status" | "finalize")) =>
            {
                (*namespace, &rest[2..])
            }
            _ => ("", rest),
        };
        let word = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        Self::Resource(ResourceAddress {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            resource: word(0),
            name: word(1),
            subresource: word(2),
            deeper: rest.len() > 3,
            watched,
        })
    }

    /// What a request names, and what it says besides. A watch that its path asks for is one that its parameters ask
    /// for, of one object if it names one.
    pub(crate) fn of(uri: &Uri) -> (Self, Query) {
        let (mut address, mut query) = (Self::parse(uri.path()), Query::parse(uri.query()));
        if let Self::Resource(resource) = &mut address
            && resource.watched
        {
            query.put("watch", "true".to_owned());
            let name = std::mem::take(&mut resource.name);
            if !name.is_empty() {
                let own = query.get("fieldSelector").map(|own| format!(",{own}")).unwrap_or_default();
                query.put("fieldSelector", format!("metadata.name={name}{own}"));
            }
        }
        (address, query)
    }
}

impl ResourceAddress {
    /// The verb, or 405 for a method that means nothing here.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> Result<Verb, Status> {
        // Streams are opened by GET (WebSocket) or POST (SPDY); both are a `create` of something that runs.
        if matches!(self.subresource.as_str(), "exec" | "attach" | "portforward") {
            return match *method {
                Method::GET | Method::POST => Ok(Verb::Create),
                _ => Err(Status::method_not_allowed()),
            };
        }
        match (method, self.name.is_empty()) {
            (method, _) if self.watched && *method != Method::GET => Err(Status::method_not_allowed()),
            (&Method::GET, false) => Ok(Verb::Get),
            (&Method::GET, true) if query.flag("watch") => Ok(Verb::Watch),
            (&Method::GET, true) => Ok(Verb::List),
            (&Method::POST, _) => Ok(Verb::Create),
            (&Method::PUT, false) => Ok(Verb::Update),
            (&Method::PATCH, false) => Ok(Verb::Patch),
            (&Method::DELETE, false) => Ok(Verb::Delete),
            (&Method::DELETE, true) => Ok(Verb::DeleteCollection),
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// What the authoriser is asked. `selected` is the one name that a list or watch selects, if it does.
    pub(crate) fn attributes<'a>(&'a self, verb: Verb, selected: &'a str) -> Attributes<'a> {
        // A namespace is judged as if it lived in itself, as upstream does.
        let namespace = match self.resource.as_str() {
            "namespaces" if self.group.is_empty() => &self.name,
            _ => &self.namespace,
        };
        Attributes {
            verb: verb.as_str(),
            target: Target::Resource {
                group: &self.group,
                resource: &self.resource,
                subresource: &self.subresource,
                namespace,
                // Only where the selection also limits what is done.
                name: match verb {
                    Verb::List | Verb::Watch | Verb::DeleteCollection => selected,
                    Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => &self.name,
                },
            },
        }
    }

    /// The kind that this names.
    pub(crate) fn kind<'a>(&self, registry: &'a Registry) -> Option<&'a Arc<Kind>> {
        registry.find(&self.group, &self.version, &self.resource)
    }

    /// The same for `verb`. 404 when there is none, or no such subresource, 405 when it cannot do that.
    pub(crate) fn resolve<'a>(&self, registry: &'a Registry, verb: Verb) -> Result<&'a Arc<Kind>, Status> {
        let kind = self.kind(registry).ok_or_else(Status::no_such_path)?;
        if self.deeper || (!kind.namespaced && !self.namespace.is_empty()) {
            return Err(Status::no_such_path());
        }
        let across_namespaces = kind.namespaced && self.namespace.is_empty();
        if across_namespaces && !self.name.is_empty() {
            return Err(Status::no_such_path());
        }
        if across_namespaces && !matches!(verb, Verb::List | Verb::Watch) {
            return Err(Status::method_not_allowed());
        }
        let verbs = match self.subresource.as_str() {
            "" => kind.verbs,
            name => kind.subresource(name).ok_or_else(Status::no_such_path)?.verbs,
        };
        let on_an_object = self.subresource.is_empty() && verb == Verb::Create && !self.name.is_empty();
        if on_an_object || !verbs.contains(&verb.as_str()) {
            return Err(Status::method_not_allowed());
        }
        Ok(kind)
    }
}

/// Longest name of a writer.
const MANAGER_MAX: usize = 128;

/// Everything a handler needs to know.
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) kind: Arc<Kind>,
    /// When it came.
    pub(crate) now: Timestamp,
    /// Empty: cluster-scoped, or all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    pub(crate) query: Query,
    pub(crate) accept: Accept,
    pub(crate) pretty: bool,
    pub(crate) content_type: Option<String>,
    pub(crate) user_agent: String,
    pub(crate) identity: Identity,
    /// Where it came from, if it came over the network.
    pub(crate) peer: Option<IpAddr>,
    /// Ends long answers when the connection's server stops.
    pub(crate) stopping: CancellationToken,
    pub(crate) body: Bytes,
}

/// A token in a request's extensions: cancelled when whoever brought the request stops serving.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(pub(crate) CancellationToken);

impl Request {
    pub(crate) fn new(
        parts: &Parts,
        (registry, now): (&Registry, Timestamp),
        address: ResourceAddress,
        verb: Verb,
        query: Query,
        identity: Identity,
        body: Bytes,
    ) -> Result<Self, Status> {
        let kind = Arc::clone(address.resolve(registry, verb)?);
        let accept = Accept::parse(&parts.headers);
        if accept.media() == Media::Protobuf && !kind.has_protobuf() && accept.for_objects()? == Form::Object {
            return Err(Status::not_acceptable());
        }
        let user_agent = text(&parts.headers, header::USER_AGENT).unwrap_or_default();
        Ok(Self {
            verb,
            kind,
            now,
            namespace: address.namespace,
            name: address.name,
            subresource: address.subresource,
            accept,
            pretty: wants_pretty(&query, &user_agent),
            query,
            content_type: text(&parts.headers, header::CONTENT_TYPE),
            user_agent,
            identity,
            peer: parts.extensions.get::<Peer>().map(|peer| peer.0),
            stopping: parts.extensions.get::<Stopping>().map(|s| s.0.clone()).unwrap_or_default(),
            body,
        })
    }

    /// Where the object lives in the store.
    pub(crate) fn key(&self) -> store::Key {
        key(&self.kind, &self.namespace, &self.name)
    }

    pub(crate) fn subresource_name(&self) -> Option<&str> {
        Some(self.subresource.as_str()).filter(|name| !name.is_empty())
    }

    /// `dryRun=All`; any other value is refused.
    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        let values: Vec<&str> = self.query.all("dryRun").filter(|value| !value.is_empty()).collect();
        match values.iter().find(|value| **value != "All") {
            None => Ok(!values.is_empty()),
            Some(other) => Err(Status::invalid_of(
                "CreateOptions",
                "meta.k8s.io",
                "",
                vec![api::Cause::not_supported("dryRun", *other, &["All"])],
            )),
        }
    }

    pub(crate) fn field_validation(&self) -> Result<api::FieldValidation, Status> {
        api::FieldValidation::parse(self.query.get("fieldValidation"))
    }

    /// A name of a writer is short and can be read.
    pub(crate) fn check_field_manager(&self) -> Result<(), Status> {
        let Some(name) = self.query.get("fieldManager") else { return Ok(()) };
        let options = match self.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Get | Verb::List | Verb::Watch | Verb::Delete | Verb::DeleteCollection => return Ok(()),
        };
        let mut causes = Vec::new();
        if name.len() > MANAGER_MAX {
            causes.push(api::Cause::too_long("fieldManager", MANAGER_MAX));
        }
        if let Some((at, odd)) = name.char_indices().find(|(_, c)| c.is_control()) {
            let text = format!("invalid character {:?} (at position {at})", odd);
            causes.push(api::Cause::invalid("fieldManager", name, &text));
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_of(options, "meta.k8s.io", "", causes)) }
    }

    /// Who is recorded as the writer: the parameter, else the program's own name.
    pub(crate) fn field_manager(&self) -> &str {
        let named = self.query.get("fieldManager");
        named.unwrap_or_else(|| {
            let name = self.user_agent.split('/').next().unwrap_or_default();
            if name.is_empty() { "unknown" } else { name.get(..MANAGER_MAX).unwrap_or(name) }
        })
    }
}

/// Where an object lives in the store.
pub(crate) fn key(kind: &Kind, namespace: &str, name: &str) -> store::Key {
    store::Key { collection: kind.shared_collection(), namespace: namespace.into(), name: name.into() }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned)
}

/// People with curl and browsers like lines; programs do not care.
fn wants_pretty(query: &Query, user_agent: &str) -> bool {
    match query.get("pretty") {
        Some(_) => query.flag("pretty"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|agent| user_agent.starts_with(agent)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn resource(path: &str) -> ResourceAddress {
        match Address::parse(path) {
            Address::Resource(address) => address,
            Address::Path(path) => panic!("{path} is not a resource"),
        }
    }

    fn words(path: &str) -> [String; 5] {
        let a = resource(path);
        [a.group, a.namespace, a.resource, a.name, a.subresource]
    }

    #[test]
    fn paths_name_what_upstream_says_they_name() {
        assert_eq!(words("/api/v1/pods"), ["", "", "pods", "", ""]);
        assert_eq!(words("/api/v1/namespaces/a/pods/p/log"), ["", "a", "pods", "p", "log"]);
        assert_eq!(words("/api/v1/namespaces/a"), ["", "", "namespaces", "a", ""]);
        assert_eq!(words("/api/v1/namespaces/a/status"), ["", "", "namespaces", "a", "status"]);
        assert_eq!(words("/api/v1/namespaces/a/finalize"), ["", "", "namespaces", "a", "finalize"]);
        assert_eq!(
            words("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n"),
            ["coordination.k8s.io", "kube-node-lease", "leases", "n", ""]
        );
        for path in ["/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/healthz", "/openapi/v3/api/v1"] {
            assert_eq!(Address::parse(path), Address::Path(path.to_owned()));
        }
    }

    #[test]
    fn an_old_path_of_a_watch_is_a_watch() {
        for (uri, resource, namespace, selected) in [
            ("/api/v1/watch/pods", "pods", "", None),
            ("/api/v1/watch/namespaces/a/pods", "pods", "a", None),
            ("/api/v1/watch/namespaces/a/pods/p?fieldSelector=x=y", "pods", "a", Some("metadata.name=p,x=y")),
            ("/api/v1/watch/namespaces/a", "namespaces", "", Some("metadata.name=a")),
            ("/apis/apps/v1/watch/namespaces/a/deployments/d", "deployments", "a", Some("metadata.name=d")),
        ] {
            let (address, query) = Address::of(&uri.parse().unwrap());
            let Address::Resource(address) = address else { panic!("{uri} is not a resource") };
            assert_eq!((address.resource.as_str(), address.namespace.as_str()), (resource, namespace), "{uri}");
            assert_eq!(address.verb(&Method::GET, &query).unwrap(), Verb::Watch, "{uri}");
            assert_eq!(query.get("fieldSelector"), selected, "{uri}");
            assert_eq!(address.verb(&Method::DELETE, &query).unwrap_err().code, 405);
        }
    }

    #[test]
    fn a_method_and_a_path_make_a_verb() {
        let none = Query::default();
        let watch = Query::parse(Some("watch=1"));
        let pods = resource("/api/v1/namespaces/a/pods");
        assert_eq!(pods.verb(&Method::GET, &none).unwrap(), Verb::List);
        assert_eq!(pods.verb(&Method::GET, &watch).unwrap(), Verb::Watch);
        assert_eq!(pods.verb(&Method::DELETE, &none).unwrap(), Verb::DeleteCollection);
        let exec = resource("/api/v1/namespaces/a/pods/p/exec");
        assert_eq!(exec.verb(&Method::GET, &none).unwrap(), Verb::Create);
        assert_eq!(pods.verb(&Method::PUT, &none).unwrap_err().code, 405);
    }

    #[test]
    fn unknown_resource_is_404_and_unsupported_verb_is_405() {
        let code = |path: &str, verb| {
            resource(path).resolve(Registry::built_in(), verb).map(|_| ()).map_err(|status| status.code)
        };
        assert_eq!(code("/api/v1/namespaces/a/pods", Verb::List), Ok(()));
        assert_eq!(code("/api/v1/widgets", Verb::List), Err(404));
        assert_eq!(code("/api/v1/namespaces/a/nodes", Verb::List), Err(404));
        assert_eq!(code("/api/v1/pods/p", Verb::Get), Err(404));
        assert_eq!(code("/api/v1/namespaces/a/pods/p/nope", Verb::Get), Err(404));
        // [AD-50]
        assert_eq!(code("/api/v1/pods", Verb::DeleteCollection), Err(405));
        assert_eq!(code("/api/v1/pods", Verb::Create), Err(405));
        assert_eq!(code("/api/v1/namespaces", Verb::DeleteCollection), Err(405));
        assert_eq!(code("/api/v1/namespaces/a/pods/p", Verb::Create), Err(405));
    }
}
