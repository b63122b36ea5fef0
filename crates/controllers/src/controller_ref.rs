//! Which objects a controller owns: it keeps its own, adopts those that nobody has, and releases those that it no longer selects.
//!
//! [`claim`] decides, from metadata alone. The patches name the UID of the object that is meant; whoever adopts has looked at its own
//! object a moment before ([`is_current`]), because one that is being deleted must not take in anybody.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::feed::revision;

/// An object that owns others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
}

impl Owner {
    /// The owner that `metadata` tells of.
    pub(crate) fn new(api_version: &'static str, kind: &'static str, metadata: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let ObjectMeta { namespace, name, uid, .. } = metadata;
        Self { api_version, kind, namespace: text(namespace), name: text(name), uid: text(uid) }
    }

    /// How what it owns refers to it.
    pub(crate) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_owned(),
            kind: self.kind.to_owned(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// How events refer to it.
    pub(crate) fn object_reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.to_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: Some(self.namespace.to_string()),
            name: Some(self.name.to_string()),
            uid: Some(self.uid.to_string()),
            ..ObjectReference::default()
        }
    }
}

/// The one owner that controls an object, if any does.
pub(crate) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// What a controller has to do with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// Nothing.
    Ignore,
    /// It is its own, and stays so.
    Keep,
    /// Nobody's, and wanted.
    Adopt,
    /// It is its own, and no longer selected.
    Release,
}

/// What is known of an object that may be claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The UID of its controller.
    pub(crate) controller: Option<&'a str>,
    /// It is being deleted.
    pub(crate) leaves: bool,
    /// The claimant's selector takes it, and whatever else it asks for is so.
    pub(crate) matches: bool,
}

/// What the owner with this UID, which itself `leaves` or not, has to do with an object.
pub(crate) fn claim(owner: &str, leaves: bool, object: Candidate<'_>) -> Claim {
    match object.controller {
        Some(uid) if uid != owner => Claim::Ignore,
        Some(_) if object.matches => Claim::Keep,
        Some(_) if leaves => Claim::Ignore,
        Some(_) => Claim::Release,
        None if object.matches && !leaves && !object.leaves => Claim::Adopt,
        None => Claim::Ignore,
    }
}

/// Whether the owner is there under its UID and is not being deleted, asked of the server: what was heard may be old.
pub(crate) async fn is_current(client: &kube::Client, owner: &Owner) -> kube::Result<bool> {
    let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", owner.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, owner.kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &owner.namespace, &resource);
    let found = api.get_metadata_opt(&owner.name).await?;
    Ok(found.is_some_and(|it| it.uid().as_deref() == Some(&*owner.uid) && it.metadata.deletion_timestamp.is_none()))
}

/// Adopts one object; `finalizer`, if there is one, keeps it until its owner has counted it. Answers the revision of the write, or
/// nothing if the object is gone. Somebody else who was faster is an error (422): look again.
pub(crate) async fn adopt<K: Clone + DeserializeOwned + Debug + kube::Resource>(
    api: &Api<K>,
    (name, uid): (&str, &str),
    owner: &Owner,
    finalizer: Option<&str>,
) -> kube::Result<Option<u64>> {
    let mut metadata = json!({ "uid": uid, "ownerReferences": [owner.reference()] });
    if let Some(finalizer) = finalizer {
        metadata["finalizers"] = json!([finalizer]);
    }
    patch(api, name, metadata, &[404, 409]).await
}

/// Releases one object, and takes back the `finalizer` if there is one. Answers the revision of the write, or nothing if there is
/// nothing left to release.
pub(crate) async fn release<K: Clone + DeserializeOwned + Debug + kube::Resource>(
    api: &Api<K>,
    (name, uid): (&str, &str),
    owner: &Owner,
    finalizer: Option<&str>,
) -> kube::Result<Option<u64>> {
    let gone = json!({ "$patch": "delete", "uid": &*owner.uid });
    let mut metadata = json!({ "uid": uid, "ownerReferences": [gone] });
    if let Some(finalizer) = finalizer {
        metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    patch(api, name, metadata, &[404, 409, 422]).await
}

/// Takes back the `finalizer` of one object, of this version if it names one: another is a conflict. Answers the revision of the
/// write, or nothing if the object is gone.
pub(crate) async fn remove_finalizer<K: Clone + DeserializeOwned + Debug + kube::Resource>(
    api: &Api<K>,
    (name, uid): (&str, &str),
    version: Option<&str>,
    finalizer: &str,
) -> kube::Result<Option<u64>> {
    let mut metadata = json!({ "uid": uid, "$deleteFromPrimitiveList/finalizers": [finalizer] });
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
        return patch(api, name, metadata, &[404, 422]).await;
    }
    patch(api, name, metadata, &[404, 409, 422]).await
}

/// Writes metadata; the answers `fine` mean that there is nothing to be done.
async fn patch<K: Clone + DeserializeOwned + Debug + kube::Resource>(
    api: &Api<K>,
    name: &str,
    metadata: Value,
    fine: &[u16],
) -> kube::Result<Option<u64>> {
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    match api.patch_metadata(name, &PatchParams::default(), &patch).await {
        Ok(written) => Ok(revision(written.resource_version())),
        Err(kube::Error::Api(status)) if fine.contains(&status.code) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [WL-13] Every combination of what can be known.
    #[test]
    fn claim_keeps_adopts_and_releases_as_ownership_demands() {
        let object = |controller, leaves, matches| Candidate { controller, leaves, matches };
        for leaves in [false, true] {
            for other in [object(Some("o"), leaves, true), object(Some("o"), leaves, false)] {
                assert_eq!(claim("me", false, other), Claim::Ignore);
            }
            assert_eq!(claim("me", leaves, object(Some("me"), false, true)), Claim::Keep, "even while it is deleted");
            assert_eq!(claim("me", leaves, object(Some("me"), true, true)), Claim::Keep);
            assert_eq!(claim("me", false, object(Some("me"), leaves, false)), Claim::Release);
            assert_eq!(claim("me", true, object(Some("me"), leaves, false)), Claim::Ignore);
            assert_eq!(claim("me", leaves, object(None, true, true)), Claim::Ignore, "who leaves is not adopted");
            assert_eq!(claim("me", leaves, object(None, false, false)), Claim::Ignore);
        }
        assert_eq!(claim("me", false, object(None, false, true)), Claim::Adopt);
        assert_eq!(claim("me", true, object(None, false, true)), Claim::Ignore);
    }
}
