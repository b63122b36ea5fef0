//! Answers to clients that read nothing but protobuf: objects, lists, refusals and watches.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use server::Body;
use tower::ServiceExt as _;

use crate::harness::{Api, configmap, pod, version};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

async fn answer(api: &Api, method: Method, path: &str, accept: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    api.service().oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap()
}

/// The body of an answer that must be protobuf and have `code`.
async fn read(api: &Api, method: Method, path: &str, accept: &str, code: u16) -> Bytes {
    let response = answer(api, method, path, accept).await;
    assert_eq!((response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()), (code, PROTOBUF));
    response.into_body().collect().await.unwrap().to_bytes()
}

/// A number of seven bits a byte, and what follows it.
fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let end = bytes.iter().position(|byte| *byte < 0x80).expect("a number ends");
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, &bytes[end + 1..])
}

/// Every field of a message that holds bytes; `code`-like numbers come as their digits.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (tag, rest) = varint(bytes);
        let (number, rest) = varint(rest);
        let length = usize::try_from(number).unwrap();
        let (content, rest) = match tag & 7 {
            0 => (number.to_string().into_bytes(), rest),
            2 => (rest[..length].to_vec(), &rest[length..]),
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, content));
        bytes = rest;
    }
    found
}

fn field(bytes: &[u8], number: u64) -> Vec<u8> {
    fields(bytes).into_iter().find(|(at, _)| *at == number).map(|(_, content)| content).unwrap_or_default()
}

fn text(bytes: &[u8], number: u64) -> String {
    String::from_utf8(field(bytes, number)).unwrap()
}

/// apiVersion, kind and message of an envelope.
fn opened(body: &[u8]) -> (String, String, Vec<u8>) {
    let envelope = body.strip_prefix(b"k8s\0").expect("an envelope");
    let kind = field(envelope, 1);
    (text(&kind, 1), text(&kind, 2), field(envelope, 2))
}

/// An object in its envelope, as the JSON that a client would have got.
fn object(body: &[u8]) -> Value {
    let (api_version, kind, mut object) = api::decode_envelope(body).unwrap();
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object
}

#[tokio::test]
async fn an_object_and_a_list_say_what_json_says() {
    let api = Api::start().await;
    api.running_pod("web", |pod| pod["metadata"]["labels"] = json!({ "app": "web" })).await;
    api.post(PODS, &pod("other")).await.expect(201);
    let path = format!("{PODS}/web");
    let body = read(&api, Method::GET, &path, PROTOBUF, 200).await;
    assert_eq!(object(&body), api.get(&path).await.json());

    let (api_version, kind, list) = opened(&read(&api, Method::GET, PODS, PROTOBUF, 200).await);
    assert_eq!((&*api_version, &*kind), ("v1", "PodList"));
    let shown = api.get(PODS).await.json();
    assert_eq!(text(&field(&list, 1), 2), version(&shown).to_string());
    let items: Vec<Vec<u8>> = fields(&list).into_iter().filter(|(at, _)| *at == 2).map(|(_, item)| item).collect();
    assert_eq!(items.len(), 2);
    for (item, shown) in items.iter().zip(shown["items"].as_array().unwrap()) {
        assert_eq!(text(&field(item, 1), 1), shown["metadata"]["name"].as_str().unwrap());
        assert_eq!(text(&field(item, 1), 5), shown["metadata"]["uid"].as_str().unwrap());
    }

    // A chunk says where it ends.
    let (.., chunk) = opened(&read(&api, Method::GET, &format!("{PODS}?limit=1"), PROTOBUF, 200).await);
    let metadata = field(&chunk, 1);
    assert!(!text(&metadata, 3).is_empty());
    assert_eq!(text(&metadata, 4), "1");

    let (api_version, kind, list) = opened(&read(&api, Method::GET, PODS, METADATA, 200).await);
    assert_eq!((&*api_version, &*kind), ("meta.k8s.io/v1", "PartialObjectMetadataList"));
    let first = field(&list, 2);
    assert_eq!(fields(&first).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1], "metadata and nothing else");
    assert_eq!(text(&field(&first, 1), 1), "other");
}

