//! One repository at one endpoint, as one user: asks, proves who we are when asked to, and remembers the proof.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE};
use http::{Method, StatusCode};
use serde::Deserialize;

use super::challenge::{self, Challenge};
use super::error::FetchError;
use super::settings::{Endpoint, Settings};
use super::transport::{Answer, Ask, Transport, public};
use crate::contract::image::Credential;
use crate::image::digest::Digest;
use crate::image::manifest::{DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};

/// The specification's own limit for manifests and indexes.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
const TOKEN_BYTES_MAX: u64 = 1 << 20;

/// One repository at one endpoint, as one user.
pub(in crate::image) struct Session<'a> {
    pub(in crate::image) transport: &'a Transport,
    pub(in crate::image) settings: &'a Settings,
    pub(in crate::image) endpoint: Endpoint,
    pub(in crate::image) repository: String,
    pub(in crate::image) credential: Option<Credential>,
    authorization: Mutex<Option<HeaderValue>>,
}

/// A manifest or an index, its bytes as they came.
#[derive(Debug)]
pub(in crate::image) struct Document {
    pub(in crate::image) digest: Digest,
    pub(in crate::image) media_type: String,
    pub(in crate::image) raw: Vec<u8>,
}

impl<'a> Session<'a> {
    pub(in crate::image) fn new(
        transport: &'a Transport,
        settings: &'a Settings,
        endpoint: Endpoint,
        repository: &str,
        credential: Option<Credential>,
    ) -> Self {
        let token = credential.as_ref().and_then(Credential::registry_token);
        let authorization = token.and_then(|token| secret(&format!("Bearer {token}")));
        let repository = repository.to_owned();
        Self { transport, settings, endpoint, repository, credential, authorization: Mutex::new(authorization) }
    }

    /// The digest that a tag stands for, if the registry tells it without sending the manifest.
    pub(in crate::image) async fn digest(&self, reference: &str) -> Result<Option<Digest>, FetchError> {
        let answer = self.ask(Method::HEAD, &format!("manifests/{reference}"), manifest_headers()).await?;
        Ok(content_digest(&answer))
    }

    /// A manifest by tag or digest. Held to its digest by whoever knows which one it must have.
    pub(in crate::image) async fn manifest(&self, reference: &str) -> Result<Document, FetchError> {
        let answer = self.ask(Method::GET, &format!("manifests/{reference}"), manifest_headers()).await?;
        let told = content_digest(&answer);
        let header = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = header.split(';').next().unwrap_or_default().trim().to_owned();
        let wrong = answer.unusable("its manifest does not have the digest it is sent with".to_owned());
        let raw = answer.all(MANIFEST_BYTES_MAX).await?;
        let digest = Digest::of(&raw);
        if told.is_some_and(|told| told != digest) {
            return Err(wrong);
        }
        // Some servers send every manifest as plain JSON; the document itself then tells what it is.
        let inner = || serde_json::from_slice::<MediaTypeOnly>(&raw).ok().and_then(|found| found.media_type);
        let media_type = match media_type.as_str() {
            "" | "application/json" | "text/plain" | "application/octet-stream" => inner().unwrap_or(media_type),
            _ => media_type,
        };
        Ok(Document { digest, media_type, raw })
    }

    /// A blob from byte `from` on. The answer says whether it really starts there.
    pub(in crate::image) async fn blob(&self, digest: Digest, from: u64) -> Result<Answer, FetchError> {
        let mut headers = HeaderMap::new();
        if from > 0 {
            headers.extend(HeaderValue::from_str(&format!("bytes={from}-")).ok().map(|range| (RANGE, range)));
        }
        self.ask(Method::GET, &format!("blobs/{digest}"), headers).await
    }

