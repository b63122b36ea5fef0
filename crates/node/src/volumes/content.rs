//! What the API says a volume holds: ConfigMaps, Secrets, the pod's own fields, tokens, and any of them together.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount, ServiceAccountTokenProjection, Volume,
    VolumeProjection,
};
use kube::api::{Api, PostParams};

use super::payload::{File, Payload};
use super::{Means, VolumeError, config_map_files, missing, secret_files};
use crate::translate::container::{RunFacts, field, resource_field};
use crate::translate::find_container;

/// The mode of files that were given none.
const DEFAULT_MODE: i32 = 0o644;
/// The shortest life a token may be asked for, and the life of one that was not given any.
const TOKEN_SECONDS: i64 = 3600;

/// Reads what volumes hold.
pub(super) struct Reader<'a> {
    pub(super) means: &'a Means,
    pub(super) pod: &'a Pod,
    pub(super) facts: &'a RunFacts,
    /// Where volumes are that were written before: tokens in them are kept while they are good.
    pub(super) written: Option<&'a Path>,
}

/// An object whose changes are changes of a volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    ConfigMap(String),
    Secret(String),
    /// The pod itself: its labels and annotations may change.
    Pod,
}

/// Which objects a volume is made of; none if it is no volume of the API's.
pub(super) fn sources(volume: &Volume) -> Vec<Source> {
    let mut sources = Vec::new();
    sources.extend(volume.config_map.as_ref().map(|source| Source::ConfigMap(source.name.clone())));
    sources.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()).map(Source::Secret));
    let downward = volume.downward_api.as_ref().and_then(|source| source.items.as_deref());
    sources.extend(downward.filter(|items| may_change(items)).map(|_| Source::Pod));
    for part in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        sources.extend(part.config_map.as_ref().map(|source| Source::ConfigMap(source.name.clone())));
        sources.extend(part.secret.as_ref().map(|source| Source::Secret(source.name.clone())));
        let downward = part.downward_api.as_ref().and_then(|source| source.items.as_deref());
        sources.extend(downward.filter(|items| may_change(items)).map(|_| Source::Pod));
    }
    sources
}

/// Whether a pod can be given other values for these while it runs: its name and the like stay what they are.
fn may_change(items: &[DownwardAPIVolumeFile]) -> bool {
    let fields = items.iter().filter_map(|item| item.field_ref.as_ref());
    fields
        .map(|field| field.field_path.as_str())
        .any(|path| path.starts_with("metadata.labels") || path.starts_with("metadata.annotations"))
}

/// How long the shortest-lived token of a volume lives, in seconds.
pub(super) fn token_seconds(volume: &Volume) -> Option<i64> {
    let parts = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    parts.filter_map(|part| part.service_account_token.as_ref()).map(lifetime).min()
}

fn lifetime(token: &ServiceAccountTokenProjection) -> i64 {
    token.expiration_seconds.unwrap_or(TOKEN_SECONDS)
}

