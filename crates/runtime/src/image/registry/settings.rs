//! `registries.yaml`: mirrors, plain HTTP, extra authorities and passwords of this machine, in the words k3s uses.
//!
//! ```yaml
//! mirrors:
//!   docker.io:                      # or "*" for every registry without an entry of its own
//!     endpoint: ["https://mirror.example.com", "http://10.0.0.1:5000"]    # tried in order, docker.io itself last
//! configs:
//!   mirror.example.com:             # host and port, as in the endpoint or in an image's name
//!     auth: { username: u, password: p }
//!     tls: { ca_file: /etc/ca.pem, cert_file: …, key_file: …, insecure_skip_verify: false }
//! ```
//!
//! A registry on this machine's loopback needs no entry: it is asked by TLS first and without if it speaks none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Uri;
use serde::Deserialize;

use super::tls::TlsSettings;
use crate::contract::image::{Auth, Credential};

/// Where Docker Hub really is.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::image) enum SettingsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not right: {why}", path.display())]
    Wrong { path: PathBuf, why: String },
}

/// How registries are reached from this machine.
#[derive(Default, Debug)]
pub(in crate::image) struct Settings {
    mirrors: BTreeMap<String, Vec<Endpoint>>,
    hosts: BTreeMap<String, HostSettings>,
}

#[derive(Clone, Default, Debug)]
struct HostSettings {
    credential: Option<Credential>,
    tls: TlsSettings,
}

/// Where a registry's API is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::image) struct Endpoint {
    /// `https://host:port/v2`, without a slash at the end.
    pub(in crate::image) base: String,
    /// Host and port.
    pub(in crate::image) host: String,
    /// The registry it stands in for; `None` for the registry itself.
    pub(in crate::image) mirror_of: Option<String>,
}

impl Endpoint {
    fn direct(scheme: &str, host: &str) -> Self {
        Self { base: format!("{scheme}://{host}/v2"), host: host.to_owned(), mirror_of: None }
    }

    pub(in crate::image) fn is_secure(&self) -> bool {
        self.base.starts_with("https://")
    }
}

impl Settings {
    /// Reads the file; one that is not there says nothing.
    pub(in crate::image) fn read(path: &Path) -> Result<Self, SettingsError> {
        let raw = match std::fs::read_to_string(path) {
            Ok(raw) => raw,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(SettingsError::Read { path: path.to_owned(), source }),
        };
        Self::parse(&raw).map_err(|why| SettingsError::Wrong { path: path.to_owned(), why })
    }

    fn parse(raw: &str) -> Result<Self, String> {
        if raw.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        // The parser may quote what it met, and the file holds passwords: only the place is told.
        let parsed: File = serde_saphyr::from_str(raw).map_err(|error| match error.location() {
            Some(at) => format!("line {}, column {} is not what mirrors and configs look like", at.line(), at.column()),
            None => "it is not what mirrors and configs look like".to_owned(),
        })?;
        let mut settings = Self::default();
        for (registry, mirror) in parsed.mirrors {
            let endpoints = mirror.endpoint.iter().map(|url| endpoint(url, &registry)).collect::<Result<_, _>>()?;
            settings.mirrors.insert(registry, endpoints);
        }
        for (host, config) in parsed.configs {
            let credential = match config.auth {
                Some(auth) => auth.credential().map_err(|error| format!("auth of {host}: {error}"))?,
                None => None,
            };
            settings.hosts.insert(host, HostSettings { credential, tls: config.tls.unwrap_or_default() });
        }
        Ok(settings)
    }

    /// Where to ask for the images of a registry, in order.
    pub(in crate::image) fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let mirrors = self.mirrors.get(registry).or_else(|| self.mirrors.get("*"));
        let mut all = mirrors.cloned().unwrap_or_default();
        if registry == "docker.io" {
            all.push(Endpoint::direct("https", DOCKER_HUB));
            return all;
        }
        // A mirror that is the registry itself says how to reach it.
        for endpoint in &mut all {
            if endpoint.host == registry {
                endpoint.mirror_of = None;
            }
        }
        if all.iter().all(|endpoint| endpoint.host != registry) {
            all.push(Endpoint::direct("https", registry));
            if is_loopback(registry) && !self.hosts.contains_key(registry) {
                all.push(Endpoint::direct("http", registry));
            }
        }
        all
    }

    /// The password this machine has at a host.
    pub(in crate::image) fn credential(&self, host: &str) -> Option<&Credential> {
        self.hosts.get(host)?.credential.as_ref()
    }

    pub(in crate::image) fn tls(&self, host: &str) -> TlsSettings {
        self.hosts.get(host).map(|host| host.tls.clone()).unwrap_or_default()
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|c| c.is_ascii_digit()) => bare,
        _ => host,
    };
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    mirrors: BTreeMap<String, Mirror>,
    #[serde(default)]
    configs: BTreeMap<String, Config>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mirror {
    #[serde(default)]
    endpoint: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    auth: Option<Auth>,
    tls: Option<TlsSettings>,
}