    async fn ask(&self, method: Method, what: &str, headers: HeaderMap) -> Result<Answer, FetchError> {
        let mut url = format!("{}/{}/{what}", self.endpoint.base, self.repository);
        if let Some(registry) = &self.endpoint.mirror_of {
            url.push_str(&format!("?ns={}", encode(registry)));
        }
        let mut proved = false;
        loop {
            let authorization = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let ask = Ask { method: method.clone(), headers: headers.clone(), authorization, ..Ask::get(url.clone()) };
            let answer = self.transport.send(self.settings, ask).await?;
            match answer.status {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => return Ok(answer),
                // Asked for a proof, or the one we had has grown old: one more try with a new one.
                StatusCode::UNAUTHORIZED if !proved => {
                    proved = true;
                    let Some(challenge) = challenge::strongest(&answer.headers) else {
                        return Err(answer.into_error(&method).await);
                    };
                    match self.prove(challenge).await? {
                        Some(proof) => {
                            *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(proof);
                        }
                        None => return Err(answer.into_error(&method).await),
                    }
                }
                _ => return Err(answer.into_error(&method).await),
            }
        }
    }

    /// What answers a challenge; `None` if we have nothing to answer it with.
    async fn prove(&self, challenge: Challenge) -> Result<Option<HeaderValue>, FetchError> {
        match challenge {
            Challenge::Basic => Ok(self.credential.as_ref().and_then(|credential| secret(&credential.basic()))),
            Challenge::Bearer { realm, service, scope, .. } => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.repository));
                let token = self.token(&realm, service.as_deref(), &scope).await;
                let token =
                    token.map_err(|source| FetchError::Token { realm: public(&realm), source: Box::new(source) })?;
                Ok(secret(&format!("Bearer {token}")))
            }
        }
    }

    async fn token(&self, realm: &str, service: Option<&str>, scope: &str) -> Result<String, FetchError> {
        if self.endpoint.is_secure() && !realm.starts_with("https://") {
            let why = "it wants our credentials without TLS".to_owned();
            return Err(FetchError::Redirect { url: self.endpoint.base.clone(), why });
        }
        let mut fields: Vec<(&str, &str)> = service.map(|service| ("service", service)).into_iter().collect();
        fields.push(("scope", scope));
        let identity = self.credential.as_ref().and_then(Credential::identity_token);
        let ask = match identity {
            Some(identity) => {
                fields.extend([("grant_type", "refresh_token"), ("client_id", "adieu"), ("refresh_token", identity)]);
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                let headers = [(CONTENT_TYPE, form)].into_iter().collect();
                let body = Bytes::from(query(&fields));
                Ask { method: Method::POST, headers, body, ..Ask::get(realm.to_owned()) }
            }
            None => {
                let authorization = self.credential.as_ref().and_then(|credential| secret(&credential.basic()));
                let divider = if realm.contains('?') { '&' } else { '?' };
                let url = format!("{realm}{divider}{}", query(&fields));
                Ask { authorization, ..Ask::get(url) }
            }
        };
        let method = ask.method.clone();
        let answer = self.transport.send(self.settings, ask).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.into_error(&method).await);
        }
        let wrong = answer.unusable("it holds no token".to_owned());
        let token: Token = match serde_json::from_slice(&answer.all(TOKEN_BYTES_MAX).await?) {
            Ok(token) => token,
            Err(_) => return Err(wrong),
        };
        token.token.or(token.access_token).filter(|token| !token.is_empty()).ok_or(wrong)
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MediaTypeOnly {
    media_type: Option<String>,
}

fn manifest_headers() -> HeaderMap {
    let kinds = [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST].join(", ");
    HeaderValue::from_str(&kinds).ok().map(|kinds| (ACCEPT, kinds)).into_iter().collect()
}

fn content_digest(answer: &Answer) -> Option<Digest> {
    answer.headers.get("docker-content-digest")?.to_str().ok()?.parse().ok()
}

/// A header value that is never printed.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn query(fields: &[(&str, &str)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect::<Vec<_>>().join("&")
}

/// Percent-encoding of everything that could mean something in a query.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