impl Reader<'_> {
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The files of a volume; `None` if it is no volume of the API's.
    pub(super) async fn payload(&self, volume: &Volume) -> Result<Option<Payload>, VolumeError> {
        let name = volume.name.as_str();
        let files = if let Some(source) = &volume.config_map {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            self.config_map(name, &source.name, source.optional, source.items.as_deref(), mode).await?
        } else if let Some(source) = &volume.secret {
            let (secret, mode) = (source.secret_name.as_deref().unwrap_or_default(), source.default_mode);
            self.secret(name, secret, source.optional, source.items.as_deref(), mode.unwrap_or(DEFAULT_MODE)).await?
        } else if let Some(source) = &volume.downward_api {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            self.downward(name, source.items.as_deref().unwrap_or_default(), mode)?
        } else if let Some(source) = &volume.projected {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            let mut files = BTreeMap::new();
            for part in source.sources.iter().flatten() {
                files.extend(self.part(name, part, mode).await?);
            }
            files
        } else {
            return Ok(None);
        };
        Ok(Some(Payload { files, group: super::fs_group(self.pod) }))
    }

    async fn part(
        &self,
        volume: &str,
        part: &VolumeProjection,
        mode: i32,
    ) -> Result<BTreeMap<String, File>, VolumeError> {
        if let Some(source) = &part.config_map {
            self.config_map(volume, &source.name, source.optional, source.items.as_deref(), mode).await
        } else if let Some(source) = &part.secret {
            self.secret(volume, &source.name, source.optional, source.items.as_deref(), mode).await
        } else if let Some(source) = &part.downward_api {
            self.downward(volume, source.items.as_deref().unwrap_or_default(), mode)
        } else if let Some(source) = &part.service_account_token {
            let content = self.token(volume, source).await?.into_bytes();
            // Whoever runs in the pod may be a user that root's 0600 keeps out.
            let owner = super::only_user(self.pod);
            let mode = if owner.is_some() || super::fs_group(self.pod).is_some() { 0o600 } else { mode };
            Ok(BTreeMap::from([(source.path.clone(), File { content, mode: bits(mode), owner })]))
        } else {
            Err(VolumeError::Unsupported { volume: volume.to_owned(), kind: "projected from such a source".to_owned() })
        }
    }

    async fn config_map(
        &self,
        volume: &str,
        object: &str,
        optional: Option<bool>,
        items: Option<&[KeyToPath]>,
        mode: i32,
    ) -> Result<BTreeMap<String, File>, VolumeError> {
        let found: Option<ConfigMap> = super::get(&self.means.client, self.namespace(), object, volume).await?;
        select(volume, "configmap", object, found.map(config_map_files), optional, items, mode)
    }

    async fn secret(
        &self,
        volume: &str,
        object: &str,
        optional: Option<bool>,
        items: Option<&[KeyToPath]>,
        mode: i32,
    ) -> Result<BTreeMap<String, File>, VolumeError> {
        let found: Option<Secret> = super::get(&self.means.client, self.namespace(), object, volume).await?;
        select(volume, "secret", object, found.map(secret_files), optional, items, mode)
    }

    fn downward(
        &self,
        volume: &str,
        items: &[DownwardAPIVolumeFile],
        mode: i32,
    ) -> Result<BTreeMap<String, File>, VolumeError> {
        let mut files = BTreeMap::new();
        for item in items {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(reference), _) => self.field(&reference.field_path),
                (None, Some(reference)) => {
                    let container = reference.container_name.as_deref().and_then(|name| find_container(self.pod, name));
                    let container =
                        container.ok_or_else(|| missing(volume, "resourceFieldRef names no container".to_owned()))?;
                    resource_field(&container, &reference.resource, reference.divisor.as_ref(), self.facts)
                        .map_err(|error| error.to_string())
                }
                (None, None) => {
                    return Err(VolumeError::Unsupported {
                        volume: volume.to_owned(),
                        kind: "downwardAPI of nothing".to_owned(),
                    });
                }
            };
            let content = text.map_err(|what| missing(volume, what))?.into_bytes();
            files.insert(item.path.clone(), File { content, mode: bits(item.mode.unwrap_or(mode)), owner: None });
        }
        Ok(files)
    }

    /// Whole maps are allowed here, one `key="value"` a line, unlike in the environment.
    fn field(&self, path: &str) -> Result<String, String> {
        let lines = |map: Option<&BTreeMap<String, String>>| {
            map.into_iter().flatten().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
        };
        match path {
            "metadata.labels" => Ok(lines(self.pod.metadata.labels.as_ref())),
            "metadata.annotations" => Ok(lines(self.pod.metadata.annotations.as_ref())),
            other => field(self.pod, other, self.facts).map_err(|error| error.to_string()),
        }
    }

    async fn token(&self, volume: &str, source: &ServiceAccountTokenProjection) -> Result<String, VolumeError> {
        let held = self.written.and_then(|dir| std::fs::read_to_string(dir.join(volume).join(&source.path)).ok());
        if let Some(token) = held.filter(|token| is_fresh(token, crate::timestamp(&self.means.clock).as_second())) {
            return Ok(token);
        }
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let meta = &self.pod.metadata;
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: source.audience.clone().map(|audience| vec![audience]),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                }),
                expiration_seconds: Some(lifetime(source)),
            }),
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.means.client.clone(), self.namespace());
        let answer = api.create_token_request(account, &PostParams::default(), &request).await;
        let answer =
            answer.map_err(|error| super::refused(volume, &format!("no token for account {account:?}"), error))?;
        Ok(answer.status.and_then(|status| status.token).unwrap_or_default())
    }
}

/// Whether a token has more than a fifth of its life left.
fn is_fresh(token: &str, now: i64) -> bool {
    let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims = claims.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok()).unwrap_or_default();
    match (claims["iat"].as_i64(), claims["exp"].as_i64()) {
        (Some(made), Some(ends)) => now < made + (ends - made) / 5 * 4,
        _ => false,
    }
}

fn select(
    volume: &str,
    what: &str,
    object: &str,
    found: Option<BTreeMap<String, Vec<u8>>>,
    optional: Option<bool>,
    items: Option<&[KeyToPath]>,
    mode: i32,
) -> Result<BTreeMap<String, File>, VolumeError> {
    let optional = optional == Some(true);
    let Some(data) = found else {
        return match optional {
            true => Ok(BTreeMap::new()),
            false => Err(missing(volume, format!("{what} {object:?} not found"))),
        };
    };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data
            .into_iter()
            .map(|(key, content)| (key, File { content, mode: bits(mode), owner: None }))
            .collect());
    };
    let mut chosen = BTreeMap::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => {
                let mode = bits(item.mode.unwrap_or(mode));
                chosen.insert(item.path.clone(), File { content: content.clone(), mode, owner: None });
            }
            None if optional => {}
            None => return Err(missing(volume, format!("references non-existent {what} key: {}", item.key))),
        }
    }
    Ok(chosen)
}

fn bits(mode: i32) -> u32 {
    mode.cast_unsigned() & 0o777
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_for_four_fifths_of_its_life() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"iat":1000,"exp":2000}"#);
        let token = format!("head.{claims}.signature");
        assert!(is_fresh(&token, 1000) && is_fresh(&token, 1799));
        assert!(!is_fresh(&token, 1800));
        assert!(!is_fresh("no token", 0) && !is_fresh("a.b.c", 0));
    }
}
