//! Who we are to a registry: the keyring that pull secrets and docker's configuration fill.
//!
//! A credential is never printed, not even by `Debug`; where one must be told from another, its fingerprint is used.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use super::{Digest, ImageName};

/// Some writers pad, some do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What Docker Hub is called in different places.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// A name and a password, or a token that stands for them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credential {
    username: String,
    password: String,
    /// Exchanged for tokens at the token server.
    identity_token: Option<String>,
    /// Sent to the registry as it is.
    registry_token: Option<String>,
}

impl Credential {
    /// Tells it from others without telling it.
    pub fn fingerprint(&self) -> Digest {
        let parts = [
            self.username.as_str(),
            &self.password,
            self.identity_token.as_deref().unwrap_or_default(),
            self.registry_token.as_deref().unwrap_or_default(),
        ];
        let text: String = parts.iter().map(|part| format!("{}:{part};", part.len())).collect();
        Digest::of(text.as_bytes())
    }

    /// What is exchanged for tokens at the token server.
    pub fn identity_token(&self) -> Option<&str> {
        self.identity_token.as_deref()
    }

    /// What is sent to the registry as it is.
    pub fn registry_token(&self) -> Option<&str> {
        self.registry_token.as_deref()
    }

    /// The value of an `Authorization` header that holds name and password.
    pub fn basic(&self) -> String {
        format!("Basic {}", BASE64.encode(format!("{}:{}", self.username, self.password)))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// Why a configuration gives no credentials. Says nothing of what it holds.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// It does not read.
    #[error("it is not a docker configuration: {why}")]
    NotAConfiguration {
        #[expect(missing_docs, reason = "told by the message")]
        why: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        #[expect(missing_docs, reason = "told by the message")]
        path: PathBuf,
        #[expect(missing_docs, reason = "told by the message")]
        source: std::io::Error,
    },
}

/// Credentials by the registries, and parts of registries, they are for.
#[derive(Clone, Default, Debug)]
pub struct Keyring {
    keys: Vec<(String, Credential)>,
}

impl Keyring {
    /// Adds what a `.dockerconfigjson` secret or docker's `config.json` holds.
    pub fn add_docker_config(&mut self, raw: &[u8]) -> Result<(), KeyringError> {
        let parsed: DockerConfig = parse(raw)?;
        self.add(parsed.auths)
    }

    /// Adds what a `.dockercfg` secret holds: the same without a frame around it.
    pub fn add_dockercfg(&mut self, raw: &[u8]) -> Result<(), KeyringError> {
        self.add(parse(raw)?)
    }

    /// What docker would use for this user: `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
    pub fn of_this_user() -> Result<Self, KeyringError> {
        let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker")));
        let mut keyring = Self::default();
        let Some(path) = folder.map(|folder| folder.join("config.json")) else { return Ok(keyring) };
        match std::fs::read(&path) {
            Ok(raw) => keyring.add_docker_config(&raw)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(KeyringError::File { path, source }),
        }
        Ok(keyring)
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The credentials for an image, those for the longest part of its name first.
    pub fn lookup(&self, name: &ImageName) -> Vec<Credential> {
        self.lookup_at(name.registry(), name.repository())
    }

    /// The credentials for a repository at a host, those for the longest part of its name first.
    pub fn lookup_at(&self, host: &str, repository: &str) -> Vec<Credential> {
        let wanted = format!("{}/{repository}", one_name(host));
        let mut found: Vec<Credential> = Vec::new();
        for (_, credential) in self.keys.iter().filter(|(key, _)| matches(key, &wanted)) {
            if !found.contains(credential) {
                found.push(credential.clone());
            }
        }
        found
    }

    fn add(&mut self, auths: BTreeMap<String, Auth>) -> Result<(), KeyringError> {
        for (place, auth) in auths {
            if let Some(credential) = auth.credential()? {
                self.keys.push((key_of(&place), credential));
            }
        }
        // More of a path before less of it.
        self.keys.sort_by(|left, right| right.0.cmp(&left.0));
        Ok(())
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

/// One entry of a configuration.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Auth {
    username: String,
    password: String,
    auth: String,
    #[serde(alias = "identity_token")]
    identitytoken: String,
    registrytoken: String,
}

impl Auth {
    /// `None` for an entry that only marks where a credential helper is to be asked.
    pub fn credential(self) -> Result<Option<Credential>, KeyringError> {
        let broken = |why: &str| KeyringError::NotAConfiguration { why: why.to_owned() };
        let (mut username, mut password) = (self.username, self.password);
        if !self.auth.is_empty() {
            let decoded = BASE64.decode(self.auth.trim()).map_err(|_| broken("an \"auth\" is not base64"))?;
            let text = String::from_utf8(decoded).map_err(|_| broken("an \"auth\" is not text"))?;
            let (name, word) = text.split_once(':').ok_or_else(|| broken("an \"auth\" has no colon"))?;
            username = name.to_owned();
            password = word.trim_end_matches('\0').to_owned();
        }
        let some = |text: String| (!text.is_empty()).then_some(text);
        let credential = Credential {
            username,
            password,
            identity_token: some(self.identitytoken),
            registry_token: some(self.registrytoken),
        };
        Ok(Some(credential).filter(|credential| *credential != Credential::default()))
    }
}

fn parse<T: serde::de::DeserializeOwned>(raw: &[u8]) -> Result<T, KeyringError> {
    // The words of a parser may quote what it met, so only the place is told.
    serde_json::from_slice(raw).map_err(|error| KeyringError::NotAConfiguration {
        why: format!("line {}, column {} does not read as it should", error.line(), error.column()),
    })
}

/// `https://index.docker.io/v1/` is `docker.io`; `quay.io/team` stays as it is.
fn key_of(place: &str) -> String {
    let bare = place.trim_start_matches("https://").trim_start_matches("http://");
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let path = match path.split_once('/').unwrap_or((path, "")) {
        ("v1" | "v2", rest) => rest,
        _ => path,
    };
    let path = path.trim_matches('/');
    if path.is_empty() { one_name(host).to_owned() } else { format!("{}/{path}", one_name(host)) }
}

fn one_name(host: &str) -> &str {
    if DOCKER_HUB.contains(&host) { "docker.io" } else { host }
}

/// Host label by label, where `*` and `?` stand for others; port exactly; path by its beginning.
fn matches(key: &str, wanted: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host.to_owned(), port.to_owned()),
            _ => (host.to_owned(), String::new()),
        };
        (host, port, path.to_owned())
    };
    let (key, wanted) = (split(key), split(wanted));
    let (labels, given): (Vec<_>, Vec<_>) = (key.0.split('.').collect(), wanted.0.split('.').collect());
    key.1 == wanted.1
        && wanted.2.starts_with(&key.2)
        && labels.len() == given.len()
        && labels.iter().zip(given).all(|(pattern, label)| glob(pattern.as_bytes(), label.as_bytes()))
}

