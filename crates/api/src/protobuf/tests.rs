//! Bodies captured from stock kubectl, hand-made bodies for the corners, and nonsense.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

/// Bodies as stock kubectl sent them: the command line, the bytes, and the object they hold.
const CAPTURED: &str = include_str!("captured.txt");

/// [Wire fact 1] and the other typed commands of api-surface 1.
#[test]
fn bodies_captured_from_kubectl_are_read() {
    let mut seen = 0;
    let mut lines = CAPTURED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let Some(command) = lines.next() {
        let body = unhex(lines.next().unwrap());
        let expected: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        let (api_version, kind, mut object) = decode_envelope(&body).unwrap();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        assert_eq!(object, expected, "{command}\n{object}");
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn inlined_messages_stand_in_their_parent() {
    let empty_dir = field(2, &text(1, "Memory"));
    let volume = [text(1, "scratch"), field(2, &empty_dir)].concat();
    let http_get = field(2, &[text(1, "/healthz"), field(2, &int_or_string_text("http"))].concat());
    let probe = [field(1, &http_get), number(3, 2)].concat();
    let container = [text(1, "app"), field(10, &probe)].concat();
    assert_eq!(
        pod_spec(&[field(1, &volume), field(2, &container)].concat()),
        json!({
            "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
            "containers": [{"name": "app", "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 2,
            }}],
        })
    );
}

#[test]
fn zero_is_kept_where_it_differs_from_absent_and_dropped_where_it_does_not() {
    // terminationGracePeriodSeconds 0, automountServiceAccountToken false: said on purpose. hostNetwork false, nodeName
    // "": merely not set.
    let spec = [number(4, 0), number(21, 0), number(11, 0), text(10, "")].concat();
    assert_eq!(pod_spec(&spec), json!({"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false}));
}

#[test]
fn maps_quantities_times_and_bytes_take_their_json_form() {
    let entry = |key: &str, value: &[u8]| [text(1, key), field(2, value)].concat();
    let requests = field(2, &entry("cpu", &text(1, "250m")));
    let container = [text(1, "app"), field(8, &requests)].concat();
    let spec = pod_spec(&[field(2, &container), field(7, &[text(1, "disk"), text(2, "ssd")].concat())].concat());
    assert_eq!(spec["containers"][0]["resources"], json!({"requests": {"cpu": "250m"}}));
    assert_eq!(spec["nodeSelector"], json!({"disk": "ssd"}));

    let moment = [number(1, 1_763_229_644), number(2, 123_456_000)].concat();
    let (_, _, lease) = decode("coordination.k8s.io/v1", "Lease", &field(2, &field(4, &moment))).unwrap();
    assert_eq!(lease, json!({"spec": {"renewTime": "2025-11-15T18:00:44.123456Z"}}));

    let metadata = [field(8, &[]), field(9, &number(1, 1_763_229_644))].concat();
    let (_, _, pod) = decode("v1", "Pod", &field(1, &metadata)).unwrap();
    assert_eq!(pod, json!({"metadata": {"deletionTimestamp": "2025-11-15T18:00:44Z"}}));

    let (_, _, secret) = decode("v1", "Secret", &field(2, &entry("key", b"\0\xff"))).unwrap();
    assert_eq!(secret, json!({"data": {"key": "AP8="}}));
}

#[test]
fn managed_fields_come_with_their_raw_json() {
    let entry = [text(1, "m"), field(7, &field(1, br#"{"f:data":{}}"#))].concat();
    let (_, _, object) = decode("v1", "ConfigMap", &field(1, &field(17, &entry))).unwrap();
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:data": {}}));
}

#[test]
fn negative_numbers_and_maps_of_lists_are_read() {
    // A negative int32 travels as ten bytes.
    assert_eq!(pod_spec(&number(25, (-5_i64).cast_unsigned())), json!({"priority": -5}));
    let extra = [text(1, "scopes"), field(2, &[text(1, "a"), text(1, "b")].concat())].concat();
    let (_, _, review) =
        decode("authorization.k8s.io/v1", "SubjectAccessReview", &field(2, &field(5, &extra))).unwrap();
    assert_eq!(review["spec"]["extra"], json!({"scopes": ["a", "b"]}));
}

#[test]
fn unknown_fields_are_skipped_and_repeated_messages_merge() {
    let unknown = [field(4000, b"later"), number(4001, 9)].concat();
    let twice = [field(1, &text(1, "a")), unknown, field(1, &text(3, "ns"))].concat();
    let (_, _, pod) = decode("v1", "Pod", &twice).unwrap();
    assert_eq!(pod, json!({"metadata": {"name": "a", "namespace": "ns"}}));
}

#[test]
fn delete_options_may_carry_any_version() {
    let (version, kind, options) = decode("bogus/v1", "DeleteOptions", &number(1, 0)).unwrap();
    assert_eq!(
        (version.as_str(), kind.as_str(), options),
        ("bogus/v1", "DeleteOptions", json!({"gracePeriodSeconds": 0}))
    );
}

#[test]
fn protobuf_without_envelope_or_known_kind_is_a_bad_request() {
    let refusal = |body: &[u8]| decode_envelope(body).unwrap_err();
    assert_eq!(refusal(b"{}").code, 400);
    assert!(refusal(b"{}").message.contains("expected prefix [107 56 115 0]"));
    assert_eq!(refusal(b"k8s\0").message, "no kind \"\" is registered for version \"\"");
    assert_eq!(decode("v1", "Pod", b"\x0a\x05ab").unwrap_err().code, 400);
    assert_eq!(decode("v1", "Pod", &number(1, 3)).unwrap_err().code, 400, "metadata is a message");
    assert_eq!(decode("v1", "Pod", &field(1, &field(1, b"\xff"))).unwrap_err().code, 400, "a name is text");
}

#[test]
fn random_bytes_never_make_the_protobuf_reader_panic() {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let kinds = [("v1", "Pod"), ("v1", "Node"), ("v1", "Event"), ("apps/v1", "Deployment"), ("v1", "DeleteOptions")];
    let captured: Vec<Vec<u8>> = CAPTURED.lines().filter(|line| line.starts_with("6b38")).map(unhex).collect();
    for round in 0..20_000_usize {
        let length = random.below(64);
        // Small bytes make plausible tags and lengths, so that the reader is led deep into the tables.
        let bytes: Vec<u8> = (0..length).map(|_| random.byte() >> (random.below(5))).collect();
        let (version, kind) = kinds[round % kinds.len()];
        let _ = decode(version, kind, &bytes);
        let mut body = captured[round % captured.len()].clone();
        let at = 4 + random.below(body.len() - 4);
        body[at] = random.byte();
        let _ = decode_envelope(&body);
        body.truncate(at);
        let _ = decode_envelope(&body);
    }
}

fn pod_spec(bytes: &[u8]) -> Value {
    let (_, _, mut pod) = decode("v1", "Pod", &field(2, bytes)).unwrap();
    pod["spec"].take()
}

fn decode(api_version: &str, kind: &str, object: &[u8]) -> Result<(String, String, Value), Status> {
    let type_meta = [text(1, api_version), text(2, kind)].concat();
    decode_envelope(&[MAGIC, &field(1, &type_meta), &field(2, object), &text(3, ""), &text(4, "")].concat())
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn field(tag: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(tag << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn text(tag: u64, text: &str) -> Vec<u8> {
    field(tag, text.as_bytes())
}

fn number(tag: u64, value: u64) -> Vec<u8> {
    [varint(tag << 3), varint(value)].concat()
}

fn int_or_string_text(value: &str) -> Vec<u8> {
    [number(1, 1), number(2, 0), text(3, value)].concat()
}

fn unhex(line: &str) -> Vec<u8> {
    (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect()
}

/// A tiny seeded generator, so that a failure repeats.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}
