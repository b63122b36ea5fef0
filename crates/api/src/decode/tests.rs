//! Bodies as clients send them.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::built_in;
use crate::deletion::Propagation;

fn pods() -> &'static Kind {
    built_in("", "v1", "pods").unwrap()
}

fn decode(body: &str, validation: FieldValidation) -> Result<Decoded, Status> {
    decode_object(pods(), None, body.as_bytes(), validation)
}

const TYPO: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","foo":1},
    "spec":{"contaners":[],"containers":[{"name":"a","image":"x","image":"y"}]}}"#;

#[test]
fn kind_and_version_are_checked_and_taken_out() {
    let decoded =
        decode(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}"#, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"name": "p"}}));
    assert_eq!(decode(r#"{"metadata":{"name":"p"}}"#, FieldValidation::Strict).unwrap(), decoded);
    for (body, message) in [
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap"}"#,
            r#"ConfigMap in version "v1" cannot be handled as a Pod: converting (v1.ConfigMap) to (core.Pod): unknown conversion"#,
        ),
        (
            r#"{"apiVersion":"v2","kind":"Pod"}"#,
            r#"Pod in version "v2" cannot be handled as a Pod: the API version in the data (v2) does not match the expected API version (v1)"#,
        ),
    ] {
        let error = decode(body, FieldValidation::Warn).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, message));
    }
}

#[test]
fn unknown_and_duplicate_fields_are_dropped_reported_or_refused() {
    let ignored = decode(TYPO, FieldValidation::Ignore).unwrap();
    assert!(ignored.warnings.is_empty());
    assert_eq!(
        ignored.value,
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "y"}]}})
    );
    let warned = decode(TYPO, FieldValidation::Warn).unwrap();
    assert_eq!(
        warned.warnings,
        [
            r#"unknown field "metadata.foo""#,
            r#"unknown field "spec.contaners""#,
            r#"duplicate field "spec.containers[0].image""#
        ]
    );
    assert_eq!(warned.value, ignored.value);
    let refused = decode(TYPO, FieldValidation::Strict).unwrap_err();
    assert_eq!(refused.code, 400);
    assert_eq!(
        refused.message,
        r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "metadata.foo", unknown field "spec.contaners", duplicate field "spec.containers[0].image""#
    );
}

#[test]
fn nulls_and_empty_values_are_neither_unknown_nor_stored() {
    let body = json!({
        "metadata": {"name": "p", "creationTimestamp": null, "labels": {}, "annotations": null, "finalizers": []},
        "spec": {"containers": [{"name": "a", "image": "x", "command": [], "resources": {}, "tty": false}],
                 "volumes": [{"name": "v", "emptyDir": {}}], "hostNetwork": false, "nodeName": "",
                 "terminationGracePeriodSeconds": 0},
        "status": {},
    });
    let decoded = decode(&body.to_string(), FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.value,
        json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a", "image": "x", "resources": {}}],
                     "volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 0},
            "status": {},
        })
    );
}

#[test]
fn zeros_that_upstream_writes_survive() {
    let status = json!({"containerStatuses": [{
        "name": "a", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    }]});
    let body = json!({"metadata": {"name": "p"}, "status": status});
    assert_eq!(decode(&body.to_string(), FieldValidation::Strict).unwrap().value["status"], status);
}

