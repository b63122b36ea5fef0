//! Every operation that our own OpenAPI announces, with bodies and parameters by chance, good and bad: nothing breaks,
//! and what comes back is what was announced.
//!
//! Chance is the same every time, and another with `SEED`; `ROUNDS` says how often each operation is asked.

mod chance;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;

use crate::harness::Api;
use chance::{ACCEPTS, Dice, Operation, complaint};

async fn operations(api: &Api) -> Vec<Operation> {
    let index = api.get("/openapi/v3").await.expect(200);
    let mut found = Vec::new();
    for entry in index["paths"].as_object().unwrap().values() {
        let document = api.get(entry["serverRelativeURL"].as_str().unwrap()).await.expect(200);
        found.extend(chance::operations(document));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_never_break_the_server() {
    let api = Api::start().await;
    let operations = operations(&api).await;
    assert!(operations.len() > 300, "{}", operations.len());
    let rounds: usize = std::env::var("ROUNDS").ok().map_or(6, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let mut dice = Dice::seeded();
    let (mut problems, mut done) = (Vec::new(), 0);
    for round in 0..rounds {
        dice.tame = round % 2 == 0;
        for operation in &operations {
            let (path, watches) = dice.address(operation);
            let (media, body) = dice.body(operation);
            let accept = *dice.pick(&ACCEPTS);
            let mut request = Request::builder().method(operation.method.clone()).uri(&path).header("accept", accept);
            if let Some(media) = &media {
                request = request.header("content-type", media);
            }
            let told =
                format!("{} {path} {} {}", operation.method, media.unwrap_or_default(), String::from_utf8_lossy(&body));
            let request = request.body(Full::new(Bytes::from(body))).unwrap_or_else(|error| panic!("{error}: {told}"));
            let response = api.service().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let media = parts.headers.get("content-type").and_then(|media| media.to_str().ok()).unwrap_or("nothing");
            done += usize::from(parts.status.is_success());
            // A watch that began goes on; how it begins is all there is to see.
            let body = if watches && parts.status.is_success() {
                None
            } else {
                Some(body.collect().await.unwrap().to_bytes())
            };
            let body = body.as_deref().unwrap_or(b"{}");
            let accept = if watches { "watch" } else { accept };
            if let Some(problem) = complaint(operation, accept, parts.status.as_u16(), media, body) {
                problems.push(format!("{told}\n    {problem}"));
            }
        }
        println!("round {round}: {done} of {} done", (round + 1) * operations.len());
    }
    problems.sort();
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems[..problems.len().min(30)].join("\n"));
    assert!(done > operations.len() / 4, "chance asked for nothing that could be done: {done}");
}
