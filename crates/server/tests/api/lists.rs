//! Lists: chunks, versions, forms.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, configmap, pod, version};

const MAPS: &str = "/api/v1/namespaces/lists/configmaps";

async fn with_maps(names: &[&str]) -> Api {
    let api = Api::start().await;
    fill(&api, names).await;
    api
}

/// A namespace of our own, so that what the server puts into `default` does not get in between.
async fn fill(api: &Api, names: &[&str]) {
    let namespace = json!({ "metadata": { "name": "lists" } });
    api.post("/api/v1/namespaces", &namespace).await.expect(201);
    for name in names {
        api.post(MAPS, &configmap(name)).await.expect(201);
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Appendix 18.
#[tokio::test]
async fn an_empty_list_has_an_empty_list_of_items() {
    let api = Api::start().await;
    let list = api.get("/api/v1/namespaces/nowhere/pods").await.expect(200);
    assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("PodList"), Some("v1")));
    assert_eq!(list["items"], json!([]));
    assert!(version(&list) > 0);
}

#[tokio::test]
async fn chunks_are_all_of_the_first_chunks_revision() {
    let api = with_maps(&["a", "b", "c", "d", "e"]).await;
    let first = api.get(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert!(first["items"][0].get("kind").is_none(), "items carry no kind");
    // What happens meanwhile does not show.
    api.delete(&format!("{MAPS}/c")).await.expect(200);
    api.post(MAPS, &configmap("cc")).await.expect(201);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(200);
    assert_eq!((names(&second), version(&second)), (vec!["c", "d"], version(&first)));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = api.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(200);
    assert_eq!((names(&third), version(&third)), (vec!["e"], version(&first)));
    assert!(third["metadata"].get("continue").is_none());

    api.get(&format!("{MAPS}?continue={token}&resourceVersion=5")).await.expect(400);
    api.get(&format!("{MAPS}?continue={token}&resourceVersion=5&resourceVersionMatch=Exact")).await.expect(422);
    api.get(&format!("{MAPS}?continue=nonsense")).await.expect(400);
    let selected = api.get(&format!("{MAPS}?limit=1&labelSelector=%21x")).await.expect(200);
    assert!(selected["metadata"].get("remainingItemCount").is_none(), "unknown with a selector");
}

/// Appendix 12.
#[tokio::test]
async fn an_expired_token_brings_one_that_goes_on_at_the_current_state() {
    let api = Api::with_window(store::Window { changes: 4, ..store::Window::default() }).await;
    fill(&api, &["a", "b", "c"]).await;
    let first = api.get(&format!("{MAPS}?limit=1")).await.expect(200);
    for round in 0..10 {
        api.post("/api/v1/namespaces/default/configmaps", &configmap(&format!("m{round}"))).await.expect(201);
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let status = api.get(&format!("{MAPS}?limit=1&continue={token}")).await.expect(410);
    assert_eq!(status["reason"], "Expired");
    let fresh = status["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{MAPS}?continue={fresh}")).await.expect(200);
    assert_eq!(names(&rest), ["b", "c"]);
    let exact = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    let status = api.get(&exact).await.expect(410);
    assert_eq!(status["message"], "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn a_version_means_not_older_than_or_exactly() {
    let api = with_maps(&["a"]).await;
    let old = version(&api.get(MAPS).await.expect(200));
    api.post(MAPS, &configmap("b")).await.expect(201);
    let listed = |query: String| {
        let api = &api;
        async move { api.get(&format!("{MAPS}?{query}")).await.expect(200) }
    };
    assert_eq!(names(&listed(format!("resourceVersion={old}")).await), ["a", "b"]);
    assert_eq!(names(&listed(format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan")).await), ["a", "b"]);
    let exact = listed(format!("resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((names(&exact), version(&exact)), (vec!["a"], old));
    assert_eq!(names(&listed(format!("resourceVersion={old}&limit=5")).await), ["a"], "the legacy meaning");
    let zero = listed("resourceVersion=0&limit=1".to_owned()).await;
    assert_eq!(names(&zero), ["a", "b"], "informers start so, and their limit is ignored");
    let status = api.get(&format!("{MAPS}?resourceVersion=900000")).await;
    assert_eq!(status.headers["retry-after"], "1");
    let status = status.expect(504);
    assert!(status["message"].as_str().unwrap().starts_with("Timeout: Too large resource version: 900000, current: "));
    api.get(&format!("{MAPS}/a?resourceVersion=900000")).await.expect(504);
    api.get(&format!("{MAPS}/a?resourceVersion=0")).await.expect(200);
}

#[tokio::test]
async fn namespaces_and_selectors_narrow_a_list() {
    let api = Api::start().await;
    let mut labelled = configmap("x");
    labelled["metadata"]["labels"] = json!({ "app": "web", "tier": "front" });
    api.post("/api/v1/namespaces/default/configmaps", &labelled).await.expect(201);
    api.post("/api/v1/namespaces/kube-system/configmaps", &configmap("y")).await.expect(201);
    let list = |query: &'static str| {
        let api = &api;
        async move {
            let list = api.get(&format!("/api/v1/configmaps?{query}")).await.expect(200);
            names(&list).into_iter().map(str::to_owned).collect::<Vec<_>>()
        }
    };
    assert_eq!(list("").await, ["x", "y"]);
    assert_eq!(list("labelSelector=app%20in%20(web,api),tier").await, ["x"]);
    assert_eq!(list("labelSelector=app%21%3Dweb").await, ["y"]);
    assert_eq!(list("fieldSelector=metadata.namespace%3Dkube-system").await, ["y"]);
    assert_eq!(list("fieldSelector=metadata.name%21%3Dy").await, ["x"]);
}

/// Appendix 3.
#[tokio::test]
async fn a_list_can_be_a_table_or_metadata_only() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    let list = |accept: &'static str, query: &'static str| {
        let api = &api;
        async move {
            let path = format!("/api/v1/namespaces/default/pods{query}");
            api.send(Method::GET, &path, &[("accept", accept)], "").await.expect(200)
        }
    };
    let table = list("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "?limit=500").await;
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    assert_eq!(table["rows"][0]["cells"][2], "Running");
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "p");
    assert!(version(&table) > 0);
    let whole = list("application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=Object").await;
    assert_eq!(whole["rows"][0]["object"]["kind"], "Pod");
    let bare = list("application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=None").await;
    assert!(bare["rows"][0].get("object").is_none());
    let partial = list("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "").await;
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
    assert!(partial["items"][0].get("spec").is_none());
}

/// A long list is written in frames, and is the same list.
#[tokio::test]
async fn a_long_list_arrives_whole() {
    let api = Api::start().await;
    let mut big = pod("big");
    big["metadata"]["annotations"] = json!({ "text": "x".repeat(30_000) });
    for at in 0..12 {
        big["metadata"]["name"] = json!(format!("p{at:02}"));
        api.post("/api/v1/namespaces/default/pods", &big).await.expect(201);
    }
    let answer = api.get("/api/v1/pods").await;
    let list = answer.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 12);
    let pretty = api.get("/api/v1/pods?pretty=true").await;
    assert!(pretty.text.starts_with("{\n  \""));
    assert_eq!(pretty.json()["items"], list["items"]);
}

/// A long list is written while it is sent, in every form; what is said is the same as when it is made whole.
#[tokio::test]
async fn long_list_says_the_same_whether_written_piece_by_piece_or_whole() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for number in 0..510 {
        api.post(maps, &configmap(&format!("map-{number:03}"))).await.expect(201);
    }
    for accept in [
        "application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ] {
        let get = async |path: &str| api.send(http::Method::GET, path, &[("accept", accept)], "").await;
        let (sent, whole) = (get(maps).await.json(), get(&format!("{maps}?pretty=true")).await.json());
        let field = if accept.contains("Table") { "rows" } else { "items" };
        assert_eq!(sent[field].as_array().unwrap().len(), whole[field].as_array().unwrap().len());
        assert!(sent[field].as_array().unwrap().len() >= 510, "{accept}");
        let without_age = |list: &serde_json::Value| {
            let mut list = list.clone();
            for row in list["rows"].as_array_mut().into_iter().flatten() {
                row["cells"].as_array_mut().unwrap().pop();
            }
            list
        };
        assert_eq!(without_age(&sent), without_age(&whole), "{accept}");
        let packed = api.send(http::Method::GET, maps, &[("accept", accept), ("accept-encoding", "gzip")], "").await;
        assert_eq!((packed.code, packed.headers["content-encoding"].to_str().unwrap()), (200, "gzip"), "{accept}");
    }
}
