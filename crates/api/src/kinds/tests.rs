//! Tests of the registry and of the built-in table.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_row_is_reachable_by_path_and_by_kind_and_owns_its_collection() {
    let registry = Registry::built_in();
    let mut collections = BTreeSet::new();
    for kind in registry.kinds() {
        assert_eq!(registry.find(&kind.group, &kind.version, &kind.plural), Some(kind));
        assert_eq!(registry.by_kind(&kind.group, &kind.version, &kind.kind), Some(kind));
        assert!(!kind.collection.is_empty());
        assert!(kind.face.is_some() || collections.insert(kind.collection()), "{kind:?}");
        assert_eq!(kind.stored_kind().collection, kind.collection);
        assert_eq!(registry.by_collection(kind.collection()), Some(kind.stored_kind()));
    }
    assert!(registry.find("", "v1", "podz").is_none());
}

#[test]
fn kind_names_are_built_as_the_api_spells_them() {
    let lease = built_in("coordination.k8s.io", "v1", "leases").unwrap();
    assert_eq!(lease.api_version(), "coordination.k8s.io/v1");
    assert_eq!(lease.list_kind(), "LeaseList");
    assert_eq!(lease.collection(), "leases.coordination.k8s.io");
    let pods = built_in("", "v1", "pods").unwrap();
    assert_eq!(pods.api_version(), "v1");
    assert_eq!(pods.subresource("eviction").map(|s| &*s.group), Some("policy"));
}

fn widget() -> CustomKind {
    CustomKind {
        names: Names {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Widget".into(),
            plural: "widgets".into(),
            singular: "widget".into(),
            short_names: vec!["wd".into()],
            categories: vec!["all".into()],
        },
        namespaced: true,
        has_status: true,
    }
}

#[test]
fn registry_with_an_added_kind_leaves_the_one_before_as_it_was() {
    let before = Arc::clone(Registry::built_in());
    let with = before.with(widget().into_kind().unwrap()).unwrap();
    let found = with.find("example.com", "v1", "widgets").unwrap();
    assert!(found.is_added() && !found.has_protobuf());
    assert_eq!(found.collection(), "widgets.example.com");
    assert_eq!(with.by_kind("example.com", "v1", "Widget"), Some(found));
    assert_eq!(with.by_collection("widgets.example.com"), Some(found));
    assert_eq!(with.by_short_name("wd").map(|kind| kind.kind.as_str()).collect::<Vec<_>>(), ["Widget"]);
    assert!(with.in_category("all").any(|kind| kind == found));
    assert!(before.find("example.com", "v1", "widgets").is_none());
    assert_ne!(with.generation(), before.generation());

    let (without, gone) = with.without("example.com", "widgets").unwrap();
    assert_eq!(gone, *found);
    assert!(without.find("example.com", "v1", "widgets").is_none());
    assert!(without.by_short_name("wd").next().is_none());
    assert_ne!(without.generation(), with.generation());
    assert_ne!(without.generation(), before.generation());
}

#[test]
fn registry_refuses_names_that_are_taken_in_the_group() {
    let with = Registry::built_in().with(widget().into_kind().unwrap()).unwrap();
    let refused = |change: fn(&mut Names)| {
        let mut other = widget();
        other.names.kind = "Gadget".into();
        other.names.plural = "gadgets".into();
        other.names.singular = "gadget".into();
        other.names.short_names = vec!["gd".into()];
        change(&mut other.names);
        match with.with(other.into_kind().unwrap()) {
            Ok(_) => Ok(()),
            Err(RefusedKind::NameTaken { word, .. }) => Err(word),
            Err(RefusedKind::Full) => Err(String::new()),
        }
    };
    assert_eq!(refused(|_| ()), Ok(()));
    assert_eq!(refused(|names| names.plural = "widgets".into()), Err("widgets".into()));
    assert_eq!(refused(|names| names.singular = "wd".into()), Err("wd".into()));
    assert_eq!(refused(|names| names.short_names = vec!["widget".into()]), Err("widget".into()));
    assert_eq!(refused(|names| names.kind = "Widget".into()), Err("Widget".into()));
    assert_eq!(refused(|names| names.kind = "WidgetList".into()), Err("WidgetList".into()));
    assert_eq!(refused(|names| names.group = "other.example.com".into()), Ok(()));
    assert_eq!(refused(|names| names.group = "coordination.k8s.io".into()), Err("coordination.k8s.io".into()));
    assert_eq!(refused(|names| names.group = "metrics.k8s.io".into()), Err("metrics.k8s.io".into()));
}

#[test]
fn built_in_kinds_cannot_be_removed() {
    assert!(Registry::built_in().without("", "pods").is_none());
    assert!(Registry::built_in().without("example.com", "widgets").is_none());
}

#[test]
fn custom_kind_with_a_malformed_name_is_refused() {
    let refused = |change: fn(&mut Names)| {
        let mut custom = widget();
        change(&mut custom.names);
        custom.into_kind().map_err(|error| error.field).err()
    };
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|names| names.group = String::new()), Some("group"));
    assert_eq!(refused(|names| names.group = "nodots".into()), Some("group"));
    assert_eq!(refused(|names| names.group = "x.\"y".into()), Some("group"));
    assert_eq!(refused(|names| names.version = "V1".into()), Some("version"));
    assert_eq!(refused(|names| names.kind = "wid\"get".into()), Some("kind"));
    assert_eq!(refused(|names| names.kind = "x".repeat(64)), Some("kind"));
    assert_eq!(refused(|names| names.plural = "Widgets".into()), Some("plural"));
    assert_eq!(refused(|names| names.plural = "namespaces/x".into()), Some("plural"));
    assert_eq!(refused(|names| names.singular = String::new()), Some("singular"));
    assert_eq!(refused(|names| names.short_names = vec!["a b".into()]), Some("short_names"));
    assert_eq!(refused(|names| names.short_names = vec!["a".into(); 33]), Some("short_names"));
    assert_eq!(refused(|names| names.categories = vec!["A".into()]), Some("categories"));
}
