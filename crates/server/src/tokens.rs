//! Service account tokens: signed here, checked here, bound to what they were made for.
//!
//! A token is a JWT signed with ES256. It is good while it has not expired, its account is the one it was made for,
//! and the pod, secret or node it is bound to is still there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::identity::Identity;
use crate::pki::{PkiError, files};
use crate::random;
use crate::request::key;
use crate::state::{State, core_kind};

/// Who says so, in every token; also whom a token is for unless it says otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Longest life of a token that is asked for. Only one that is kept in a secret lives longer.
pub(crate) const MOST_SECONDS: i64 = 365 * 24 * 60 * 60;
/// By how much a token may seem to come from the future: its times are whole seconds.
const LEEWAY_SECONDS: i64 = 1;
const SEC1_POINT: usize = 65;
/// How long a token outlives the deletion of its account or pod being asked for.
const LEAVING: SignedDuration = SignedDuration::from_secs(60);

/// The key that service account tokens are signed with, and those of before, whose tokens are still good.
///
/// In a directory, `sa.key` signs. Any `sa-NAME.key` beside it only checks: whoever moves `sa.key` there has the next start make another,
/// and every token stays good until that file is removed.
#[derive(Clone)]
pub struct TokenKey(Arc<Signer>, Vec<Arc<Signer>>);

struct Signer {
    pair: EcdsaKeyPair,
    id: String,
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKey").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl TokenKey {
    /// Reads the keys in `dir` (a [`crate::pki`] directory), making the one that signs if it is missing.
    pub fn ensure(dir: &Path) -> Result<Self, PkiError> {
        let path = dir.join("sa.key");
        let wrap = |source| PkiError::File { path: path.clone(), source };
        files::private_dir(dir).map_err(wrap)?;
        let signs = match Self::read(&path)? {
            Some(key) => key,
            None => {
                let der = generate();
                let text = STANDARD.encode(&der);
                let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
                let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
                files::write_private(&path, pem.as_bytes()).map_err(wrap)?;
                Signer::from_der(&der).map_err(|error| wrap(std::io::Error::other(error.to_string())))?
            }
        };
        let is_former = |name: &str| name.starts_with("sa-") && name.ends_with(".key");
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .map_err(wrap)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| is_former(name))
            .collect();
        names.sort();
        let mut former = Vec::new();
        for name in names {
            former.extend(Self::read(&dir.join(name))?.map(Arc::new));
        }
        Ok(Self(Arc::new(signs), former))
    }

    fn read(path: &Path) -> Result<Option<Signer>, PkiError> {
        let wrap = |source| PkiError::File { path: path.to_owned(), source };
        let Some(text) = files::read(path).map_err(wrap)? else { return Ok(None) };
        let what = "the key of service account tokens";
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes());
        let der = der.map_err(|source| PkiError::Pem { what, source })?;
        let read = Signer::from_der(der.secret_pkcs8_der());
        read.map(Some).map_err(|error| wrap(std::io::Error::other(error.to_string())))
    }

    /// A key that lives as long as the process: tokens signed with it do not outlive it.
    pub fn fresh() -> Self {
        Self(Arc::new(Signer::from_der(&generate()).expect("a key that was just made can be read")), Vec::new())
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": self.0.id });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.0.pair.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.expect("the system gives random numbers");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Signer>> {
        std::iter::once(&self.0).chain(&self.1)
    }

    /// The claims of a token that one of these keys signed.
    fn open(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (header, claims) = text.split_once('.')?;
        let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let header = read(header)?;
        if header["alg"] != "ES256" {
            return None;
        }
        let signer = self.all().find(|signer| header["kid"] == *signer.id)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, signer.pair.public_key().as_ref());
        key.verify(text.as_bytes(), &signature).ok()?;
        read(claims)
    }

    /// The public halves, as clients fetch them.
    pub(crate) fn key_set(&self) -> Value {
        json!({ "keys": self.all().map(|signer| signer.public()).collect::<Vec<_>>() })
    }
}

impl Signer {
    fn from_der(der: &[u8]) -> Result<Self, ring::error::KeyRejected> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())?;
        let digest = ring::digest::digest(&ring::digest::SHA256, pair.public_key().as_ref());
        Ok(Self { id: URL_SAFE_NO_PAD.encode(digest), pair })
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        debug_assert_eq!(point.len(), SEC1_POINT);
        let coordinate = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1), "y": coordinate(33),
        })
    }
}

/// Where the public half is, for those who check tokens themselves.
pub(crate) fn discovery() -> Value {
    json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

fn generate() -> Vec<u8> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    made.expect("the system gives random numbers").as_ref().to_vec()
}

/// What a token is made for.
pub(crate) struct Grant<'a> {
    /// The stored service account.
    pub(crate) account: &'a store::Object,
    /// Whom the token is for.
    pub(crate) audiences: &'a [String],
    pub(crate) seconds: i64,
    /// Kind of an object that the token dies with, and the object.
    pub(crate) bound: Option<(&'static Arc<Kind>, Arc<Value>)>,
}