#[tokio::test]
async fn a_write_and_a_refusal_are_answered_alike() {
    let api = Api::start().await;
    let request = Request::post(MAPS).header("accept", PROTOBUF).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(configmap("x").to_string()))).unwrap();
    let response = api.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let made = object(&response.into_body().collect().await.unwrap().to_bytes());
    assert_eq!(made, api.get(&format!("{MAPS}/x")).await.json());

    let (api_version, kind, status) = opened(&read(&api, Method::GET, &format!("{MAPS}/nobody"), PROTOBUF, 404).await);
    assert_eq!((&*api_version, &*kind), ("v1", "Status"));
    assert_eq!(
        [text(&status, 2), text(&status, 3), text(&status, 4), text(&status, 6)],
        ["Failure", "configmaps \"nobody\" not found", "NotFound", "404"]
    );
    assert_eq!([text(&field(&status, 5), 1), text(&field(&status, 5), 3)], ["nobody", "configmaps"]);
    let (.., done) = opened(&read(&api, Method::DELETE, &format!("{MAPS}/x"), PROTOBUF, 200).await);
    assert_eq!(text(&done, 2), "Success");
    // What has no message is refused, or stays as it is where nothing is negotiated.
    assert_eq!(answer(&api, Method::GET, "/api", PROTOBUF).await.status(), 406);
    assert_eq!(answer(&api, Method::GET, "/version", PROTOBUF).await.headers()["content-type"], "application/json");
}

/// The frames of a watch: a length, then an event.
struct Frames(Body, Vec<u8>);

impl Frames {
    async fn open(api: &Api, path: &str, accept: &str) -> Self {
        let response = answer(api, Method::GET, path, accept).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
        Self(response.into_body(), Vec::new())
    }

    /// Type and envelope of the next event.
    async fn next(&mut self) -> (String, Vec<u8>) {
        loop {
            if let Some((length, rest)) = self.1.split_first_chunk() {
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
                if rest.len() >= length {
                    let event: Vec<u8> = self.1.drain(..4 + length).skip(4).collect();
                    return (text(&event, 1), field(&field(&event, 2), 1));
                }
            }
            let frame = self.0.frame().await.expect("another event").unwrap();
            self.1.extend_from_slice(&frame.into_data().unwrap());
        }
    }
}

#[tokio::test]
async fn a_watch_comes_in_frames() {
    let api = Api::start().await;
    let start = api.store.revision().0;
    api.post(MAPS, &configmap("x")).await.expect(201);
    let path = format!("{MAPS}?watch=1&resourceVersion={start}");
    let mut lines = api.watch(&path).await;
    let mut frames = Frames::open(&api, &path, "application/vnd.kubernetes.protobuf;stream=watch").await;
    let mut metadata = Frames::open(&api, &path, METADATA).await;
    api.patch(&format!("{MAPS}/x"), &json!({ "data": { "b": "2" } })).await.expect(200);
    api.delete(&format!("{MAPS}/x")).await.expect(200);
    for _ in 0..3 {
        let shown = lines.next().await.unwrap();
        let (event, body) = frames.next().await;
        assert_eq!((json!(event), object(&body)), (shown["type"].clone(), shown["object"].clone()));
        let (event, body) = metadata.next().await;
        let (api_version, kind, object) = opened(&body);
        assert_eq!((&*api_version, &*kind), ("meta.k8s.io/v1", "PartialObjectMetadata"));
        assert_eq!((json!(event), &*text(&field(&object, 1), 1)), (shown["type"].clone(), "x"));
    }

    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    api.post(MAPS, &configmap("y")).await.expect(201);
    let mut frames = Frames::open(&api, &format!("{MAPS}?{initial}&fieldSelector=metadata.name=y"), PROTOBUF).await;
    assert_eq!(frames.next().await.0, "ADDED");
    let (event, body) = frames.next().await;
    assert_eq!((&*event, &object(&body)["kind"]), ("BOOKMARK", &json!("ConfigMap")));
    assert_eq!(object(&body)["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
}

/// Upstream's suite watches from a version that may be too old, and wants to read why.
#[tokio::test]
async fn a_watch_that_cannot_start_says_so_in_a_frame() {
    let api = Api::start().await;
    let future = api.store.revision().0 + 1000;
    let mut frames = Frames::open(&api, &format!("{MAPS}?watch=1&resourceVersion={future}"), PROTOBUF).await;
    let (event, body) = frames.next().await;
    let (_, kind, status) = opened(&body);
    assert_eq!((&*event, &*kind, &*text(&status, 6)), ("ERROR", "Status", "504"));
    assert!(frames.0.frame().await.is_none(), "the watch is over");
}