fn endpoint(url: &str, registry: &str) -> Result<Endpoint, String> {
    let wrong = || format!("endpoint {url:?} is not a URL such as https://mirror.example.com");
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    let scheme = parsed.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(wrong)?;
    let host = parsed.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
    if parsed.query().is_some() {
        return Err(wrong());
    }
    let path = parsed.path().trim_end_matches('/');
    // A path that already leads to the API is kept; any other is where the API begins.
    let path = if path.split('/').any(|part| part == "v2") { path.to_owned() } else { format!("{path}/v2") };
    let base = format!("{scheme}://{host}{path}");
    Ok(Endpoint { base, host: host.to_string(), mirror_of: Some(registry.to_owned()) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn bases(settings: &Settings, registry: &str) -> Vec<String> {
        settings.endpoints(registry).into_iter().map(|endpoint| endpoint.base).collect()
    }

    #[test]
    fn mirrors_come_first_and_the_registry_itself_last() {
        let settings = Settings::parse(
            "mirrors:\n  docker.io:\n    endpoint: [\"https://m.example.com\", \"http://10.0.0.1:5000/v2/hub\"]\n  \
             plain.example.com:\n    endpoint: [\"http://plain.example.com\"]\n",
        )
        .unwrap();
        assert_eq!(
            bases(&settings, "docker.io"),
            ["https://m.example.com/v2", "http://10.0.0.1:5000/v2/hub", "https://registry-1.docker.io/v2"]
        );
        assert_eq!(bases(&settings, "plain.example.com"), ["http://plain.example.com/v2"]);
        assert_eq!(settings.endpoints("plain.example.com")[0].mirror_of, None);
        assert_eq!(bases(&settings, "quay.io"), ["https://quay.io/v2"]);
        let any = Settings::parse("mirrors:\n  \"*\":\n    endpoint: [\"https://all.example.com\"]\n").unwrap();
        assert_eq!(bases(&any, "quay.io"), ["https://all.example.com/v2", "https://quay.io/v2"]);
    }

    #[test]
    fn loopback_may_speak_plainly_unless_told_otherwise() {
        for host in ["localhost:5000", "127.0.0.1:5000", "[::1]:5000", "localhost"] {
            assert_eq!(bases(&Settings::default(), host).len(), 2, "{host}");
        }
        assert_eq!(bases(&Settings::default(), "10.0.0.1:5000").len(), 1);
        let settings = Settings::parse("configs:\n  localhost:5000:\n    tls: {ca_file: /x}\n").unwrap();
        assert_eq!(bases(&settings, "localhost:5000").len(), 1);
    }

    #[test]
    fn passwords_and_tls_belong_to_a_host() {
        let settings = Settings::parse(
            "configs:\n  \"r.io\":\n    auth: {username: u, password: hunter2}\n    tls: {ca_file: /ca.pem, insecure_skip_verify: true}\n",
        )
        .unwrap();
        assert_eq!(settings.credential("r.io").unwrap().basic(), "Basic dTpodW50ZXIy", "u:hunter2");
        assert!(settings.credential("other.io").is_none());
        assert!(settings.tls("r.io").insecure_skip_verify);
        assert_eq!(settings.tls("other.io"), TlsSettings::default());
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn mistakes_are_told_and_secrets_are_not() {
        for raw in [
            "mirror: {}",
            "mirrors: {a: {endpoint: [\"ftp://x\"]}}",
            "mirrors: {a: {endpoint: [\"x\"]}}",
            "mirrors: {a: {endpoint: [\"https://u:hunter2@x\"], rewrite: {}}}",
            "configs: {a: {auth: {auth: hunter2!}}}",
            "configs: {a: {auth: hunter2}}",
            "a: [",
        ] {
            let why = Settings::parse(raw).map(|_| ()).unwrap_err();
            assert!(!why.contains("hunter2"), "{raw}: {why}");
        }
        assert!(Settings::parse("# nothing yet\n").is_ok());
    }
}