/// Makes a token; answers it and when it expires.
pub(crate) fn issue(state: &State, grant: &Grant<'_>, now: Timestamp) -> (String, Timestamp) {
    let expires = now.saturating_add(SignedDuration::from_secs(grant.seconds)).unwrap_or(Timestamp::MAX);
    let reference = |object: &Value| json!({ "name": api::meta::name(object), "uid": api::meta::uid(object) });
    let mut private = json!({
        "namespace": &*grant.account.key.namespace,
        "serviceaccount": reference(&grant.account.value()),
    });
    if let Some((kind, value)) = &grant.bound {
        private[&kind.singular] = reference(value);
        // A pod's token also says where the pod runs.
        let node = value["spec"]["nodeName"].as_str().filter(|_| kind.singular == "pod");
        let node = node.and_then(|node| state.store.get(&key(core_kind("nodes"), "", node)));
        if let Some(node) = node {
            private["node"] = reference(&node.value());
        }
    }
    let user = api::rbac::account_user(&grant.account.key.namespace, &grant.account.key.name);
    let claims = json!({
        "aud": grant.audiences, "exp": expires.as_second(), "iat": now.as_second(), "nbf": now.as_second(),
        "iss": ISSUER, "jti": random::uid(), "sub": user, "kubernetes.io": private,
    });
    (state.token_key.sign(&claims), expires)
}

/// Who the bearer of `token` is, and which of `audiences` it is for. `None` for a token that is not (any longer) good.
pub(crate) fn check(state: &State, token: &str, audiences: &[&str], now: Timestamp) -> Option<(Identity, Vec<String>)> {
    let claims = state.token_key.open(token)?;
    let second = |key: &str| claims[key].as_i64();
    let (expires, issued) = (second("exp")?, second("iat")?);
    let latest = now.as_second() + LEEWAY_SECONDS;
    if claims["iss"] != ISSUER || expires <= now.as_second() || second("nbf")? > latest || issued > latest {
        return None;
    }
    let meant: Vec<&str> = claims["aud"].as_array()?.iter().filter_map(Value::as_str).collect();
    let served: Vec<String> = audiences.iter().filter(|a| meant.contains(a)).map(ToString::to_string).collect();
    if served.is_empty() {
        return None;
    }
    let private = &claims["kubernetes.io"];
    let namespace = private["namespace"].as_str()?;
    let mut extra = BTreeMap::new();
    let mut tell = |key: &str, value: &str| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
    };
    tell("credential-id", &format!("JTI={}", claims["jti"].as_str().unwrap_or_default()));
    let account = &private["serviceaccount"];
    let user = api::rbac::account_user(namespace, account["name"].as_str()?);
    if claims["sub"] != *user {
        return None;
    }
    if !is_there(state, "serviceaccounts", namespace, account, now) {
        return None;
    }
    for (word, plural, place) in [("pod", "pods", namespace), ("secret", "secrets", namespace), ("node", "nodes", "")] {
        let bound = &private[word];
        if bound.is_null() {
            continue;
        }
        // A pod's node is only told; the pod is what the token is bound to.
        let told_only = word == "node" && !private["pod"].is_null();
        if !told_only && !is_there(state, plural, place, bound, now) {
            return None;
        }
        if word == "secret" {
            // Whoever replaces the token in a secret takes the old one back.
            let is_kept = expires.saturating_sub(issued) > MOST_SECONDS;
            if is_kept && !holds(state, namespace, bound, token) {
                return None;
            }
        } else {
            tell(&format!("{word}-name"), bound["name"].as_str()?);
            tell(&format!("{word}-uid"), bound["uid"].as_str()?);
        }
    }
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
    let mut identity = Identity::new(user, &groups);
    identity.uid = account["uid"].as_str()?.to_owned();
    identity.extra = extra;
    Some((identity, served))
}

/// Whether the object a token names is still the same one, and not long on its way out.
fn is_there(state: &State, plural: &str, namespace: &str, named: &Value, now: Timestamp) -> bool {
    let Some(name) = named["name"].as_str() else { return false };
    let Some(found) = state.store.get(&key(core_kind(plural), namespace, name)) else { return false };
    let left = api::meta::deletion_timestamp(&found.value()).is_some_and(|at| now.duration_since(at) > LEAVING);
    !left && named["uid"] == api::meta::uid(&found.value())
}

