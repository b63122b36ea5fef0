//! Discovery and OpenAPI: what clients learn before they ask for anything. The documents are `api`'s; here they are
//! tagged, and sent only to those who do not have them yet.

use std::io::Read as _;
use std::sync::Arc;

use api::discovery as documents;
use api::{Registry, Status};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::negotiate::{Accept, Form};
use crate::openapi::OpenApi;
use crate::respond;
use crate::state::State;

/// Clients ask with an `@` or a dot; only the dot is a media type that Go's parser takes in an answer.
const OPENAPI_V2_ASKED: [&str; 2] = ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", OPENAPI_V2_PROTOBUF];
const OPENAPI_V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

pub(crate) async fn handle(
    state: &State,
    registry: &Arc<Registry>,
    headers: &HeaderMap,
    accept: &Accept,
    path: &str,
) -> Result<Response<Body>, Status> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let found = match segments.as_slice() {
        [] => Some(paths(registry)),
        ["api"] => match accept.for_discovery()? {
            Form::Discovery { version } => {
                return Ok(aggregated(headers, version, documents::aggregated_core(registry)));
            }
            Form::Object | Form::Table { .. } | Form::Partial => {
                Some(documents::api_versions(&state.advertise.to_string()))
            }
        },
        ["apis"] => match accept.for_discovery()? {
            Form::Discovery { version } => {
                return Ok(aggregated(headers, version, documents::aggregated_groups(registry)));
            }
            Form::Object | Form::Table { .. } | Form::Partial => Some(documents::api_group_list(registry)),
        },
        ["api", version] => documents::api_resource_list(registry, "", version),
        ["apis", group] => documents::api_group(registry, group),
        ["apis", group, version] => documents::api_resource_list(registry, group, version),
        ["openapi", "v2"] => return openapi_v2(&state.openapi.get(registry), headers).await,
        ["openapi", "v3"] => {
            let documents = state.openapi.get(registry);
            return Ok(tagged(headers, "application/json", documents.v3().await?.index.clone()));
        }
        ["openapi", "v3", rest @ ..] => {
            return openapi_v3(&state.openapi.get(registry), headers, &rest.join("/")).await;
        }
        _ => None,
    };
    let document = found.ok_or_else(Status::no_such_path)?;
    Ok(respond::json(StatusCode::OK, respond::to_bytes(&document)))
}

async fn openapi_v3(openapi: &OpenApi, headers: &HeaderMap, path: &str) -> Result<Response<Body>, Status> {
    let document = openapi.v3().await?.documents.get(path).ok_or_else(Status::no_such_path)?;
    compressed(headers, "application/json", document)
}

/// kubectl before 1.27 wants it as protobuf.
async fn openapi_v2(openapi: &OpenApi, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|accept| OPENAPI_V2_ASKED.iter().any(|asked| accept.contains(asked))) {
        compressed(headers, OPENAPI_V2_PROTOBUF, &openapi.v2().await?.protobuf)
    } else {
        compressed(headers, "application/json", &openapi.v2().await?.json)
    }
}

/// A document that is kept compressed, as it is for those who can read that.
fn compressed(headers: &HeaderMap, media: &'static str, bytes: &Bytes) -> Result<Response<Body>, Status> {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut response = if accepted.flat_map(|line| line.split(',')).any(is_gzip) {
        let mut response = tagged(headers, media, bytes.to_vec());
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        let mut plain = Vec::new();
        let read = flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain);
        read.map_err(|error| Status::internal(&format!("an OpenAPI document cannot be read back: {error}")))?;
        tagged(headers, media, plain)
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

fn is_gzip(word: &str) -> bool {
    word.trim().split(';').next() == Some("gzip")
}

fn aggregated(headers: &HeaderMap, version: &str, mut document: Value) -> Response<Body> {
    document["apiVersion"] = Value::from(format!("apidiscovery.k8s.io/{version}"));
    let media = match version {
        "v2" => documents::AGGREGATED_CONTENT_TYPE,
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let mut response = tagged(headers, media, respond::to_bytes(&document));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// The document with a strong tag, or 304 for a client that has it.
fn tagged(headers: &HeaderMap, media: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let tag = format!("\"{:016X}\"", documents::fingerprint(&bytes));
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|each| each.trim() == tag)) {
        respond::with_type(StatusCode::NOT_MODIFIED, media, Body::empty())
    } else {
        respond::with_type(StatusCode::OK, media, bytes)
    };
    let tag = HeaderValue::from_str(&tag).expect("hexadecimal digits in quotes");
    response.headers_mut().insert(HeaderName::from_static("etag"), tag);
    response
}

/// `/`, for people.
fn paths(registry: &Registry) -> Value {
    let mut paths: Vec<String> =
        ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(String::from)
            .into();
    for (group, version) in documents::group_versions(registry).into_iter().chain([documents::METRICS]) {
        paths.push(if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") });
    }
    paths.sort();
    json!({ "paths": paths })
}