/// Never goes back further than to the last `*`, so that no pattern takes long.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                last_star = Some((at, seen));
                at += 1;
            }
            Some(b'?') => (at, seen) = (at + 1, seen + 1),
            Some(wanted) if *wanted == text[seen] => (at, seen) = (at + 1, seen + 1),
            _ => match &mut last_star {
                Some((star, from)) => {
                    *from += 1;
                    (at, seen) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn users(config: &str, image: &str) -> Vec<String> {
        let mut keyring = Keyring::default();
        keyring.add_docker_config(config.as_bytes()).unwrap();
        keyring.lookup(&image.parse().unwrap()).into_iter().map(|found| found.username).collect()
    }

    #[test]
    fn credentials_are_found_for_the_images_they_are_for() {
        let config = r#"{"auths":{
            "https://index.docker.io/v1/":{"username":"hub","password":"p"},
            "quay.io":{"auth":"cXVheTpw"},
            "quay.io/team":{"auth":"dGVhbTpw"},
            "*.example.com:5000":{"username":"glob","password":"p"},
            "localhost:5000/v2/":{"username":"local","password":"p"},
            "ghcr.io":{}}}"#;
        for (image, expected) in [
            ("busybox", &["hub"][..]),
            ("docker.io/a/b:1", &["hub"]),
            ("quay.io/other/x", &["quay"]),
            ("quay.io/team/x", &["team", "quay"]),
            ("registry.example.com:5000/x", &["glob"]),
            ("registry.example.com/x", &[]),
            ("a.b.example.com:5000/x", &[]),
            ("localhost:5000/x", &["local"]),
            ("ghcr.io/x", &[]),
        ] {
            assert_eq!(users(config, image), expected, "{image}");
        }
    }

    #[test]
    fn a_pattern_stands_for_what_it_says() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("a", "", false),
            ("*", "", true),
            ("*a", "bba", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("a?c", "abc", true),
            ("a?", "a", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_auth_reads_with_and_without_padding_and_keeps_colons_in_passwords() {
        for (auth, password) in [("dTpwOnA=", "p:p"), ("dTpwOnA", "p:p"), ("dTo", "")] {
            let mut keyring = Keyring::default();
            keyring.add_dockercfg(format!(r#"{{"r.io":{{"auth":"{auth}"}}}}"#).as_bytes()).unwrap();
            let found = keyring.lookup(&"r.io/x".parse().unwrap());
            assert_eq!((found[0].username.as_str(), found[0].password.as_str()), ("u", password));
        }
    }

    #[test]
    fn unreadable_docker_config_is_reported_without_its_secrets() {
        for raw in ["", "7", r#"{"auths":{"x":"hunter2"}}"#, r#"{"auths":{"x":{"auth":"hunter2!"}}}"#] {
            let error = Keyring::default().add_docker_config(raw.as_bytes()).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("hunter2"), "{error}");
        }
        let credential = Credential { password: "hunter2".into(), ..Credential::default() };
        assert!(!format!("{credential:?}").contains("hunter2"));
    }
}