/// Whether the secret that a token was made for still holds it.
fn holds(state: &State, namespace: &str, named: &Value, token: &str) -> bool {
    let Some(name) = named["name"].as_str() else { return false };
    let Some(secret) = state.store.get(&key(core_kind("secrets"), namespace, name)) else { return false };
    let held = STANDARD.decode(secret.value()["data"]["token"].as_str().unwrap_or_default());
    held.is_ok_and(|held| held == token.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// [SE-81] Every claim counts, also in a token that our own key signed.
    #[tokio::test]
    async fn a_token_is_refused_for_each_claim_that_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(
            crate::ServerConfig {
                store: store::Store::open(&dir.path().join("store")).await.unwrap(),
                advertise: ([127, 0, 0, 1], 6443).into(),
                version: String::new(),
                nodes: Arc::new(crate::NoNodes),
                service_range: crate::ServiceRange::default(),
                token_key: TokenKey::fresh(),
            },
            frame::Clock::system(),
        );
        let account = key(core_kind("serviceaccounts"), "n", "robot");
        let value = json!({ "metadata": { "name": "robot", "namespace": "n", "uid": "u" } });
        state.store.transact(Vec::new(), vec![store::Step::Put { key: account, value }]).await.unwrap();
        let now = state.now();
        let at = |seconds: i64| json!(now.as_second() + seconds);
        let claims = || {
            json!({ "aud": [ISSUER], "exp": at(600), "iat": at(0), "nbf": at(0), "iss": ISSUER, "jti": "j",
                "sub": "system:serviceaccount:n:robot",
                "kubernetes.io": { "namespace": "n", "serviceaccount": { "name": "robot", "uid": "u" } } })
        };
        let checked = |claims: &Value| check(&state, &state.token_key.sign(claims), &[ISSUER], now);
        assert_eq!(checked(&claims()).unwrap().0.user, "system:serviceaccount:n:robot");
        for (claim, wrong) in [
            ("iss", json!("https://elsewhere.example")),
            ("aud", json!(["vault"])),
            ("aud", json!(null)),
            ("exp", at(0)),
            ("nbf", at(5)),
            ("iat", at(5)),
            ("iat", json!(null)),
            ("sub", json!("system:serviceaccount:n:other")),
            ("sub", json!("kubernetes-admin")),
            (
                "kubernetes.io",
                json!({ "namespace": "n", "serviceaccount": { "name": "robot", "uid": "an older one" } }),
            ),
            (
                "kubernetes.io",
                json!({ "namespace": "n", "serviceaccount": { "name": "robot", "uid": "u" },
                "node": { "name": "gone", "uid": "x" } }),
            ),
        ] {
            let mut bad = claims();
            bad[claim] = wrong.clone();
            assert!(checked(&bad).is_none(), "{claim}: {wrong}");
        }
        // Neither without a signature, nor by another algorithm, nor in the name of another key.
        let signed = state.token_key.sign(&claims());
        let (header, rest) = signed.split_once('.').unwrap();
        for other in [json!({ "alg": "none" }), json!({ "alg": "HS256", "kid": state.token_key.0.id })] {
            let other = URL_SAFE_NO_PAD.encode(other.to_string());
            assert!(check(&state, &format!("{other}.{rest}"), &[ISSUER], now).is_none());
        }
        assert!(check(&state, &format!("{header}.{rest}"), &[ISSUER], now).is_some());
        let foreign = json!({ "alg": "ES256", "kid": "another" });
        let text = [foreign, claims()].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = state.token_key.0.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert!(check(&state, &token, &[ISSUER], now).is_none(), "signed by us in the name of another key");
    }

    #[test]
    fn token_of_a_former_key_is_good_until_that_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (current, former) = (dir.path().join("sa.key"), dir.path().join("sa-2025.key"));
        let token = TokenKey::ensure(dir.path()).unwrap().sign(&json!({ "sub": "a" }));
        std::fs::rename(&current, &former).unwrap();
        let keys = TokenKey::ensure(dir.path()).unwrap();
        assert_eq!(keys.open(&token).unwrap()["sub"], "a");
        assert_eq!(keys.key_set()["keys"].as_array().unwrap().len(), 2, "others can check both");
        let next = keys.sign(&json!({ "sub": "b" }));
        std::fs::remove_file(&former).unwrap();
        let keys = TokenKey::ensure(dir.path()).unwrap();
        assert_eq!((keys.open(&token), keys.open(&next).unwrap()["sub"].as_str()), (None, Some("b")));
    }

    #[test]
    fn a_token_is_read_by_the_key_that_signed_it_and_by_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let key = TokenKey::ensure(dir.path()).unwrap();
        let token = key.sign(&json!({ "sub": "a" }));
        assert_eq!(TokenKey::ensure(dir.path()).unwrap().open(&token).unwrap()["sub"], "a");
        assert!(TokenKey::fresh().open(&token).is_none());
        let (text, signature) = token.rsplit_once('.').unwrap();
        let header = text.split_once('.').unwrap().0;
        let forged = URL_SAFE_NO_PAD.encode(json!({ "sub": "b" }).to_string());
        assert!(key.open(&format!("{header}.{forged}.{signature}")).is_none());
        let unsigned = URL_SAFE_NO_PAD.encode(json!({ "alg": "none" }).to_string());
        assert!(key.open(&format!("{unsigned}.{forged}.")).is_none());
        for rubbish in ["", ".", "..", "a.b.c", &token[1..]] {
            assert!(key.open(rubbish).is_none(), "{rubbish}");
        }
    }

    #[test]
    fn the_key_is_a_secret_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        TokenKey::ensure(dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join("sa.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