#[test]
fn times_and_quantities_get_their_one_spelling() {
    let body = json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-11-15T19:00:44.5+01:00"},
        "spec": {"containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": 1, "memory": "2048Mi"}}}]},
    });
    let value = decode(&body.to_string(), FieldValidation::Strict).unwrap().value;
    assert_eq!(value["metadata"]["creationTimestamp"], "2026-11-15T18:00:44Z");
    assert_eq!(value["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "1", "memory": "2Gi"}));
    let bad = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "lots"}}}]}});
    let error = decode(&bad.to_string(), FieldValidation::Ignore).unwrap_err();
    assert!(error.message.contains("spec.containers[0].resources.limits.cpu: quantities must match"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    for (body, expected) in [
        (
            r#"{"spec":{"containers":[{"name":"a","image":5}]}}"#,
            "cannot unmarshal number into Go struct field Container.spec.containers[0].image of type string",
        ),
        (
            r#"{"spec":{"containers":{}}}"#,
            "cannot unmarshal object into Go struct field PodSpec.spec.containers of type []Container",
        ),
        (
            r#"{"spec":{"terminationGracePeriodSeconds":"5"}}"#,
            "cannot unmarshal string into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            r#"{"spec":{"priority":"high"}}"#,
            "cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            r#"{"spec":{"activeDeadlineSeconds":99999999999,"priority":3000000000}}"#,
            "cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
    ] {
        let error = decode(body, FieldValidation::Ignore).unwrap_err();
        assert_eq!(error.code, 400);
        assert!(error.message.starts_with(r#"Pod in version "v1" cannot be handled as a Pod: json: "#), "{error}");
        assert!(error.message.contains(expected), "{error}");
    }
}

#[test]
fn yaml_is_read_and_other_types_are_415() {
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  labels: {a: }\nspec:\n  containers:\n  - name: a\n    image: x\n    image: z\n    args: ['1', 'yes']\n";
    let decoded =
        decode_object(pods(), Some("application/yaml; charset=utf-8"), yaml.as_bytes(), FieldValidation::Warn);
    let decoded = decoded.unwrap();
    assert_eq!(decoded.value["metadata"], json!({"name": "p", "labels": {"a": ""}}));
    assert_eq!(decoded.value["spec"]["containers"][0]["image"], "z");
    assert_eq!(decoded.warnings, [r#"duplicate field "spec.containers[0].image""#]);
    for other in ["text/plain", "application/cbor"] {
        let error = decode_object(pods(), Some(other), b"{}", FieldValidation::Warn).unwrap_err();
        assert_eq!((error.code, error.reason), (415, "UnsupportedMediaType"));
    }
    let error = decode("{", FieldValidation::Warn).unwrap_err();
    assert!(error.message.starts_with("the object provided is unrecognized (must be of type Pod): "), "{error}");
}

#[test]
fn a_patched_object_is_pruned_or_refused() {
    let patched = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nonsense": 1}});
    let warned = normalise(pods(), &patched, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, [r#"unknown field "spec.nonsense""#]);
    assert_eq!(warned.value["spec"], json!({"containers": []}));
    let refused = normalise(pods(), &patched, FieldValidation::Strict).unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(refused.message.contains(r#"strict decoding error: unknown field "spec.nonsense""#), "{refused}");
}

/// Also one that no type of ours can hold: it is named, and not the object around it.
#[test]
fn a_number_that_does_not_fit_is_named() {
    for number in ["9223372036854775808", "18446744073709551615"] {
        let body = format!(r#"{{"spec":{{"containers":[],"activeDeadlineSeconds":{number}}}}}"#);
        let error = decode_object(pods(), None, body.as_bytes(), FieldValidation::Warn).unwrap_err();
        let field = "PodSpec.spec.activeDeadlineSeconds of type int64";
        let expected = format!("json: cannot unmarshal number {number} into Go struct field {field}");
        assert!(error.message.ends_with(&expected), "{error}");
    }
}

#[test]
fn a_secret_that_is_not_base64_is_400() {
    let secrets = built_in("", "v1", "secrets").unwrap();
    let error = decode_object(secrets, None, br#"{"data":{"a":"***"}}"#, FieldValidation::Warn).unwrap_err();
    assert_eq!(error.code, 400);
    let good = decode_object(secrets, None, br#"{"data":{"a":"aGk="}}"#, FieldValidation::Warn).unwrap();
    assert_eq!(good.value["data"]["a"], "aGk=");
}

fn options(body: &str) -> Result<crate::DeleteOptions, Status> {
    decode_delete_options(Some("application/json"), body.as_bytes(), &[])
}

/// [AD-13]
#[test]
fn a_body_of_delete_options_silences_the_query() {
    let query = [("gracePeriodSeconds".to_owned(), "3".to_owned())];
    let both = decode_delete_options(None, br#"{"gracePeriodSeconds":9}"#, &query).unwrap();
    assert_eq!(both.grace_seconds, Some(9));
    let only_query = decode_delete_options(None, b"", &query).unwrap();
    assert_eq!(only_query.grace_seconds, Some(3));
    let empty_body = decode_delete_options(None, b"{}", &query).unwrap();
    assert_eq!(empty_body.grace_seconds, None);
}

/// [AD-14]
#[test]
fn delete_options_as_protobuf_mean_the_same() {
    // k8s\0, TypeMeta{apiVersion: v1, kind: DeleteOptions}, raw {gracePeriodSeconds: 9}
    let mut body = b"k8s\0".to_vec();
    body.extend([0x0a, 19, 0x0a, 2]);
    body.extend(b"v1");
    body.extend([0x12, 13]);
    body.extend(b"DeleteOptions");
    body.extend([0x12, 2, 0x08, 9]);
    let read = decode_delete_options(Some("application/vnd.kubernetes.protobuf"), &body, &[]).unwrap();
    assert_eq!(read, options(r#"{"gracePeriodSeconds":9}"#).unwrap());
}

/// [AD-15] [AD-16]
#[test]
fn delete_options_of_another_type_or_kind_are_refused() {
    assert_eq!(decode_delete_options(Some("text/plain"), b"x", &[]).unwrap_err().code, 415);
    assert_eq!(options(r#"{"apiVersion":"v1","kind":"Pod"}"#).unwrap_err().code, 400);
    for version in ["v1", "apps/v1", "meta.k8s.io/v1", "bogus/v1"] {
        let body = json!({"apiVersion": version, "kind": "DeleteOptions", "gracePeriodSeconds": 1, "odd": true});
        assert_eq!(options(&body.to_string()).unwrap().grace_seconds, Some(1));
    }
}

/// [AD-17]
#[test]
fn delete_options_with_odd_words_are_422() {
    let error = options(r#"{"propagationPolicy":"Nope"}"#).unwrap_err();
    assert_eq!(
        error.message,
        r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Nope": supported values: "Foreground", "Background", "Orphan", "nil""#
    );
    let details = error.to_json()["details"].clone();
    assert_eq!((&details["group"], &details["kind"]), (&json!("meta.k8s.io"), &json!("DeleteOptions")));
    let both = options(r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#).unwrap_err();
    assert_eq!(both.code, 422);
    assert_eq!(options(r#"{"dryRun":["Some"]}"#).unwrap_err().code, 422);
    assert!(options(r#"{"dryRun":["All"]}"#).unwrap().dry_run);
}

#[test]
fn delete_options_are_read_field_by_field() {
    let read = options(
        r#"{"preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Foreground","gracePeriodSeconds":-5}"#,
    )
    .unwrap();
    assert_eq!((read.uid.as_deref(), read.resource_version.as_deref()), (Some("u"), Some("7")));
    assert_eq!((read.propagation, read.grace_seconds), (Some(Propagation::Foreground), Some(-5)));
    let word = |key: &str, value: &str| [(key.to_owned(), value.to_owned())];
    let error = decode_delete_options(None, b"", &word("gracePeriodSeconds", "abc")).unwrap_err();
    assert_eq!(error.message, r#"strconv.ParseInt: parsing "abc": invalid syntax"#);
    assert!(decode_delete_options(None, b"", &word("preconditions.uid", "x")).unwrap().uid.is_none());
    let orphan = decode_delete_options(None, b"", &word("orphanDependents", "false")).unwrap();
    assert_eq!(orphan.orphan_dependents, Some(false));
    assert_eq!(options(r#"{"gracePeriodSeconds":"9"}"#).unwrap_err().code, 400);
}

#[test]
fn field_validation_has_three_words_and_a_default() {
    assert_eq!(FieldValidation::parse(None).unwrap(), FieldValidation::Warn);
    assert_eq!(FieldValidation::parse(Some("Strict")).unwrap(), FieldValidation::Strict);
    assert_eq!(FieldValidation::parse(Some("strict")).unwrap_err().code, 422);
}

#[test]
fn every_kind_reads_an_empty_object() {
    for kind in crate::Registry::built_in().kinds() {
        let decoded = decode_object(kind, None, b"{}", FieldValidation::Strict).unwrap();
        assert!(matches!(decoded.value, Value::Object(_)), "{kind:?}");
        assert!(decoded.value.get("kind").is_none());
    }
}

/// No parser's own words: those of the API, with what was sent.
#[test]
fn bytes_that_are_no_object_are_refused_in_known_words() {
    let refused = |content_type: &str, body: &[u8]| {
        let error = read_body(Some(content_type), body, "Pod").unwrap_err();
        assert_eq!((error.code, error.reason), (400, "BadRequest"));
        let said = "the object provided is unrecognized (must be of type Pod): ";
        error.message.strip_prefix(said).unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    let json = |body: &str| refused("application/json", body.as_bytes());
    let no_type = "couldn't get version/kind; json parse error: ";
    assert_eq!(json(""), format!("{no_type}unexpected end of JSON input (<empty>)"));
    assert_eq!(json("{\"kind\":"), format!("{no_type}unexpected end of JSON input ({{\"kind\":)"));
    assert_eq!(json("pod"), format!("{no_type}invalid character 'p' looking for beginning of value (706f64)"));
    assert_eq!(json("[]"), format!("{no_type}json: cannot unmarshal array into Go value of type Pod (5b5d)"));
    let kind = "json: cannot unmarshal number into Go struct field .kind of type string";
    assert_eq!(json("{\"kind\":5}"), format!("{no_type}{kind} ({{\"kind\":5}})"));
    let deep = json(&"[".repeat(100_000));
    assert!(deep.starts_with(&format!("{no_type}unexpected end of JSON input")), "{deep}");
    let yaml = |body: &str| refused("application/yaml", body.as_bytes());
    assert_eq!(yaml("a: b: c"), "yaml: line 1: mapping values are not allowed in this context (613a20623a2063)");
    assert!(yaml("a: &a [*a]").starts_with("yaml: anchor value contains itself ("));
    for body in ["a:\n\tb: c", "{", "- \"x"] {
        let said = yaml(body);
        assert!(said.starts_with("yaml: line ") && !said.contains('\n') && !said.contains("column"), "{said}");
    }
    assert_eq!(refused("application/yaml", b"\xff"), "yaml: invalid leading UTF-8 octet (ff)");
    // Nothing is nothing, and a byte that is no letter becomes the sign for one.
    assert_eq!(read_body(None, b"null", "Pod").unwrap().value, json!({}));
    let value = read_body(None, b"{\"a\":\"\xff\"}", "Pod").unwrap().value;
    assert_eq!(value, json!({ "a": "\u{fffd}" }));
}

#[test]
fn words_that_are_no_times_or_bytes_are_refused_where_they_stand() {
    let pod = decode(r#"{"metadata":{"creationTimestamp":"noon"}}"#, FieldValidation::Ignore).unwrap_err();
    let why = r#"parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006""#;
    let said = r#"Pod in version "v1" cannot be handled as a Pod: metadata.creationTimestamp: "#;
    assert_eq!(pod.message, format!("{said}{why}"));
    let secrets = crate::kinds::built_in("", "v1", "secrets").unwrap();
    let body = br#"{"data":{"a":"aGk=","b":"%%%"}}"#;
    let secret = decode_object(secrets, None, body, FieldValidation::Ignore).unwrap_err();
    assert!(secret.message.ends_with("as a Secret: data.b: illegal base64 data at input byte 0"), "{secret}");
}

/// What cannot be read may be what keeps the object, and is not passed over.
#[test]
fn options_of_a_delete_are_of_their_types() {
    for (body, said) in [
        (r#"{"gracePeriodSeconds":"5"}"#, "string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        (
            r#"{"gracePeriodSeconds":5.5}"#,
            "number 5.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (r#"{"orphanDependents":"true"}"#, "string into Go struct field DeleteOptions.orphanDependents of type bool"),
        (r#"{"dryRun":"All"}"#, "string into Go struct field DeleteOptions.dryRun of type []string"),
        (r#"{"dryRun":[true]}"#, "bool into Go struct field DeleteOptions.dryRun of type string"),
        (r#"{"propagationPolicy":1}"#, "number into Go struct field DeleteOptions.propagationPolicy of type string"),
        (r#"{"preconditions":"u"}"#, "string into Go struct field DeleteOptions.preconditions of type Preconditions"),
        (
            r#"{"preconditions":{"uid":1}}"#,
            "number into Go struct field DeleteOptions.preconditions.uid of type string",
        ),
    ] {
        let error = decode_delete_options(None, body.as_bytes(), &[]).unwrap_err();
        assert_eq!(error.code, 400, "{body}");
        assert!(error.message.ends_with(&format!("json: cannot unmarshal {said}")), "{error}");
    }
    let fine = br#"{"gracePeriodSeconds":5,"dryRun":["All"],"preconditions":{"uid":"u","resourceVersion":null}}"#;
    let options = decode_delete_options(None, fine, &[]).unwrap();
    assert_eq!((options.grace_seconds, options.dry_run, options.uid.as_deref()), (Some(5), true, Some("u")));
}
